"""Which kinds an API server serves, by its discovery: asked when it is needed, nothing is kept."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from fettle.client.decoding import decoded
from fettle.client.session import Session
from fettle.model import NotServed


class ServedKind(NamedTuple):
    """A kind as one version of a group serves it; `plural` is its name in paths and rules."""

    version: str
    kind: str
    plural: str


class _Version(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True):
    versions: Sequence[_Version] = ()


class _Resource(msgspec.Struct, frozen=True):
    name: str
    kind: str


class _Resources(msgspec.Struct, frozen=True):
    resources: Sequence[_Resource] = ()


async def versions(session: Session, group: str) -> tuple[str, ...]:
    """The versions of a group that are served, the server's preferred one first; none of a group
    that is not served. Raises ClusterError where the server gives no answer."""
    if not group:
        return ("v1",)
    try:
        answer = await session.get(f"/apis/{group}")
        found = decoded(answer, _Group, f"discovery document for {group}")
    except NotServed:
        return ()
    return tuple(version.version for version in found.versions)


async def kinds(session: Session, group: str) -> tuple[ServedKind, ...]:
    """All kinds of a group that are served, those of the preferred version first.

    Subresources are left out.
    """
    found: list[ServedKind] = []
    for version in await versions(session, group):
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        listed = decoded(await session.get(path), _Resources, f"resource list at {path}").resources
        found += [ServedKind(version, r.kind, r.name) for r in listed if "/" not in r.name]
    return tuple(found)
