"""Pods that have a node as plain data for people: what they hold, and what their policy says of it.

The dictionaries are what `/pods` answers, and `placed` of `/explain`. Pure.
"""

from collections.abc import Iterator
from math import isinf
from typing import Any

from fettle.api import core
from fettle.dra import device_units
from fettle.explain.pods import plain_health
from fettle.explain.users import CERTAIN, POSSIBLE
from fettle.explain.wording import plain_reason, text
from fettle.model.reasons import Reason
from fettle.scheduling import EXTENDED_RESOURCES, bound_at
from fettle.scheduling.placed import PlacedPod, is_certain


def plain_placed(placed: PlacedPod) -> dict[str, Any]:
    """A pod that has a node; times are in Unix seconds.

    `refusals` are why its policy refuses where it is, `conceded` those that it took as its last
    choice. No breaker sets any aside.
    `devices` are what it holds (`use` is certain) or may hold. `units` counts what it was given of
    each extended resource. `use` of the pod is that of the gravest refusal, None if there is none.
    """
    verdict = placed.verdict
    found = {
        # With `conceded`, `undecided` and `reasons` as of a verdict; each reason also has its
        # `use`.
        "refusals": verdict.refusals,
        "conceded": verdict.conceded,
        "undecided": verdict.undecided,
    }
    return {
        "pod": placed.key,
        # `kind` and `name` of the object that made it, or `null`.
        "owner": _owner(placed.pod),
        "node": placed.pod.node_name,
        # `Running` or `Pending`, as in its status, or `Terminating`.
        "phase": _phase(placed.pod),
        "policy": placed.policy.name,
        # When it got its node; `null` if nobody says.
        "boundAt": bound_at(placed.pod) or None,
        # When somebody asked to delete it; `null` if nobody has.
        "deletedAt": None
        if isinf(placed.pod.metadata.deleted_at)
        else placed.pod.metadata.deleted_at,
        # Whether its policy refuses where it is.
        "atRisk": placed.at_risk,
        # Whether that is `certain` or `possible`; `null` if nothing is refused.
        "use": None if placed.worst is None else _use(certain=placed.certain),
        # Since when; not before it was bound.
        "since": placed.since if placed.worst is not None else None,
        # The gravest reason as a text.
        "worst": _renamed(text(placed.worst)) if placed.worst is not None else None,
        # How many it was given, by extended resource.
        "units": dict(device_units(placed.pod)),
        # What it holds or may hold, with health; of units only those with a name.
        "devices": [*_devices(placed)],
        **{part: [_renamed(text(one)) for one in why] for part, why in found.items()},
        "reasons": {part: [_reason(one) for one in why] for part, why in found.items()},
    }


def _devices(placed: PlacedPod) -> Iterator[dict[str, Any]]:
    for choice in placed.verdict.devices:
        yield {
            "device": str(choice.device),
            "claim": _renamed(choice.request),
            "adminAccess": choice.admin_access,
            "tolerated": [str(taint) for taint in choice.tolerated],
            "use": CERTAIN,
            **plain_health(choice.health),
        }
    for unit in placed.units:
        use = _use(certain=unit.certain)
        health = plain_health(unit.health)
        yield {"resource": unit.resource, "unit": unit.unit, "use": use, **health}


def _use(*, certain: bool) -> str:
    return CERTAIN if certain else POSSIBLE


def _reason(reason: Reason) -> dict[str, Any]:
    said = plain_reason(reason)
    said["text"] = _renamed(said["text"])
    return {**said, "use": _use(certain=is_certain(reason))}


def _renamed(words: str) -> str:
    """With what people call the claim that the scheduler makes for extended resources."""
    return words.replace(EXTENDED_RESOURCES, "the claim for its extended resources")


def _owner(pod: core.Pod) -> dict[str, str] | None:
    """The object that made the pod, such as a Job; None if nobody did."""
    found = pod.metadata.controller
    return {"kind": found.kind, "name": found.name} if found is not None else None


def _phase(pod: core.Pod) -> str:
    """`Running` or `Pending` as in its status, or `Terminating`, as kubectl says."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    return (pod.status.phase if pod.status is not None else "") or "Pending"
