"""One Secret, several replicas, one leader, and a clock that the test moves."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from certs.issuing import DAY_S
from certs.rotating import LeafSigner, Lifetimes, Rotation
from fettle.model import ClusterError, Conflict, NotFound

NAME = "fettle-webhook.fettle-system.svc"


LIFETIMES = Lifetimes(root_s=365 * DAY_S, leaf_s=7 * DAY_S)


class Clock:
    def __init__(self, now_s: float = 1_800_000_000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


class MemoryStore:
    """A Secret as one replica sees it: `replace` conflicts if another wrote since its last read."""

    full_name = "Secret ns/ca"

    def __init__(self, shared: "Shared") -> None:
        self._shared = shared
        self._seen = 0

    async def read(self) -> dict[str, bytes] | None:
        await asyncio.sleep(0)
        if self._shared.trouble is not None:
            raise self._shared.trouble
        self._seen = self._shared.version
        return None if self._shared.content is None else dict(self._shared.content)

    async def replace(self, content: dict[str, bytes]) -> None:
        await asyncio.sleep(0)
        if self._shared.content is None:
            raise NotFound("it is gone")
        if self._seen != self._shared.version:
            raise Conflict("somebody else wrote first")
        self._shared.write(content)


class Shared:
    """What the API server keeps: at first, the Secret as it is shipped. None: it is deleted."""

    def __init__(self, content: Mapping[str, bytes] | None = MappingProxyType({})) -> None:
        self.content = content
        self.version = 0
        self.trouble: ClusterError | None = None

    def write(self, content: Mapping[str, bytes]) -> None:
        self.content = content
        self.version += 1


def replica(shared: Shared, clock: Clock, server: Clock | None = None) -> LeafSigner:
    """`server`: the API server's clock, if another one."""
    return LeafSigner(
        MemoryStore(shared),
        [NAME],
        clock=clock,
        server_clock=server or clock,
        lifetimes=LIFETIMES,
    )


def leader(shared: Shared, clock: Clock, server: Clock | None = None) -> Rotation:
    return Rotation(
        MemoryStore(shared),
        "test CA",
        clock=clock,
        server_clock=server or clock,
        lifetimes=LIFETIMES,
    )


def content(shared: Shared) -> Mapping[str, bytes]:
    assert shared.content is not None
    return shared.content
