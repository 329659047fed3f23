"""One node or device as `fettle explain node` and `fettle explain device` show it: its health, each
piece of evidence, who uses it, and what has to happen for it to be Healthy again. Pure.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from fettle.api.own_group import NOTHING_KNOWN, DeviceHealthStatus, StoredSubject, name_of_pool
from fettle.cluster import View, whole_device
from fettle.explain.devices import list_unknown_signals, plain_device, plain_node, withheld_from
from fettle.explain.finding import find_device, find_node
from fettle.explain.marks import list_holds, plain_marks
from fettle.explain.pods import plain_health, plain_unit, without_repeats
from fettle.explain.users import Users, plain_users
from fettle.explain.wording import JSON_VERSION, plain_reason, with_former
from fettle.health import (
    BY_REBOOT,
    BY_RESOLUTION,
    HOLD_SOURCE,
    RECORD_SOURCE,
    Awaited,
    Recovery,
    name_of_held,
)
from fettle.model import (
    DeviceId,
    Evidence,
    EvidenceKind,
    Health,
    NodeId,
    PoolRef,
    ReporterId,
    Source,
    SourceKind,
    Standing,
    State,
    Subject,
    UnitId,
    reasons,
    utc,
)
from fettle.scheduling.plans import devices_by_state


class Recoveries(Protocol):
    """The inventory, as far as it says when something is Healthy again."""

    def recovery(self, node: str, resource: str, unit: str, now: float) -> Recovery: ...

    def recovery_of_device(self, device: DeviceId, now: float) -> Recovery: ...


SetAside = Sequence[reasons.RuleSetAside]


def explain_node(
    name: str, view: View, recoveries: Recoveries, now: float, set_aside: SetAside = ()
) -> dict[str, Any]:
    """A node, with all its resources and devices. Raises BadInput."""
    node = find_node(view, name)
    recovery = recoveries.recovery(node.name, "", "", now)
    about = msgspec.structs.replace(view, nodes={node.name: node})
    explained = {
        "version": JSON_VERSION,
        **plain_node(node, Users(view)),
        **_recovery(node.health, recovery, now),
        # How many of its devices are in each `state`.
        "devicesByState": {str(state): n for state, n in devices_by_state(node).items()},
        # Those on it; of a device also those on its node.
        "holds": _holds(view, NodeId(node.name)),
        **_past(_stored(view, node.name, NodeId(node.name))),
        "unknownSignals": list_unknown_signals(about),
        # What Fettle has [written on it](nodes.md), or `null`.
        "marks": plain_marks(node.marks),
        # The rules among its evidence that the [breaker](operating.md#the-breaker) set aside
        # somewhere.
        "setAside": _set_aside_of(node.health, set_aside),
    }
    return with_former(explained)


def explain_device(
    given: str, view: View, recoveries: Recoveries, now: float, set_aside: SetAside = ()
) -> dict[str, Any]:
    """A DRA device (`device`), or a unit of a device plugin (`resource` and `unit`). Raises
    BadInput."""
    found, users = find_device(view, given), Users(view)
    node, device, plugin, unit = found.node, found.device, found.plugin, found.unit
    about: dict[str, Any]
    subject: Subject
    if device is not None:
        subject, health, local = device.subject, device.health, bool(device.published.local)
        recovery = recoveries.recovery_of_device(device.subject, now)
        why = withheld_from(node, device)
        about = {"node": node.name if local else None, **plain_device(device, users, why)}
    else:
        assert plugin is not None
        assert unit is not None
        subject, health, local = UnitId(node.name, plugin.resource, unit.unit), unit.health, True
        recovery = recoveries.recovery(node.name, plugin.resource, unit.unit, now)
        about = {
            "node": node.name,
            "resource": plugin.resource,
            **plain_unit(unit, plugin),
            **plain_users(users.of_unit(node.name, plugin, unit)),
        }
        if unit not in plugin.units:
            about["about"] = "nothing is said of it, so it is as healthy as its node"
    return {
        "version": JSON_VERSION,
        "name": found.name,
        **about,
        **_recovery(health, recovery, now),
        "holds": _holds(view, subject, NodeId(node.name)),
        **_past(_stored(view, node.name, subject, local=local)),
        "setAside": _set_aside_of(health, set_aside),
    }


def _set_aside_of(health: Health, set_aside: SetAside) -> list[dict[str, Any]]:
    """The rules among its evidence that a breaker has set aside somewhere."""
    rules = {w.evidence.rule or w.evidence.source for w in health.evidence}
    return [plain_reason(one) for one in set_aside if one.rule in rules]


def _recovery(shown: Health, recovery: Recovery, now: float) -> dict[str, Any]:
    """Health as verdicts go by it, with what its evidence weighs now."""
    weights = {w.evidence: w.weight for w in recovery.health.evidence}
    plain = plain_health(shown)
    for one, weighed in zip(plain["evidence"], without_repeats(shown), strict=True):
        evidence = weighed.evidence
        one["weight"] = round(weights.get(evidence, weighed.weight), 4)
        fades = evidence.kind is EvidenceKind.DECAYING and evidence.source != RECORD_SOURCE
        one["halfLifeSeconds"] = evidence.half_life_s if fades else None
        one["ageSeconds"] = round(max(0.0, now - evidence.observed_at), 3)
    return {
        **plain,
        # What has to happen for it to be Healthy; `null` if it is.
        "healthyAgain": _healthy_again(shown, recovery, now),
    }


def _healthy_again(shown: Health, recovery: Recovery, now: float) -> dict[str, Any] | None:
    """What has to happen; None if it is Healthy."""
    if shown.shown_state is State.HEALTHY:
        return None
    # What ends it for the node ends it for the device too.
    of_node = {_who_turns(one) for one in recovery.awaited if _is_of_node(one)} - {None}
    found = [o for o in recovery.awaited if _is_of_node(o) or _who_turns(o) not in of_node]
    # One all-clear may end several pieces of evidence.
    by_text = {each["text"]: each for each in map(_awaited, reversed(found))}
    awaits = list(reversed(by_text.values()))
    return {
        # When, if nothing more is reported. With `awaits` it is the earliest time.
        "at": recovery.at,
        # What must be over first. Empty: time is enough.
        "awaits": awaits,
        "text": _sentence(recovery.at, [one["text"] for one in awaits], now),
    }


def _awaited(one: Awaited) -> dict[str, Any]:
    evidence = one.evidence
    return {
        # What has to happen.
        "text": all_clear_of(one),
        "evidence": evidence.text,
        "source": str(evidence.source),
        "reporter": str(evidence.reporter),
        "subject": str(evidence.subject),
    }


def _sentence(at: float, awaits: list[str], now: float) -> str:
    later = at > now + 1.0
    when = f"at about {_clock(at, now)}" if later else "at once"
    if not awaits:
        return f"Healthy again by itself {when}, if nothing more is reported"
    all_of = "all of this has happened" if len(awaits) > 1 else "this has happened"
    earliest = f", not before about {_clock(at, now)}" if later else ""
    return f"Healthy again when {all_of}{earliest}: {'; '.join(awaits)}"


def _clock(at: float, now: float) -> str:
    whole_minute = 60.0 * math.ceil(at / 60.0)
    form = "%H:%M UTC" if at - now < 86_400 / 2 else "%Y-%m-%d %H:%M UTC"
    return f"{utc(whole_minute):{form}}"


def _is_of_node(one: Awaited) -> bool:
    return isinstance(one.evidence.subject, NodeId)


def _who_turns(one: Awaited) -> tuple[Source, ReporterId] | None:
    """The condition that turns to another status, if that is the all-clear."""
    evidence = one.evidence
    turns = (
        evidence.source.kind is SourceKind.CONDITION
        and evidence.kind is not EvidenceKind.UNKNOWN
        and evidence.standing is not Standing.LATCHED
        and one.clear not in ("", BY_REBOOT)
    )
    return (evidence.source, evidence.reporter) if turns else None


def all_clear_of(one: Awaited) -> str:
    """What ends a piece of evidence that stands, in words."""
    evidence = one.evidence
    name = evidence.source.name
    if evidence.kind is EvidenceKind.UNKNOWN:
        return f"{evidence.reporter} reports again what is known ({evidence.source})"
    if evidence.standing is Standing.LATCHED:
        return _mended(evidence)
    if evidence.source == HOLD_SOURCE:
        return f"the hold ends{_release(evidence)}: {evidence.text}"
    match evidence.source.kind:
        case SourceKind.CONDITION:
            its = f"condition {name} of {evidence.reporter}"
            if one.clear == BY_REBOOT:
                return f"the node is rebooted: its monitor then removes {its}"
            if not one.clear:
                return f"{its} no longer says it"
            named = "" if _is_of_node(one) else ", or no longer names it"
            return f"{its} turns {one.clear}{named}"
        case SourceKind.TAINT:
            return f"taint {name} is removed ({evidence.reporter})"
        case SourceKind.ATTRIBUTE:
            return f"the driver publishes another {name} ({evidence.reporter})"
        case SourceKind.LABEL | SourceKind.ANNOTATION:
            return f"{evidence.reporter} no longer has it: {evidence.text}"
        case SourceKind.METRIC:
            if evidence.kind is EvidenceKind.LATCHED:
                return (
                    f"it is mended: the rule {name} sees that by its `until`, or the node is "
                    f"rebooted, or annotated with fettle.dev/repaired ({evidence.reporter})"
                )
            return f"the query of {name} no longer gives it ({evidence.reporter})"
        case SourceKind.ALERT:
            resolved = f"the alert is resolved ({evidence.reporter})"
            if evidence.kind is EvidenceKind.LEVEL or one.clear == BY_RESOLUTION:
                return resolved
            return (
                f"{resolved}, and it is said to be mended, since that also ends when the device is "
                "gone: annotate the node with fettle.dev/repaired, or reboot it if that mends it"
            )
        case SourceKind.ALLOCATABLE:
            return f"the device plugin offers all units again ({evidence.text})"
        case SourceKind.DEVICE_STATUS:
            return f"the kubelet calls it Healthy ({evidence.reporter})"
    return f"{evidence.reporter} no longer says it ({evidence.source})"


def _release(evidence: Evidence) -> str:
    """How to end a hold that a Node records."""
    node, subject = evidence.reporter, evidence.subject
    if node.kind != "Node":
        return ""
    where = node.name if isinstance(subject, NodeId) else f"{node.name}/{name_of_held(subject)}"
    return f" (`fettle release {where}`)"


def _mended(evidence: Evidence) -> str:
    """What ends what is latched and not reported any more."""
    said = "annotate the node with fettle.dev/repaired"
    if evidence.source.kind is SourceKind.METRIC:
        return (
            f"Prometheus, which is silent about it, gives its series again, and not for "
            f"{evidence.source.name} ({evidence.reporter}); if it was mended meanwhile, {said}"
        )
    return (
        f"it is said to be mended: nobody reports {evidence.source} any more, so {said}, or reboot "
        "it if that mends it"
    )


def _holds(view: View, *subjects: Subject) -> list[dict[str, Any]]:
    names = set(map(str, subjects))
    return [one for one in list_holds(view) if one["subject"] in names]


def _is_about(stored: Subject, subject: Subject) -> bool:
    """A view calls a unit by one of its names, and by the resource that it counts for."""
    if isinstance(stored, UnitId) and isinstance(subject, UnitId):
        return subject.unit in map(whole_device, stored.names)
    return stored == subject


class _Stored(NamedTuple):
    """What is stored of a subject, and of all that is stored beside it."""

    beside: DeviceHealthStatus
    own: StoredSubject | None


def _stored(view: View, node: str, subject: Subject, *, local: bool = True) -> _Stored:
    name = node
    if isinstance(subject, DeviceId) and not local:
        name = name_of_pool(PoolRef(subject.driver, subject.pool))
    status = view.device_healths[name].status if name in view.device_healths else NOTHING_KNOWN
    found = (one for one in status.subjects if _is_about(one.subject(node), subject))
    return _Stored(status, next(found, None))


def _past(stored: _Stored) -> dict[str, Any]:
    """When it was Degraded or Unhealthy in the last 28 days, and what happened to it, as far as
    that is stored."""
    beside, own = stored
    return {
        # When it was Degraded or Unhealthy in the last 28 days, as far as it is
        # [stored](devicehealth.md).
        "episodes": [
            {
                "state": str(one.state),
                "start": one.start.timestamp(),
                # `null`: still.
                "end": one.end.timestamp() if one.end is not None else None,
                # The lowest.
                "score": one.score,
                "text": one.message,
            }
            for one in (own.episodes if own is not None else ())
        ],
        # As far as it is stored: grave faults that were over, and the last reboot and
        # remediation of its node.
        "happened": [
            {"at": at.timestamp(), "what": what}
            for what, times in (
                ("a grave fault was over", own.faults if own is not None else ()),
                ("the node was rebooted", filter(None, (beside.rebooted,))),
                ("the node was remediated", filter(None, (beside.remediation,))),
            )
            for at in times
        ],
    }
