"""What the verdicts on a pod come to: how many nodes fit, which are best, what keeps it off the
rest, and who must do what. Made from an explanation as it is answered, so it tells nothing that was
withheld. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from fettle.pacing import pause

MOST_NAMED = 3
"""Best nodes, causes and exclusions that the sentence names."""


class Remedy(StrEnum):
    """Who must do what, so that a node fits that does not."""

    RELEASE = "whoever holds it must release it (`fettle devices` names them)"
    MEND = "an administrator must mend it (`fettle explain node {node}` says what)"
    WAIT = "other pods must end first"
    GROW = "the pod must ask for less, or the cluster needs other nodes"
    CLAIM = "the owner of the pod must mend its claim ({text})"
    POLICY = "the owner of the pod must choose another policy, or such a node must come"
    LATER = "it is tried elsewhere for a while"


class _Cause(NamedTuple):
    words: str
    remedy: Remedy


_CAUSES: Mapping[str, _Cause] = {
    "NodeHeld": _Cause("held by an operator", Remedy.RELEASE),
    "DeviceHeld": _Cause("device held by an operator", Remedy.RELEASE),
    "NodeUnhealthy": _Cause("node Unhealthy", Remedy.MEND),
    "NodeDegraded": _Cause("node Degraded", Remedy.MEND),
    "NodeUnknown": _Cause("health of the node Unknown", Remedy.MEND),
    "NodeScoreTooLow": _Cause("score of the node too low", Remedy.MEND),
    "DeviceUnhealthy": _Cause("device Unhealthy", Remedy.MEND),
    "DeviceDegraded": _Cause("device Degraded", Remedy.MEND),
    "DeviceUnknown": _Cause("health of a device Unknown", Remedy.MEND),
    "DeviceScoreTooLow": _Cause("score of a device too low", Remedy.MEND),
    "TooFewAcceptableDevices": _Cause("too few acceptable devices", Remedy.MEND),
    "TooFewAcceptableUnits": _Cause("too few acceptable units", Remedy.MEND),
    "RiskTooHigh": _Cause("risk of a bad unit", Remedy.MEND),
    "UnitsWorthTooLittle": _Cause("units worth too little", Remedy.MEND),
    "Maintenance": _Cause("maintenance", Remedy.LATER),
    "KubeletRefusedWorkload": _Cause("kubelet refused its workload", Remedy.LATER),
    "PodsDoNotStart": _Cause("its workload does not start there", Remedy.LATER),
    "FailedHere": _Cause("it failed there", Remedy.LATER),
    "NodeRequirementNotMet": _Cause("requirement not met", Remedy.POLICY),
    "DeviceRequirementNotMet": _Cause("requirement not met by a device", Remedy.POLICY),
    "NoUnits": _Cause("no such device", Remedy.GROW),
    "NotEnoughUnits": _Cause("too few devices", Remedy.GROW),
    "UnitsTaken": _Cause("devices in use", Remedy.WAIT),
    "NoDevices": _Cause("no devices", Remedy.GROW),
    "NoDeviceMatches": _Cause("no device matches", Remedy.GROW),
    "TooFewDevices": _Cause("too few devices", Remedy.GROW),
    "ClaimOnOtherNodes": _Cause("its claim is allocated elsewhere", Remedy.WAIT),
    "ClaimNotFound": _Cause("its claim does not exist", Remedy.CLAIM),
    "ClaimUnreadable": _Cause("its claim cannot be read", Remedy.CLAIM),
    "ClaimBeingDeleted": _Cause("its claim is being deleted", Remedy.CLAIM),
    "ClaimDeviceNotPublished": _Cause("the device of its claim is not published", Remedy.MEND),
    "DeviceClassNotFound": _Cause("its device class does not exist", Remedy.CLAIM),
    "RequestInvalid": _Cause("its claim is wrong", Remedy.CLAIM),
    "SelectorFailed": _Cause("a selector of its claim fails", Remedy.CLAIM),
}
_IN_USE = _Cause("devices in use", Remedy.WAIT)
_WITHOUT = frozenset(("NoUnits", "NoDevices"))
_BY = {
    "noDevices": "having none of its devices",
    "nodeSelector": "its node selector",
    "nodeAffinity": "its node affinity",
    "taint": "taints that it does not tolerate",
    "cordon": "a cordon",
    "notReady": "not being ready",
}
_FIRST: Mapping[str, str] = {
    "PodGated": "its scheduling gates must be taken off first",
    "ClaimsNotCreated": "its claims must be made first",
}


def result_word(value: dict[str, Any]) -> str:
    """A node's answer (as in `explain_pod`) in a word: refused, no fit, undecided, or fits."""
    if not value["allowed"]:
        return "refused"
    if value["rejected"]:
        return "no fit"
    return "undecided" if value["undecided"] else "fits"


