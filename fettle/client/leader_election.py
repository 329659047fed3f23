"""Leader election on a `coordination.k8s.io/v1` Lease: one of several replicas does the work. A
lease expires when it was not renewed for its duration on our own clock; times that another replica
wrote are never compared with ours. Knows nothing of what the leader does.
"""

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

from fettle.api import api_path
from fettle.api.meta import micro_time
from fettle.client.session import Session
from fettle.logs import Logger
from fettle.model import ClusterError, Conflict, NotFound, Unreachable

Lease = dict[str, Any]
Spec = dict[str, Any]
_API_VERSION = "coordination.k8s.io/v1"
RELEASE_S = 2.0
"""How long releasing the lease may take: do not wait for an unreachable server."""
LOOKS_S = 1.0
"""How often a follower looks, at least: for so long nobody leads after the lease was released."""
_LONGEST_NAME = 128
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

log = Logger(__name__)


def identity() -> str:
    """What distinguishes this replica from the others."""
    return f"{socket.gethostname()}-{os.getpid()}"


async def lead(
    session: Session,
    namespace: str,
    name: str,
    identity: str,
    duration_s: float,
    work: Callable[[], Awaitable[None]],
    on_leader: Callable[[str], None] = lambda _: None,
    release_s: float = RELEASE_S,
) -> None:
    """Wait to lead, run `work` while leading, cancel it when leadership is lost, and start over.
    `on_leader` hears who holds the lease, "" for nobody.

    Returns when `work` does; its exceptions propagate. The lease is released at the end.
    """
    elector = LeaderElector(session, namespace, name, identity, duration_s, on_leader, release_s)
    try:
        while True:
            await elector.acquire()
            log.info("leading", lease=f"{namespace}/{name}", identity=identity)
            if await _work_while(elector.keep(), work):
                return
            log.warning("no longer leading", lease=f"{namespace}/{name}", identity=identity)
    finally:
        await elector.release()


async def _work_while(keeping: Awaitable[None], work: Callable[[], Awaitable[None]]) -> bool:
    """Whether the work ended before the lease was lost."""
    kept, working = asyncio.ensure_future(keeping), asyncio.ensure_future(work())
    try:
        await asyncio.wait((kept, working), return_when=asyncio.FIRST_COMPLETED)
        finished = working.done()
        (working if finished else kept).result()
        return finished
    finally:
        for task in (kept, working):
            task.cancel()
        await asyncio.gather(kept, working, return_exceptions=True)


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a lease's spec that are considered."""

    holder_identity: str | None = None
    lease_duration_seconds: _Count | None = None
    lease_transitions: _Count | None = None


def read_lease(body: bytes) -> Lease:
    """A Lease as it was sent, with a spec; raises ValueError if its fields are invalid."""
    try:
        lease = msgspec.json.decode(body, type=Lease)
        spec = msgspec.convert(lease.get("spec") or {}, Spec)
        msgspec.convert(spec, _Record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())) from error
    return lease | {"spec": spec}


class LeaseLook:
    """Whether somebody holds a lease, for a process that does not stand for election."""

    def __init__(self, session: Session, namespace: str, name: str, duration_s: float) -> None:
        self._session = session
        self._path = api_path(_API_VERSION, "leases", namespace=namespace, name=name)
        self._duration_s = duration_s
        self._seen: Spec = {}
        self._seen_at = 0.0

    async def is_held(self) -> bool:
        """Look. A lease that cannot be read is held by nobody that we could rely on."""
        now = asyncio.get_running_loop().time()
        try:
            spec = read_lease(await self._session.get(self._path))["spec"]
        except (ClusterError, ValueError):
            return False
        if spec != self._seen:
            self._seen, self._seen_at = spec, now
        return bool(spec.get("holderIdentity")) and now - self._seen_at < self._duration_s


