"""Which DRA devices should have a taint of Fettle's, by their health. Pure.

A taint keeps the allocator itself off a device, so it is for what is wrong with the device alone.
What is wrong with a whole node, the extender refuses there. Stands between health and what the
steward writes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from math import inf
from operator import attrgetter
from typing import NamedTuple

import msgspec

from fettle.api import kinds
from fettle.api.resource import DeviceTaint
from fettle.cluster import View
from fettle.config import DeviceTaintSettings
from fettle.dra import DeviceView
from fettle.model import (
    ASSESSED,
    DEGRADED_TAINT,
    HOLD,
    SOUND,
    UNHEALTHY_TAINT,
    DeviceId,
    Health,
    State,
    TaintLike,
)
from fettle.pacing import pause, run_within
from fettle.scheduling.answers import Answers, accepted_by_state, devices_counted
from fettle.scheduling.judge.acceptance import Acceptance

NONE, NO_SCHEDULE = "None", "NoSchedule"
_STRENGTH = {NONE: 0, NO_SCHEDULE: 1, "NoExecute": 2}
_KEYS = {State.UNHEALTHY: UNHEALTHY_TAINT, State.DEGRADED: DEGRADED_TAINT}


class PlannedTaint(NamedTuple):
    """A taint that a device should have now. `health`: what is wrong with it; `confirmed_at`: from
    when that counts as confirmed, in Unix seconds; `strongest`: the effect that is wanted then.
    `node`: the one that has the device; "" if it is of no single node."""

    device: DeviceId
    taint: DeviceTaint
    health: Health
    confirmed_at: float
    strongest: str = NONE
    node: str = ""


class TaintPlan(NamedTuple):
    """`taints` are by device. `over_share`: by driver, how many more devices are as bad, and get
    none, since the share would be too large. `due`: before this time (Unix seconds), time alone
    changes nothing. `unproven`: how many would have a stronger effect if claims got their fallback.
    """

    taints: Mapping[DeviceId, PlannedTaint]
    over_share: Mapping[str, int] = {}
    due: float = inf
    unproven: int = 0


def is_assessed(taint: TaintLike) -> bool:
    """Whether it is one of these taints, set by Fettle."""
    return taint.value == ASSESSED and taint.key in _KEYS.values()


def why_in_vain(answers: Answers) -> str:
    """Why the scheduler would obey no DeviceTaintRule, in words; "" if it would."""
    if not answers.view.served.get(kinds.TAINT_RULE.name, False):
        return "this cluster serves no DeviceTaintRules"
    if not answers.profile.features.device_taint_rules:
        return (
            "the scheduler ignores DeviceTaintRules, since its feature gate DRADeviceTaintRules is "
            "off (if it is on, say so in scheduler.featureGates)"
        )
    return ""


def as_if_on(settings: DeviceTaintSettings) -> DeviceTaintSettings:
    """The settings with NoSchedule where they say nothing."""
    return msgspec.structs.replace(
        settings,
        unhealthy=settings.unhealthy or NO_SCHEDULE,
        degraded=settings.degraded or NO_SCHEDULE,
    )


async def plan_for(
    answers: Answers, settings: DeviceTaintSettings, now: float, *, steers: bool
) -> TaintPlan | None:
    """The plan for the newest view; None while its devices are not counted yet. `steers`: the
    webhook gives claims their fallback."""
    view = answers.view
    accepted = accepted_by_state(answers)
    if accepted is None:
        return None

    def most(driver: str) -> int | None:
        devices = devices_counted(answers, driver)
        return None if devices is None else int(devices * settings.max_share)

    return await run_within(
        lambda: plan_taints(unsound(view), accepted, settings, now, most, steers=steers)
    )


def unsound(view: View) -> Iterator[DeviceView]:
    for node in view.nodes.values():
        for pool in node.pools:
            for device in chain(pool.devices, pool.withheld):
                # By names that may mean another node's device, that one would be tainted.
                if device.health is not SOUND and not device.ambiguous:
                    yield device
        pause()


def plan_taints(
    devices: Iterable[DeviceView],
    accepted: Mapping[State, Acceptance],
    settings: DeviceTaintSettings,
    now: float,
    most: Callable[[str], int | None] = lambda _: None,
    *,
    steers: bool,
) -> TaintPlan:
    """`accepted` knows, for each state, what is set aside for those that refuse it. `most`: how
    many devices of a driver may have a taint; None: all."""
    by_driver: dict[str, dict[DeviceId, _Candidate]] = defaultdict(dict)
    for device in devices:
        if (found := _candidate(device, accepted, settings)) is not None:
            # A network device is seen from several nodes.
            by_driver[device.id.driver].setdefault(device.id, found)
    taints: dict[DeviceId, PlannedTaint] = {}
    over_share: dict[str, int] = {}
    due, unproven = inf, 0
    for driver, candidates in by_driver.items():
        limit = most(driver)
        for one in islice(sorted(candidates.values(), key=attrgetter("rank")), limit):
            confirmed_at = one.health.since + settings.confirm_seconds
            effect = one.strongest
            if one.kept is not None:
                effect = one.kept
            elif now < confirmed_at:
                effect, due = NONE, min(due, confirmed_at)
            elif one.key == DEGRADED_TAINT and effect != NONE and not steers:
                effect, unproven = NONE, unproven + 1
            if not _is_tainted_already(one.device, effect):
                taint = DeviceTaint(key=one.key, value=ASSESSED, effect=effect)
                node = one.device.published.local
                taints[one.device.id] = PlannedTaint(
                    one.device.id, taint, one.health, confirmed_at, one.strongest, node
                )
            pause()
        if limit is not None and len(candidates) > limit:
            over_share[driver] = len(candidates) - limit
    return TaintPlan(taints, over_share, due, unproven)


class _Candidate(NamedTuple):
    """A device that is bad enough. `rank`: which ones get a taint first. `kept`: the effect of its
    taint, if it would get none now, since a breaker sets aside why."""

    device: DeviceView
    key: str
    strongest: str
    health: Health
    kept: str | None = None

    @property
    def rank(self) -> tuple[bool, bool, float, DeviceId]:
        # Among equals those that have one, so that taints do not move from device to device.
        is_new = not any(map(is_assessed, self.device.taints))
        return self.key == DEGRADED_TAINT, is_new, self.health.since, self.device.id


def _candidate(
    device: DeviceView, accepted: Mapping[State, Acceptance], settings: DeviceTaintSettings
) -> _Candidate | None:
    said = accepted[State.UNHEALTHY].own(device.health)
    strongest: str | None = {
        State.UNHEALTHY: settings.unhealthy,
        State.DEGRADED: settings.degraded,
    }.get(said.state)
    if strongest is None:
        return None
    kept = None
    if accepted[said.state].own_fault(device.id, device.health).state is not said.state:
        # By what is set aside no taint is begun, and none is taken away.
        ours = (taint.effect for taint in device.taints if taint.key == _KEYS[said.state])
        if (kept := next(ours, None)) is None:
            return None
    # By a part of the evidence alone it is not known since when, but surely no longer than by all.
    health = msgspec.structs.replace(said, since=device.health.since)
    return _Candidate(device, _KEYS[said.state], strongest, health, kept)


def _is_tainted_already(device: DeviceView, effect: str) -> bool:
    """Whether somebody else, such as the driver, taints the device at least so strongly. A taint
    that only informs stays beside theirs, or it would come and go with a fault that does."""
    if effect == NONE and any(map(is_assessed, device.taints)):
        return False
    return any(
        _STRENGTH.get(taint.effect, -1) >= _STRENGTH[effect]
        for taint in device.taints
        if not is_assessed(taint) and taint.key != HOLD
    )