def _untold(value: dict[str, Any], part: str) -> int:
    """How many reasons the last one stands for, besides itself."""
    last = value["reasons"][part][-1] if value.get("reasons") else {}
    return last["others"] - 1 if last.get("code") == "FurtherReasons" else 0


def summary(value: dict[str, Any]) -> str:
    """A node's answer (as in `explain_pod`) in one line for a table: its gravest reason.

    A refusal is followed by why the pod could not run there anyway.
    """
    for part, prefix in (
        ("refusals", ""),
        ("rejected", ""),
        ("undecided", ""),
        ("overruled", "allowed by the breaker: "),
        ("conceded", "as the last choice: "),
    ):
        if value.get(part):
            others = len(value[part]) - 1 + _untold(value, part)
            more = f" (+{others} more)" if others else ""
            anyway = value["rejected"][:1] if part == "refusals" else ()
            beside = (f"no fit anyway: {why}" for why in anyway)
            return "; ".join((f"{prefix}{value[part][0]}{more}", *beside, *value["notes"]))
    if "health" not in value:  # withheld
        return "; ".join(value["notes"])
    given = (u for u in value.get("units", ()) if u.get("withdrawn", 0) < u.get("count", 1))
    judged = (*value["devices"], value["health"], *given)
    evidence = [e for one in judged for e in one["evidence"]]
    heaviest = max(evidence, key=lambda e: e["weight"])["text"] if evidence else ""
    kept = (f"{one['state']} ({one['kept']})" for one in judged if one.get("kept"))
    tolerated = dict.fromkeys(f"taint {t}" for d in value["devices"] for t in d["tolerated"])
    parts = (
        *_given_devices(value),
        f"tolerated: {', '.join(tolerated)}" if tolerated else "",
        next(kept, ""),
        heaviest,
        *value["notes"],
    )
    return "; ".join(part for part in parts if part)


def brief(value: dict[str, Any]) -> str:
    """As `summary`, but of a node that does not fit only the cause, in few words, and the gravest
    evidence, first what matters most: a narrow table may cut off the end."""
    word = result_word(value)
    part = {"refused": "refusals", "no fit": "rejected"}.get(word, "")
    found = value.get("reasons", {}).get(part)
    if not found:
        return summary(value)
    reason, cause = _gravest(found)
    health = reason.get("health")
    if cause is None or not health:
        said = reason["text"]
    else:
        score = f"{health['proven']:.2f}"
        if "value" in reason:
            score = f"{reason['value']:.2f} of {reason['minScore']:g}"
        others = ", though others here will do" if reason.get("passedOver") else ""
        evidence = f": {health['evidence']}" if health.get("evidence") else ""
        said = f"{cause.words} ({score}){others}{evidence}"
    more = len(found) - 1 + _untold(value, part)
    return f"{said} (+{more} more)" if more else said


