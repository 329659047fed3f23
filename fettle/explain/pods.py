"""Verdicts, policies and health as plain data for people. Pure.

The dictionaries are what `/explain` and `/policy` answer and what the command line prints.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fettle.cluster import NodeView, PluginView, UnitView, View
from fettle.dra import ALL
from fettle.explain.marks import list_holds
from fettle.explain.notes import is_cordoned, notes_about
from fettle.explain.users import Users
from fettle.explain.wording import JSON_VERSION, plain_reason, texts, with_former
from fettle.health import STARTS
from fettle.model import (
    Health,
    Mode,
    NodeId,
    OnDeviceFailure,
    Resolved,
    State,
    Weighed,
    reasons,
    utc,
)
from fettle.model.reasons import Reason, describe_kept
from fettle.pacing import pause
from fettle.scheduling import (
    EXTENDED_RESOURCES,
    NEUTRAL,
    Choice,
    Demand,
    Leaning,
    Verdict,
    avoiding,
    count_taken,
    lacking_units,
)
from fettle.scheduling.placed import FinishedPod
from fettle.scheduling.plans import Exclusion


def plain_health(value: Health) -> dict[str, Any]:
    """A score with the evidence that explains it; times are in Unix seconds.

    Refusals go by `proven`, and so do states, but for one that is only `suspected`. Evidence with a
    `reportingNamespace`, the tenant who reported it, lowers only `score`.
    """
    return {
        # As people are told.
        "score": round(value.score, 4),
        # The score that refusals and states go by.
        "proven": round(value.proven, 4),
        # As people are told.
        "state": str(value.shown_state),
        # How many namespaces' word alone makes a `state` Degraded that refuses nobody; else 0.
        "suspected": value.suspected,
        # Since when it has that state.
        "since": value.since,
        # Whether an operator holds it.
        "held": value.held,
        # Why the state is worse than the score alone would make it, in words, or `null`.
        "kept": _kept(value),
        # What speaks against it. Of one node or device each also has `ageSeconds`, and
        # `halfLifeSeconds` if it fades (else `null`, also of the [record of 28
        # days](scores.md#probation)).
        "evidence": [
            {
                "text": w.evidence.text,
                "family": str(w.evidence.family),
                "kind": str(w.evidence.kind),
                # Of one node or device what it weighs now.
                "weight": round(w.weight, 4),
                "source": str(w.evidence.source),
                "reporter": str(w.evidence.reporter),
                # Whose word it is, if a tenant could cause it (it lowers only the `score`); else
                # `null`.
                "reportingNamespace": (namespace := w.evidence.reporting_namespace) or None,
                # Formerly, with `namespace ` before it.
                "witness": f"namespace {namespace}" if namespace else None,  # until version 2
                "subject": str(w.evidence.subject),
                "observedAt": w.evidence.observed_at,
            }
            for w in without_repeats(value)
        ],
    }


def without_repeats(value: Health) -> tuple[Weighed, ...]:
    """Its evidence. What starts that failed say of a device they say of its node, too: it counts
    once, so it is told once."""
    starts = [w for w in value.evidence if w.evidence.reporter.kind == STARTS]
    about_node = [w for w in starts if isinstance(w.evidence.subject, NodeId)]
    told = {(w.evidence.reporter, w.evidence.source) for w in starts if w not in about_node}
    twice = [w for w in about_node if (w.evidence.reporter, w.evidence.source) in told]
    return tuple(w for w in value.evidence if w not in twice)


MOST_TOLD, _LEAST_TOLD, _MOST_IN_ALL = 16, 3, 50_000
"""Reasons of a kind that are told of a node, of one among very many nodes, and of all nodes. A pod
may request thousands of resources that no node has."""
_DAY_S, _YEAR_9999 = 86_400.0, 253_370_764_800.0


def _kept(value: Health) -> str | None:
    """Why a state is worse than its score alone would make it, in words; None if it is not."""
    if value.kept is None:
        return None
    words, until = describe_kept(value.kept), value.kept.until
    if not value.since <= until <= _YEAR_9999:
        return words
    whole_minute = 60.0 * math.ceil(until / 60.0)
    form = "%H:%M" if until - value.since <= _DAY_S else "%Y-%m-%d %H:%M"
    return f"{words} until {utc(whole_minute):{form}} UTC"


def plain_demand(value: Demand) -> dict[str, Any]:
    """What a pod asks for."""
    return {
        # How many, by extended resource.
        "units": {u.resource: u.count for u in value.units},
        "requests": [
            {
                "name": f"{claim.name}/{alternative.name}",
                "deviceClass": alternative.class_name,
                "count": "All" if alternative.mode == ALL else alternative.count,
            }
            for claim in value.claims
            for alternative in claim.alternatives()
        ],
        # Devices that its claims hold.
        "allocated": [str(held.device) for bound in value.bound for held in bound.held],
        # Why part of it is not known.
        "unsettled": texts(value.unsettled),
    }


def plain_verdict(value: Verdict, most: int = MOST_TOLD) -> dict[str, Any]:
    """One node's answer with its reasons, at most so many of a kind.

    `fits`: neither Fettle nor the scheduler's own checks keep the pod off the node. `allowed`:
    Fettle does not refuse it, though the scheduler's own checks may (`rejected`).
    """
    everything = {
        # Why Fettle refuses the node.
        "refusals": value.refusals,
        # What would be refusals, but for causes that the breaker set aside: the last choice of
        # pods that have waited.
        "overruled": value.overruled,
        # What would be refusals, had the pod not waited as long as its policy lets it; the node is
        # its last choice.
        "conceded": value.conceded,
        # Why the scheduler's own checks do not place the pod there.
        "rejected": value.rejected,
        # What Fettle cannot tell; it allows the node.
        "undecided": value.undecided,
        # What else there is to know.
        "notes": value.notes,
    }
    found = {part: _first(reasons, most) for part, reasons in everything.items()}
    return {
        # Neither Fettle nor the scheduler's own checks keep the pod off the node.
        "fits": value.can_be_placed,
        # Fettle does not refuse it.
        "allowed": value.fits,
        # As the scheduler is told it.
        "score": value.score,
        "value": value.value,
        **{part: texts(reasons) for part, reasons in found.items()},
        # [Reasons](#reasons) beside the texts of each list, in the same order.
        "reasons": {
            part: [plain_reason(one) for one in reasons] for part, reasons in found.items()
        },
        # What the pod would get there, each with its [health](#health).
        "devices": [_plain_choice(c) for c in value.devices],
    }


def _first(found: Sequence[Reason], most: int) -> Sequence[Reason]:
    if len(found) <= most:
        return found
    return (*found[:most], reasons.FurtherReasons(len(found) - most))


def _plain_choice(choice: Choice) -> dict[str, Any]:
    """A device that the pod would get; `request` is claim/request without the alternative."""
    claim, request, alternative = (*choice.request.split("/"), "", "")[:3]
    return {
        # `claim/request`, or the claim that holds it.
        "request": f"{claim}/{request}" if request else claim,
        # Which one of `firstAvailable`.
        "alternative": alternative or None,
        "device": str(choice.device),
        # Taints of it that the pod tolerates.
        "tolerated": [str(taint) for taint in choice.tolerated],
        "adminAccess": choice.admin_access,
        **plain_health(choice.health),
    }


def explain_pod(
    key: str,
    resolved: Resolved,
    demand: Demand | None,
    verdicts: dict[str, Verdict],
    view: View,
    notes: Sequence[Reason] = (),
    finished: FinishedPod | None = None,
    avoided: Mapping[str, Reason] | None = None,
    leaning: Leaning = NEUTRAL,
    excluded: Callable[[NodeView], Exclusion | None] = lambda _: None,
) -> dict[str, Any]:
    """A pod's policy and its origin, its demand, and each node's answer.

    A node's answer is its verdict, its own health, and the noteworthy units that the pod may get.
    `notes` are further notes about the pod as a whole, and come first. `finished` is what is known
    if it has ended; `avoided` are nodes that its owner's pods avoid, and its scores differ by
    `leaning`. `excluded` says what of the pod's own manifest keeps it off a node.
    """
    placement = resolved.policy.placement
    resources = [units.resource for units in demand.units] if demand is not None else []
    taken = count_taken(view.pods.values()) if resources else {}
    names = _names_of_requests(demand) if demand is not None else {}
    answers: dict[str, Verdict] = {}
    users: Users | None = None
    for name, answer in sorted(verdicts.items()):
        if (node := view.nodes.get(name)) is not None:
            why = tuple(lacking_units(demand, node, taken)) if demand is not None else ()
            if any(node.plugins[lacking.resource].withdrawn for lacking in why):
                users = users or Users(view)
                held = tuple(_withdrawn_and_held(why, node, users))
                answer = msgspec.structs.replace(answer, notes=(*held, *answer.notes))
            answers[name] = _completed(answer, why, node)
        pause()
    answers = leaning.explained(avoiding(answers, avoided or {}))
    nodes: dict[str, Any] = {}
    most = min(MOST_TOLD, max(_LEAST_TOLD, _MOST_IN_ALL // max(1, len(answers))))
    for name, answer in answers.items():
        node = view.nodes[name]
        nodes[name] = {
            **_by_former_names(_with_names(plain_verdict(answer, most), names)),
            # Its own [health](#health).
            "health": plain_health(node.health),
            # Noteworthy units that the pod may get, as of [`devices`](#devices).
            "units": list(_units(node, resources)),
            # What of the pod's own manifest keeps it off, or `null`: `by` (`nodeSelector`,
            # `nodeAffinity`, `taint`, `cordon`, `notReady`) and a `detail`. `fits` and `allowed`
            # do not heed it.
            "excluded": _plain_exclusion(excluded(node)),
        }
        pause()
    about = [*notes, *notes_about(view.pods.get(key), demand, view, answers, finished)]
    explained = {
        "version": JSON_VERSION,
        "pod": key,
        # The policy that applies, with these values of its [`placement`](policy-fields.md#spec).
        "policy": {
            "name": resolved.policy.name,
            # Who chose it.
            "origin": resolved.origin,
            **_mode(resolved),
            "minScore": placement.min_score,
            "degraded": str(placement.degraded),
            "aggregate": str(placement.aggregate),
            "maxRisk": placement.risk_bound,
            "patience": placement.patience,
            "gangPatience": placement.gang_patience,
            "gangDegraded": placement.gang_degraded,
            "expectedRuntime": placement.expected_runtime,
            "newDriver": str(placement.new_driver),
            "previousNode": str(placement.previous_node),
            "warnings": list(resolved.warnings),
        },
        # What the pod demands; `null` if it needs no devices.
        "demand": plain_demand(demand) if demand is not None else None,
        # What else there is to know, as texts.
        "notes": texts(about),
        "reasons": {"notes": [plain_reason(note) for note in about]},
        # As of [`devices`](#devices).
        "holds": list_holds(view) if demand is not None else [],
        # By the name of the node.
        "nodes": nodes,
    }
    return with_former(explained)


def _plain_exclusion(why: Exclusion | None) -> dict[str, str] | None:
    return {"by": str(why.by), "detail": why.detail} if why is not None else None


def _by_former_names(answer: dict[str, Any]) -> dict[str, Any]:
    return with_former({**answer, "reasons": with_former(answer["reasons"])})


def _mode(resolved: Resolved) -> dict[str, str]:
    """How far Fettle may go, and who says so."""
    return {"mode": str(resolved.mode.mode), "modeOrigin": resolved.mode.origin}


def _names_of_requests(demand: Demand) -> dict[str, str]:
    """What people call the requests and the claim that the scheduler makes for extended resources.

    The keys are the scheduler's names, longer ones first, so that these are replaced first.
    """
    names = {
        f"{EXTENDED_RESOURCES}/{request.name}": units.resource
        if len(units.backing) == 1
        else f"{units.resource} ({request.name})"
        for units in demand.units
        for request in units.backing
    }
    ordered = dict(sorted(names.items(), key=lambda item: -len(item[0])))
    made = {f"claim {EXTENDED_RESOURCES}": "the claim for its extended resources"}
    return {**ordered, **made} if names else {}


def _with_names(answer: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """A node's answer with `names` replaced; `resource` is what a device would be for."""
    if not names:
        return answer
    for part in ("refusals", "overruled", "conceded", "rejected", "undecided", "notes", "reasons"):
        answer[part] = _renamed(answer[part], names)
    for choice in answer["devices"]:
        if choice["request"] in names:
            choice["resource"] = names[choice["request"]].partition(" ")[0]
    return answer