class LeaderElector:
    """One replica's view of the lease: its spec as last seen, and when that changed by our clock.

    With a duration of 15 s a leader writes every 3 s, waits 5 s for the API server's response, and
    stops leading 10 s after its last success. It writes without reading first, and reads
    again only if somebody else has written.
    """

    def __init__(
        self,
        session: Session,
        namespace: str,
        name: str,
        identity: str,
        duration_s: float,
        on_leader: Callable[[str], None] = lambda _: None,
        release_s: float = RELEASE_S,
    ) -> None:
        self._release_s = release_s
        self._session = session
        self._on_leader = on_leader
        self._collection = api_path(_API_VERSION, "leases", namespace=namespace)
        self._path = api_path(_API_VERSION, "leases", namespace=namespace, name=name)
        self._metadata = {"name": name, "namespace": namespace}
        self._identity = identity
        self._duration_s = duration_s
        self._ours: Lease | None = None
        self._seen: Spec | None = None
        self._seen_at = 0.0
        self._warned = ""
        self._wrote = False
        """Whether we ever tried: the lease may be ours though no response came."""

    async def acquire(self) -> None:
        """Return once the lease is ours."""
        while not await self._try():
            await _pause(min(self._retry_s, LOOKS_S))

    async def keep(self) -> None:
        """Return once the lease is lost, or could not be renewed in time."""
        good_until = _now_s() + self._duration_s * 2 / 3
        while True:
            await _pause(self._retry_s)
            tried_at = _now_s()
            try:
                async with asyncio.timeout(max(0.0, good_until - tried_at)):
                    held = await self._try()
            except TimeoutError:
                return
            if held:
                good_until = tried_at + self._duration_s * 2 / 3
            elif self._seen is None or self._seen.get("holderIdentity") != self._identity:
                return

    async def release(self) -> None:
        """Let another replica take over at once, if the API server can be reached."""
        if not self._wrote:
            return
        try:
            async with asyncio.timeout(min(self._retry_s, self._release_s)):
                lease = await self._read()
                if lease["spec"].get("holderIdentity") == self._identity:
                    given_back = lease["spec"] | {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._session.replace(self._path, lease | {"spec": given_back})
        except NotFound:
            return
        except (ClusterError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            log.warning("lease not released; it will expire", lease=self._path, reason=reason)

    @property
    def _retry_s(self) -> float:
        return self._duration_s / 5

    @property
    def _timeout_s(self) -> float:
        """A slow response to a renewal still comes in time."""
        return self._duration_s / 3

    async def _try(self) -> bool:
        """Whether the lease is ours now; a failure is logged once, and counts as no."""
        try:
            held = await self._take()
        except Conflict:
            return False  # another replica wrote first; the next read shows who
        except ClusterError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                log.warning(
                    "cannot acquire or renew the lease", lease=self._path, reason=self._warned
                )
            return False
        self._warned = ""
        return held

    async def _take(self) -> bool:
        if self._ours is not None:
            try:
                await self._write(self._ours, self._ours["spec"])
            except (Conflict, NotFound):
                self._ours = None
            else:
                return True
        try:
            lease = await self._read()
        except NotFound:
            await self._write(None, {})
            return True
        spec = lease["spec"]
        self._observe(spec)
        if spec.get("holderIdentity") not in (self._identity, "", None) and not self._expired(spec):
            return False
        await self._write(lease, spec)
        return True

    async def _read(self) -> Lease:
        return self._valid(await self._session.get(self._path, timeout_s=self._timeout_s))

    def _valid(self, body: bytes) -> Lease:
        try:
            return read_lease(body)
        except ValueError as error:
            raise Unreachable(
                f"{self._session.server}{self._path} is not a valid Lease: {error}"
            ) from error

    async def _write(self, lease: Lease | None, old: Spec) -> None:
        """Make it ours; the API server refuses that if the lease changed since `lease`."""
        now = micro_time(datetime.now(UTC))
        spec = old | {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._duration_s)),
            "renewTime": now,
        }
        if old.get("holderIdentity") != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (old.get("leaseTransitions") or 0) + 1 if lease else 0
        body = {"apiVersion": _API_VERSION, "kind": "Lease"}
        self._wrote = True
        if lease is None:
            whole = body | {"metadata": self._metadata, "spec": spec}
            stored = await self._session.create(self._collection, whole, timeout_s=self._timeout_s)
        else:
            whole = lease | body | {"spec": spec}
            stored = await self._session.replace(self._path, whole, timeout_s=self._timeout_s)
        self._observe(spec)
        self._ours = self._valid(stored)

    def _observe(self, spec: Spec) -> None:
        if spec != self._seen:
            self._seen, self._seen_at = spec, _now_s()
            self._on_leader((spec.get("holderIdentity") or "")[:_LONGEST_NAME])

    def _expired(self, spec: Spec) -> bool:
        """Whether the lease was not renewed for as long as its holder allows."""
        duration_s = spec.get("leaseDurationSeconds") or self._duration_s
        return _now_s() - self._seen_at >= duration_s


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds * random.uniform(0.8, 1.2))  # noqa: S311 (jitter)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
