"""What workloads name, where nothing was stamped on their pods: in mode `observe`, and of what came
while the webhook was away.

A pod's owners are asked for their metadata, one after the other, and the nearest that names a
policy counts. That is done once for all pods of a controller. Who creates a pod writes who its
owner is, but only objects of the pod's own namespace are asked for, and the UID has to be theirs.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from cachetools import LRUCache

from fettle.api import Finding, Inheritance, Put, api_path, core, read_in_slices
from fettle.api.kinds import PARTIAL, WireObject
from fettle.api.meta import ObjectMeta, OwnerReference
from fettle.client import METADATA_ONLY, Session
from fettle.cluster import Publisher
from fettle.dra import uses_devices
from fettle.logs import Logger
from fettle.model import (
    ANNOTATION,
    ANNOTATIONS,
    BadInput,
    ClusterError,
    Inherited,
    NotFound,
    NotServed,
    Unreachable,
)
from fettle.pacing import Backoff, keep

ASK_AGAIN_S = 600.0
"""What was found holds so long. After that the next pod of the controller has it asked for anew."""
MOST_LEVELS = 4
"""A pod of a TrainJob has three owners above it: Job, JobSet, TrainJob."""
MOST_KNOWN = 20_000
"""Controllers of which it is remembered when they were asked for."""
MOST_WAITING = 20_000
AT_ONCE = 8
"""How many are asked for at a time, where somebody waits for all."""
LEARNT_WITHIN_S = 0.1
"""How long an answer to the scheduler may wait for it. It takes a few milliseconds."""
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0

Kinds = Collection[tuple[str, str]]
"""(API group, kind) of workloads that pass their policy on."""

_LOG = Logger(__name__)


class WorkloadFeed:
    def __init__(
        self,
        session: Session,
        publisher: Publisher,
        find: Callable[[Finding], Awaitable[None]],
        kinds: Kinds,
        clock: Callable[[], float] = time.monotonic,
        learnt_within_s: float = LEARNT_WITHIN_S,
    ) -> None:
        """`clock` is in seconds and never goes back."""
        self._learnt_within_s = learnt_within_s
        self._session = session
        self._publisher = publisher
        self._find = find
        self._kinds = kinds
        self._clock = clock
        self._requested_at: LRUCache[str, float] = LRUCache(MOST_KNOWN)
        self._waiting: dict[str, core.Pod] = {}
        """By the identity of the controller: one of its pods. The first waits longest."""
        self._came = asyncio.Event()
        self._backoff = Backoff(_PAUSE_S, _LONGEST_PAUSE_S)
        self._silent_until = 0.0

    def observe(self, new: WireObject) -> None:
        """A pod as it is now."""
        if not isinstance(new, core.Pod) or not self._is_due(new) or not _is_unnamed(new):
            return
        if len(self._waiting) < MOST_WAITING:
            self._waiting.setdefault(new.metadata.controller_identity, new)
            self._came.set()

    def lacks(self, pod: core.Pod) -> bool:
        """Whether an answer about this pod should wait until its workload was asked for."""
        return (
            _is_unnamed(pod)
            and pod.metadata.controller_identity not in self._publisher.view.inherited
            and self._clock() >= self._silent_until
        )

    async def learn(self, pod: core.Pod) -> None:
        """Ask for the pod's workload, for a moment at most. The next view shows what it names."""
        try:
            async with asyncio.timeout(self._learnt_within_s):
                await self._ask(pod)
        except (ClusterError, TimeoutError):
            self._silent_until = self._clock() + _LONGEST_PAUSE_S
            self.observe(pod)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`: the workloads that cannot be read."""
        unknown = [one for one in self._publisher.view.inherited.values() if one.unknown]
        if not unknown:
            return []
        first = min(unknown, key=lambda one: one.owner)
        return [
            f"policies of workloads: {len(unknown)} cannot be read, such as that of "
            f"{first.owner}: {first.unknown}"
        ]

    async def run(self) -> None:
        """Ask for the workloads of all pods that need it, until cancelled."""
        await keep("workloads of pods", self._ask_next, when=self._came.wait)

    async def ask_all(self, within_s: float) -> int:
        """Ask once for the workloads of all pods that need it, some at a time; returns how many are
        left, for want of time or of an answer."""
        pods = iter([*self._waiting.values()])

        async def ask() -> None:
            for pod in pods:
                with suppress(ClusterError):
                    await self._ask(pod)

        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
        return len(self._waiting)

    async def _ask_next(self) -> None:
        while self._waiting:
            identity, pod = next(iter(self._waiting.items()))
            try:
                await self._ask(pod)
            except ClusterError as error:
                _LOG.info("a workload cannot be asked for now", reason=str(error))
                await asyncio.sleep(self._backoff.next_s())
                continue
            self._backoff.succeeded()
            self._waiting.pop(identity, None)
        self._came.clear()

    def _is_due(self, pod: core.Pod) -> bool:
        last = self._requested_at.get(pod.metadata.controller_identity)
        return last is None or self._clock() >= last + ASK_AGAIN_S

    async def _ask(self, pod: core.Pod) -> None:
        """Raises ClusterError while the API server gives no answer."""
        identity = pod.metadata.controller_identity
        found = await self._inherited(pod.metadata)
        self._requested_at[identity] = self._clock()
        self._waiting.pop(identity, None)
        await self._find(Inheritance(identity, found))

    async def _inherited(self, of: ObjectMeta) -> Inherited:
        namespace, owner = of.namespace, of.controller
        for _ in range(MOST_LEVELS):
            if owner is None or (_group(owner), owner.kind) not in self._kinds:
                break
            named = f"{owner.kind} {owner.name}"
            try:
                metadata = await self._metadata(owner, namespace)
            except (NotFound, NotServed, BadInput):
                break  # it is gone, or never was
            except Unreachable:
                raise
            except ClusterError as error:
                return Inherited(named, unknown=str(error))
            if metadata is None or metadata.uid != owner.uid:
                break
            given = metadata.annotations or {}
            if ANNOTATION in given:
                return Inherited(named, {key: given[key] for key in ANNOTATIONS if key in given})
            owner = metadata.controller
        return Inherited()

    async def _metadata(self, owner: OwnerReference, namespace: str) -> ObjectMeta | None:
        """Raises ClusterError, and BadInput if no object can have this name."""
        plural = plural_of(owner.kind)
        path = api_path(owner.api_version, plural, namespace=namespace, name=owner.name)
        raw = await self._session.get(path, accept=METADATA_ONLY)
        read = await read_in_slices(PARTIAL, raw)
        return read.object.metadata if isinstance(read, Put) else None


def _is_unnamed(pod: core.Pod) -> bool:
    """Whether a pod uses devices and has a controller, but names no policy."""
    metadata = pod.metadata
    return (
        pod.annotation(ANNOTATION) is None and metadata.controller is not None and uses_devices(pod)
    )


def _group(owner: OwnerReference) -> str:
    return owner.api_version.rpartition("/")[0]


def plural_of(kind: str) -> str:
    """The name of a kind in URL paths, as Kubernetes guesses it (`meta.UnsafeGuessKindToResource`);
    right for all kinds that Kubernetes itself and its controllers of workloads have."""
    singular = kind.lower()
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"