def _renamed(value: Any, names: dict[str, str]) -> Any:
    match value:
        case str():
            for scheduler, people in names.items():
                value = value.replace(scheduler, people)
            return value
        case list():
            return [_renamed(each, names) for each in value]
        case dict():
            return {key: _renamed(each, names) for key, each in value.items()}
    return value


def _withdrawn_and_held(
    lacking: Iterable[reasons.UnitsTaken], node: NodeView, users: Users
) -> Iterator[reasons.WithdrawnUnitHeld]:
    """Notes about withdrawn units that pods still hold, where units are lacking."""
    for one in lacking:
        plugin = node.plugins[one.resource]
        for unit in plugin.units:
            held = users.of_unit(node.name, plugin, unit)
            if unit.withdrawn and held.in_use:
                pods = held.certain or held.possible
                yield reasons.WithdrawnUnitHeld(
                    one.resource, unit.unit, pods, certain=bool(held.certain)
                )


def _completed(answer: Verdict, why: tuple[Reason, ...], node: NodeView) -> Verdict:
    """The verdict with what the scheduler's own checks find: too few free units, and a cordon."""
    # What is missing may be in the object that cannot be read.
    part = "undecided" if node.quarantined else "rejected"
    notes = (reasons.NodeCordoned(),) if is_cordoned(node) else ()
    changes = {part: (*getattr(answer, part), *why), "notes": (*answer.notes, *notes)}
    return msgspec.structs.replace(answer, **changes) if why or notes else answer