def _given_devices(value: dict[str, Any]) -> Iterator[str]:
    """The devices that allocated claims hold, and those that other claims would get."""
    notes = value.get("reasons", {}).get("notes", ())
    unpublished = {n["device"] for n in notes if n["code"] == "ClaimDeviceNotPublished"}
    held: list[str] = []
    got: dict[str, list[str]] = {}
    looked_at: dict[str, list[str]] = {}
    for choice in value["devices"]:
        if choice.get("adminAccess"):
            would = "would have" if "/" in choice["request"] else "has"
            looked_at.setdefault(would, []).append(choice["device"])
        elif "/" in choice["request"]:
            chosen = f" (alternative {choice['alternative']})" if choice["alternative"] else ""
            name = choice.get("resource") or choice["request"]
            got.setdefault(name + chosen, []).append(choice["device"])
        elif choice["device"] not in unpublished:
            held.append(choice["device"])
    if held:
        yield f"holds {', '.join(held)}"
    if len(got) == 1 and not held and "(" not in next(iter(got)):
        yield f"would get {', '.join(*got.values())}"
    elif got:
        yield "would get " + " and ".join(f"{', '.join(ds)} for {name}" for name, ds in got.items())
    for would, devices in looked_at.items():
        yield f"{would} admin access to {', '.join(devices)}, whatever their health"


def conclusion(explained: Mapping[str, Any]) -> dict[str, Any]:
    """Of an answer of `/explain` about a pod; its `text` is one line."""
    nodes = explained["nodes"]
    excluded = {name: why for name, v in nodes.items() if (why := exclusion(v))}
    rest = {name: v for name, v in nodes.items() if name not in excluded}
    words = {name: result_word(v) for name, v in rest.items()}
    fit = sorted(
        (name for name, word in words.items() if word == "fits"),
        key=lambda name: (-rest[name]["score"], name),
    )
    best = [name for name in fit if rest[name]["score"] == rest[fit[0]]["score"]]
    outcome = {
        # How many there are.
        "nodes": len(nodes),
        # How many of them fit.
        "fit": len(fit),
        # Of how many that cannot be told.
        "undecided": sum(word == "undecided" for word in words.values()),
        # At most three that fit and have the highest score.
        "best": best[:MOST_NAMED],
        # Why nodes do not fit, what concerns most of them first.
        "causes": _causes(rest, words),
        # Nodes that can never matter.
        "excluded": _exclusions(excluded),
    }
    next_step = _next(explained, outcome)
    return {
        **outcome,
        # Who must do what so that a node fits; empty if nobody must.
        "next": next_step,
        # All of it in one line.
        "text": _text(explained, outcome, len(best), next_step),
    }


def exclusion(verdict: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Why this node can never matter for the pod, however well it is; None if it can."""
    if verdict.get("excluded"):
        found: Mapping[str, str] = verdict["excluded"]
        return found
    rejected = verdict.get("reasons", {}).get("rejected", ())
    if any(_gravest([one])[0]["code"] in _WITHOUT for one in rejected):
        return {"by": "noDevices", "detail": ""}
    return None


def _causes(rest: Mapping[str, Any], words: Mapping[str, str]) -> list[dict[str, Any]]:
    """Why nodes do not fit, what concerns most of them first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for name, word in words.items():
        if word not in ("refused", "no fit"):
            continue
        part = "refusals" if word == "refused" else "rejected"
        reasons = rest[name].get("reasons", {}).get(part) or [{"code": word, "text": word}]
        reason, cause = _gravest(reasons)
        key = (word, cause.words if cause is not None else reason["code"])
        one = found.setdefault(
            key,
            {
                # `refused` or `no fit`.
                "verdict": word,
                # Of one such reason; `text` is its words.
                "code": reason["code"],
                # Its kind in words.
                "words": key[1],
                # How many; `first` is one of them.
                "nodes": 0,
                "first": name,
                "text": reason["text"],
            },
        )
        one["nodes"] += 1
        pause()
    return sorted(found.values(), key=lambda one: (-one["nodes"], one["first"]))


def _gravest(found: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], _Cause | None]:
    """The first reason, or the first one within it, with what is said of its kind."""
    reason = next(iter(found))
    while (inner := reason.get("cause") or next(iter(reason.get("causes") or ()), None)) and (
        isinstance(inner, dict)
    ):
        reason = inner
    keeps_away = {one["obstacle"]["code"] for one in reason.get("obstacles") or ()}
    return reason, _IN_USE if keeps_away == {"DeviceAllocated"} else _CAUSES.get(reason["code"])


