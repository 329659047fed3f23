"""Lists the objects of a kind in the cluster, page by page, for commands that ask the API server
themselves.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.client import Session
from fettle.model import BadInput, NotServed

_PAGE = 500


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: dict[str, Any] = {}


async def objects(
    session: Session, kind: Kind, fields: str = ""
) -> AsyncIterator[kinds.WireObject]:
    """All objects of a kind, in pages; those that cannot be read, and kinds that are not served,
    are left out."""
    query: dict[str, str | int] = {"limit": _PAGE}
    if fields:
        query["fieldSelector"] = fields
    for path in kind.paths:
        try:
            while True:
                page = msgspec.json.decode(await session.get(path, query), type=_Page)
                for raw in page.items or ():
                    try:
                        yield kind.decode(raw)
                    except BadInput:
                        continue
                if not (token := page.metadata.get("continue")):
                    return
                query["continue"] = token
        except NotServed:
            continue
