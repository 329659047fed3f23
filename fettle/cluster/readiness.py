"""Whether what Fettle knows is complete and fresh enough to refuse anything on it."""

import time
from collections.abc import Callable, Iterable, Mapping

from fettle.api import kinds
from fettle.api.meta import unix_s
from fettle.cluster.view import Publisher, SourceStatus
from fettle.health import CLOCKS_APART_S
from fettle.pacing import pause

UNSEEN: Mapping[str, str] = {
    kinds.DEVICE_HEALTH.name: "how long states have lasted, and what is over, is not seen",
    kinds.NODE.name: "no node is seen, and no device of a device plugin",
    kinds.NAMESPACE.name: "policies and modes that namespaces name are not seen",
    kinds.POLICY.name: "only the built-in policies count",
    kinds.CLASS.name: "which devices claims ask for is not seen",
    kinds.SLICE.name: "no DRA device is seen",
    kinds.TAINT_RULE.name: "taints of DRA devices by rules are not seen",
    kinds.TEMPLATE.name: "what pods claim by templates is not seen",
    kinds.CLAIM.name: "who uses which DRA device is not seen",
    kinds.POD.name: "who uses which device is not seen, nor which pods failed on one",
    **{one.name: "faults that only Events tell of are not seen" for one in kinds.EVENTS},
}
"""By kind: what is not seen without its objects."""


def unseen(sources: Iterable[SourceStatus]) -> list[str]:
    """What is not seen, and why, of a cluster that does not serve some kinds, or not to us."""
    lacking = (one for one in sources if not one.served and one.note)
    return [f"{one.note}: {UNSEEN[one.name]}" for one in lacking if one.name in UNSEEN]


def problems(
    sources: Iterable[SourceStatus], now: float, silent_after_s: float, *, notes: bool = True
) -> list[str]:
    """One sentence for each source that keeps Fettle from being ready; empty if it is ready.

    `now` is `time.monotonic`, as in `SourceStatus.contact_at`. A quiet source (bookmarks, no
    events) is ready, a silent one is not. Without `notes`, which change between retries, the
    sentences are stable enough for a pod's condition.
    """
    found = []
    for source in sources:
        if not source.needed:
            continue
        note = f": {source.note}" if notes and source.note else ""
        if not source.synced:
            found.append(f"{source.name} is not synced{note}")
        elif source.served and now - source.contact_at > silent_after_s:
            found.append(f"{source.name} has been silent for more than {silent_after_s:g} s{note}")
    return found


def report(sources: Iterable[SourceStatus], now: float) -> list[str]:
    """One line for each source, for `/readyz?verbose`."""
    lines = []
    for source in sources:
        if not source.served:
            state = f"not served by this cluster ({source.note})" if source.note else "not served"
        elif not source.synced:
            state = f"not synced {source.note}".rstrip()
        else:
            state = f"synced, last contact {now - source.contact_at:.1f} s ago"
            state += f"; lost: {source.note}" if source.note else ""
        lines.append(f"{source.name}: {state}")
    return lines


def memory_notes(publisher: Publisher, clock: Callable[[], float] = time.time) -> list[str]:
    """Why a restart would forget, or what is stored is not believed, for `/readyz?verbose`."""
    source = publisher.sources.get(kinds.DEVICE_HEALTH.name)
    if source is None or not publisher.view.synced:
        return []
    forgets = "a restart forgets how long states have lasted and what is no longer reported"
    if not source.served:
        return [f"memory: {source.note}; {forgets}: apply deploy/crds"]
    if not source.synced:
        return [f"memory: DeviceHealth cannot be read, so {forgets}: {source.note}"]
    if not publisher.view.device_healths:
        return [f"memory: no steward has written a DeviceHealth yet, so {forgets}"]
    if ahead_s := dated_ahead_s(publisher, clock()):
        return [
            f"memory: what another replica stored is dated {round(ahead_s, -1):.0f} s ahead of our "
            "clock, so it counts for nothing, and this process asks for metrics itself: set the "
            "clocks of the nodes right"
        ]
    return []


def dated_ahead_s(publisher: Publisher, now: float) -> float:
    """By how much the newest DeviceHealth is dated ahead of our clock; 0 where it is believed."""
    newest = 0.0
    for stored in publisher.view.device_healths.values():
        pause()
        newest = max(newest, unix_s(stored.status.observed_time, 0.0))
    return newest - now if newest > now + CLOCKS_APART_S else 0.0