def _units(node: NodeView, resources: Sequence[str]) -> Iterator[dict[str, Any]]:
    for plugin in filter(None, map(node.plugins.get, resources)):
        for one in plugin.units:
            if is_noteworthy(one.health):
                yield {"resource": plugin.resource, **plain_unit(one, plugin)}


def is_noteworthy(value: Health) -> bool:
    """Whether it has evidence, or a state that is not Healthy, which may outlive all evidence."""
    return bool(value.evidence) or value.state is not State.HEALTHY


def plain_unit(one: UnitView, plugin: PluginView) -> dict[str, Any]:
    """A named unit, which may be several units of the resource.

    `count` is how many; no pod gets the `withdrawn` ones of them. `allocated`: live pods are known
    to hold some. `about` says what is special about it.
    """
    return {
        "unit": one.unit,
        # How many units of the resource it is.
        "count": one.count,
        # How many of them no pod gets.
        "withdrawn": one.withdrawn,
        # Whether `use` is `certain`.
        "allocated": one.allocated > 0,
        # What is special about it, in words.
        "about": _about(one, plugin),
        **plain_health(one.health),
    }


def _about(one: UnitView, plugin: PluginView) -> str:
    """What is special about a unit, in words; "" if nothing is."""
    how = "withdrawn" if plugin.counts_withdrawn else "no longer offered"
    withdrawn = f"{how} by the device plugin" if one.withdrawn else ""
    if one.alternatives:
        units = "1 unit" if one.count == 1 else f"{one.count} units"
        return f"counts as {units}, it may be of {' or '.join(one.alternatives)} instead"
    if one.count == 1 or (one.withdrawn and not one.left):
        return withdrawn
    return f"{one.count} units" + (f", {one.withdrawn} of them {withdrawn}" if withdrawn else "")


