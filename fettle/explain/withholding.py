"""What is left of an explanation for whoever may see a pod and may not see devices: reasons by
their codes. Their words may name pods and claims of other namespaces, and so may evidence, holds
and notes. What is not named here is left out. Pure.
"""

from typing import Any

WITHHELD = (
    "of nodes and devices only codes of reasons are shown, as you may not list "
    "devicehealths.fettle.dev"
)
_OF_NODE = ("fits", "allowed", "score", "value")
_OF_PLACED = (
    *("pod", "owner", "node", "phase", "policy", "boundAt", "deletedAt", "atRisk", "use", "since"),
    "units",
)
_OF_DEVICE = ("device", "claim", "adminAccess", "resource", "unit", "use")


def withhold_of_pod(explained: dict[str, Any]) -> dict[str, Any]:
    """Of `explain_pod` with `placed`."""
    notes = _coded(explained["reasons"])
    placed = explained["placed"]
    return {
        **{part: explained[part] for part in ("version", "pod", "policy", "demand", "ask")},
        "notes": [WITHHELD, *notes["notes"]],
        "reasons": {"notes": [{"code": "Withheld", "text": WITHHELD}, *notes["reasons"]["notes"]]},
        "holds": [],
        "nodes": {name: _of_node(node) for name, node in explained["nodes"].items()},
        "placed": withhold_of_placed(placed) if placed is not None else None,
    }


def withhold_of_placed(placed: dict[str, Any]) -> dict[str, Any]:
    """Of `plain_placed`. What the pod holds itself is named."""
    found = _coded(placed["reasons"])
    worst = [one["code"] for one in placed["reasons"]["refusals"] if one["text"] == placed["worst"]]
    return {
        **{part: placed[part] for part in _OF_PLACED},
        "worst": next(iter(worst), None),
        "devices": [
            {part: one[part] for part in _OF_DEVICE if part in one} for one in placed["devices"]
        ],
        **found,
    }


def _of_node(node: dict[str, Any]) -> dict[str, Any]:
    excluded = node.get("excluded")
    return {
        **{part: node[part] for part in _OF_NODE},
        **_coded(node["reasons"]),
        "devices": [],
        "excluded": excluded and {"by": excluded["by"], "detail": ""},
    }


def _coded(reasons: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Reasons by part, as codes, in place of their words too."""
    return {
        **{part: [one["code"] for one in found] for part, found in reasons.items()},
        "reasons": {part: [*map(_code, found)] for part, found in reasons.items()},
    }


def _code(reason: dict[str, Any]) -> dict[str, Any]:
    counted = {"others": reason["others"]} if reason["code"] == "FurtherReasons" else {}
    return {"code": reason["code"], "text": reason["code"], **counted}
