"""Which version of Kubernetes the cluster runs, asked for again and again, since it is upgraded."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from fettle.client.decoding import decoded
from fettle.client.session import Session
from fettle.model import ClusterError

EVERY_S = 60.0
_LOG = structlog.get_logger(__name__)


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = ""


async def read(session: Session) -> str:
    """The server's `gitVersion`, such as `v1.37.1`, "" if it says none; raises ClusterError."""
    return decoded(await session.get("/version"), _Version, "version").git_version


async def follow(session: Session, tell: Callable[[str], None], every_s: float = EVERY_S) -> None:
    """Tell each version that differs from the one before, as `v1.37.1`, until cancelled."""
    known = ""
    while True:
        try:
            version = await read(session)
        except ClusterError as error:
            _LOG.warning("the cluster's version cannot be read", reason=str(error))
        else:
            if version != known:
                known = version
                _LOG.info("the cluster's version", version=version)
                tell(version)
        await asyncio.sleep(every_s if known else min(every_s, 10.0))