def _exclusions(excluded: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    counts = Counter((one["by"], one["detail"]) for one in excluded.values())
    firsts: dict[tuple[str, str], str] = {}
    for name, one in excluded.items():
        firsts.setdefault((one["by"], one["detail"]), name)
    return [
        {
            # As of a node, or `noDevices`.
            "by": by,
            "detail": detail,
            # How many; `first` is one of them.
            "nodes": number,
            "first": firsts[by, detail],
        }
        for (by, detail), number in counts.most_common()
    ]


def _next(explained: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
    """Who must do what so that the pod runs; "" if nobody must do anything."""
    codes = {one["code"]: one["text"] for one in explained["reasons"]["notes"]}
    for code, step in _FIRST.items():
        if code in codes:
            return step
    if outcome["fit"] or outcome["undecided"] or explained.get("placed"):
        return ""
    if not outcome["causes"]:
        return _excluded_everywhere(outcome["excluded"])
    top = outcome["causes"][0]
    cause = _IN_USE if top["words"] == _IN_USE.words else _CAUSES.get(top["code"])
    step = cause.remedy.format(node=top["first"], text=top["text"]) if cause is not None else ""
    return "; ".join(filter(None, (step, codes.get("PatienceLasts"))))


def _excluded_everywhere(exclusions: Sequence[Mapping[str, Any]]) -> str:
    by = {one["by"] for one in exclusions}
    if by == {"noDevices"}:
        return "the cluster needs nodes with its devices, or the pod must ask for others"
    return "its node selector, affinity or tolerations must change, or the nodes" if by else ""


def _text(explained: Mapping[str, Any], outcome: Mapping[str, Any], best: int, step: str) -> str:
    parts = [f"{explained['pod']} {_fits(outcome)}"]
    placed = explained.get("placed")
    if placed:
        refuses = "refuses" if placed.get("atRisk") else "accepts"
        where = f"is on {placed['node']}, which its policy {refuses}"
        parts = [f"{explained['pod']} {where}; one more like it {_fits(outcome)}"]
    if outcome["best"]:
        score = explained["nodes"][outcome["best"][0]]["score"]
        more = f" and {best - len(outcome['best'])} more" if best > len(outcome["best"]) else ""
        parts.append(f"best {', '.join(outcome['best'])}{more} (score {score})")
    would = "" if explained["policy"].get("mode", "enforce") == "enforce" else "would be "
    for verdict, word in (("refused", f"{would}refused"), ("no fit", "no fit")):
        if found := [one for one in outcome["causes"] if one["verdict"] == verdict]:
            parts.append(f"{sum(one['nodes'] for one in found)} {word} ({_counted(found)})")
    if outcome["excluded"]:
        number = sum(one["nodes"] for one in outcome["excluded"])
        parts.append(f"{number} excluded by {excluded_by(outcome['excluded'])}")
    return "; ".join(parts) + (f". Next: {step}" if step else "")


def _fits(outcome: Mapping[str, Any]) -> str:
    nodes = f"{outcome['nodes']} node{'' if outcome['nodes'] == 1 else 's'}"
    if not outcome["nodes"]:
        return "fits nowhere: no node is seen"
    count = f"{outcome['fit']} of {nodes}" if outcome["fit"] else f"none of {nodes}"
    perhaps = f" and perhaps {outcome['undecided']} more" if outcome["undecided"] else ""
    return f"fits {count}{perhaps}"


def _counted(causes: list[dict[str, Any]]) -> str:
    if len(causes) == 1:
        return str(causes[0]["words"])
    said = [f"{one['words']}: {one['nodes']}" for one in causes[:MOST_NAMED]]
    left = sum(one["nodes"] for one in causes[MOST_NAMED:])
    return ", ".join([*said, *([f"other reasons: {left}"] if left else [])])


def excluded_by(exclusions: Iterable[Mapping[str, Any]]) -> str:
    """What excludes nodes, in words."""
    words: dict[str, list[str]] = {}
    for one in exclusions:
        words.setdefault(_BY.get(one["by"], one["by"]), []).append(one["detail"])
    return ", ".join(
        f"{by} ({', '.join(named[:MOST_NAMED])})" if (named := [*filter(None, details)]) else by
        for by, details in words.items()
    )
