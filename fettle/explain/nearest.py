"""What the nearest device lacks, where no device of any node matches what a pod requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from fettle.api.resource import Device
from fettle.cluster import View
from fettle.dra import Claim
from fettle.model import reasons
from fettle.pacing import pause
from fettle.scheduling import Verdict

_MOST_REQUESTS, _MOST_KINDS, _MOST_OF_POOL = 4, 32, 16


class Inspector(Protocol):
    async def nearest(
        self, expressions: Iterable[str], devices: Sequence[tuple[str, Device]]
    ) -> str:
        """What the nearest of these devices lacks to meet all expressions; "" if not known."""


async def nearest_devices(
    claims: Iterable[Claim], verdicts: Mapping[str, Verdict], view: View, inspector: Inspector
) -> list[reasons.NearestDevice]:
    """For each request that no device of any node matches; of a pod with many, the first few."""
    unmatched = _unmatched(verdicts.values())
    asked = [
        (path, one.selectors)
        for claim in claims
        for one in claim.alternatives()
        if (path := f"{claim.name}/{one.name}") in unmatched and one.selectors
    ]
    if not asked:
        return []
    devices = [*_kinds(view)]
    found = []
    for path, selectors in asked[:_MOST_REQUESTS]:
        if lacks := await inspector.nearest(selectors, devices):
            found.append(reasons.NearestDevice(path, lacks))
    return found


def _unmatched(verdicts: Iterable[Verdict]) -> frozenset[str]:
    """The requests that are without a matching device on every node that has devices."""
    everywhere: frozenset[str] | None = None
    for one in verdicts:
        causes = [*_causes(one.rejected)]
        if any(isinstance(why, reasons.NoDevices) for why in causes):
            continue
        here = frozenset(
            path
            for why in causes
            if isinstance(why, reasons.NoDeviceMatches) and not why.in_use
            for path in why.requests
        )
        everywhere = here if everywhere is None else everywhere & here
        pause()
    return everywhere or frozenset()


def _causes(rejected: Iterable[reasons.Reason]) -> Iterator[reasons.Reason]:
    for why in rejected:
        yield from why.causes if isinstance(why, reasons.NoAllocation) else (why,)


def _kinds(view: View) -> Iterator[tuple[str, Device]]:
    """One device of each kind, by what it publishes under which names; the first few."""
    kinds: set[object] = set()
    for node in view.nodes.values():
        for pool in node.pools:
            for device in pool.devices[:_MOST_OF_POOL]:
                published = device.published.device
                of_kind = pool.driver, repr(published.capacity), tuple(published.attributes or ())
                if of_kind not in kinds:
                    kinds.add(of_kind)
                    yield pool.driver, published
        if len(kinds) >= _MOST_KINDS:
            return
        pause()