class Stewardship(NamedTuple):
    """What the settings of this process say of what a steward does.

    `allowed`: what may be done about pods on failed devices. `dry_run`: nothing is written. These
    count only if the process `is_steward`: others may have other settings than the steward.
    """

    allowed: str | None = None
    dry_run: bool = False
    is_steward: bool = True


_BY_DEFAULT = Stewardship()


def explain_policy(
    resolved: Resolved,
    ignored: Sequence[str] = (),
    stewardship: Stewardship = _BY_DEFAULT,
) -> dict[str, Any]:
    """A policy, who chose it, and the source of each of its values; `ignored` are sentences about
    parts of it that have no effect."""
    defined = f"{resolved.policy.name} ({resolved.source})"
    sections = msgspec.to_builtins(resolved.policy)
    del sections["name"], sections["mode"]
    return {
        "name": resolved.policy.name,
        # Who chose it.
        "origin": resolved.origin,
        **_mode(resolved),
        # Where it is defined.
        "source": str(resolved.source),
        "warnings": [*resolved.warnings, *ignored],
        # Each value of it.
        "values": [
            {
                "field": "mode",
                "value": str(resolved.mode.mode),
                # Where that value comes from.
                "from": resolved.mode.origin,
                # What to know about it, such as that it has no effect.
                "note": "",
            },
            *(
                {
                    "field": f"{section}.{field}",
                    "value": value,
                    "from": _source(resolved.overridden.get(f"{section}.{field}"), defined),
                    "note": _note(f"{section}.{field}", value, resolved, stewardship),
                }
                for section, values in sections.items()
                for field, value in values.items()
            ),
        ],
    }


def _note(field: str, value: object, resolved: Resolved, stewardship: Stewardship) -> str | None:
    """What to know about a value of a policy."""
    if field == "failure.startDeadline" and value is not None:
        if stewardship.allowed == OnDeviceFailure.MARK:
            return "has no effect: the setting deviceFailures.allow is Mark"
        value = OnDeviceFailure.EVICT
    elif field != "failure.onDeviceFailure" or value == OnDeviceFailure.NONE:
        return None
    if stewardship.is_steward:
        return _prevented(value, resolved, stewardship)
    prevented = _prevented(value, resolved, stewardship) or "has effect"
    return f"{prevented}; so say this process's settings, but the steward goes by its own"


def _prevented(value: object, resolved: Resolved, stewardship: Stewardship) -> str | None:
    allowed, dry_run, _ = stewardship
    if allowed is None:
        return "has no effect: the setting deviceFailures.allow is not set"
    if dry_run:
        return "nothing is written: the setting steward.dryRun is set"
    if resolved.mode.mode is not Mode.ENFORCE:
        return f"nothing is written in mode {resolved.mode.mode}"
    if value == allowed or allowed == OnDeviceFailure.EVICT:
        return None
    return "pods are only marked: the setting deviceFailures.allow is Mark"


def _source(annotation: str | None, defined: str) -> str:
    return f"annotation {annotation}" if annotation is not None else defined
