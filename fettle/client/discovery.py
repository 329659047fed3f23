"""What an API server serves: its kinds, by its discovery documents, and its version. Requested when
it is needed; nothing is cached, since clusters are upgraded.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from fettle.api import group_path
from fettle.client.responses import decoded
from fettle.client.session import Session
from fettle.logs import Logger
from fettle.model import ClusterError, NotServed
from fettle.pacing import keep

VERSION_EVERY_S = 60.0
_FIRST_VERSION_EVERY_S = 10.0
_LOG = Logger(__name__)


class ServedKind(NamedTuple):
    """A kind as one version of a group serves it; `plural` is its name in paths and rules."""

    version: str
    kind: str
    plural: str


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True):
    versions: Sequence[_GroupVersion] = ()


class _Resource(msgspec.Struct, frozen=True):
    name: str
    kind: str


class _Resources(msgspec.Struct, frozen=True):
    resources: Sequence[_Resource] = ()


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


async def served_versions(session: Session, group: str) -> tuple[str, ...]:
    """The versions of a group that are served, the server's preferred one first; none if the group
    is not served. Raises ClusterError where the server gives no answer."""
    if not group:
        return ("v1",)
    try:
        answer = await session.get(group_path(group))
        found = decoded(answer, _Group, f"discovery document for {group}")
    except NotServed:
        return ()
    return tuple(version.version for version in found.versions)


async def served_kinds(session: Session, group: str) -> tuple[ServedKind, ...]:
    """All kinds of a group that are served, those of the preferred version first.

    Subresources are left out.
    """
    found: list[ServedKind] = []
    for version in await served_versions(session, group):
        path = group_path(group, version)
        listed = decoded(await session.get(path), _Resources, f"resource list at {path}").resources
        found += [ServedKind(version, r.kind, r.name) for r in listed if "/" not in r.name]
    return tuple(found)


async def server_version(session: Session) -> str:
    """The server's `gitVersion`, such as `v1.37.1`; "" if it has none. Raises ClusterError."""
    return decoded(await session.get("/version"), _Version, "version").git_version


async def keep_server_version(
    session: Session, on_change: Callable[[str], None], every_s: float = VERSION_EVERY_S
) -> None:
    """Call `on_change` with each version that differs from the one before, until cancelled."""
    known = ""

    async def look() -> None:
        nonlocal known
        try:
            version = await server_version(session)
        except ClusterError as error:
            _LOG.warning("the cluster's version cannot be read", reason=str(error))
        else:
            if version != known:
                _LOG.info("the cluster's version", version=version)
                on_change(version)
                known = version
        await asyncio.sleep(every_s if known else min(every_s, _FIRST_VERSION_EVERY_S))

    await keep("version of the cluster", look)
