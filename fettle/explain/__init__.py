"""Everything that people read: reasons in words, and pods, policies and devices as plain data.

Stands beside the answer in *watch → inventory → health → verdict → answer*. Pure.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fettle.explain.conclusions import (
    brief,
    conclusion,
    excluded_by,
    exclusion,
    result_word,
    summary,
)
from fettle.explain.wording import (
    JSON_VERSION,
    LOWERED,
    SUSPECTED,
    describe_code,
    list_codes,
    plain_reason,
    text,
    texts,
    with_former,
)

if TYPE_CHECKING:
    from fettle.explain.devices import (
        list_network_devices,
        list_nodes,
        list_unknown_signals,
        list_usage,
    )
    from fettle.explain.finding import FoundDevice, find_device, find_node, near, unit_called
    from fettle.explain.marks import (
        CAUSES,
        LOST,
        is_held_by_rule,
        list_holds,
        list_taints,
        state_in_words,
        taint_in_words,
        worst_state,
    )
    from fettle.explain.mechanisms import describe_mechanisms, describe_modes
    from fettle.explain.nearest import nearest_devices
    from fettle.explain.placed import plain_placed
    from fettle.explain.pods import (
        Stewardship,
        explain_pod,
        explain_policy,
    )
    from fettle.explain.recoveries import Recoveries, explain_device, explain_node
    from fettle.explain.withholding import WITHHELD, withhold_of_placed, withhold_of_pod

__all__ = [
    "CAUSES",
    "JSON_VERSION",
    "LOST",
    "LOWERED",
    "SUSPECTED",
    "WITHHELD",
    "FoundDevice",
    "Recoveries",
    "Stewardship",
    "brief",
    "conclusion",
    "describe_code",
    "describe_mechanisms",
    "describe_modes",
    "excluded_by",
    "exclusion",
    "explain_device",
    "explain_node",
    "explain_pod",
    "explain_policy",
    "find_device",
    "find_node",
    "is_held_by_rule",
    "list_codes",
    "list_holds",
    "list_network_devices",
    "list_nodes",
    "list_taints",
    "list_unknown_signals",
    "list_usage",
    "near",
    "nearest_devices",
    "plain_placed",
    "plain_reason",
    "result_word",
    "state_in_words",
    "summary",
    "taint_in_words",
    "text",
    "texts",
    "unit_called",
    "with_former",
    "withhold_of_placed",
    "withhold_of_pod",
    "worst_state",
]

_LATE = {
    "CAUSES": "marks",
    "FoundDevice": "finding",
    "LOST": "marks",
    "Recoveries": "recoveries",
    "Stewardship": "pods",
    "WITHHELD": "withholding",
    "describe_mechanisms": "mechanisms",
    "describe_modes": "mechanisms",
    "explain_device": "recoveries",
    "explain_node": "recoveries",
    "explain_pod": "pods",
    "explain_policy": "pods",
    "find_device": "finding",
    "find_node": "finding",
    "is_held_by_rule": "marks",
    "list_holds": "marks",
    "list_network_devices": "devices",
    "list_nodes": "devices",
    "list_taints": "marks",
    "list_unknown_signals": "devices",
    "list_usage": "devices",
    "near": "finding",
    "nearest_devices": "nearest",
    "plain_placed": "placed",
    "state_in_words": "marks",
    "taint_in_words": "marks",
    "unit_called": "finding",
    "withhold_of_placed": "withholding",
    "withhold_of_pod": "withholding",
    "worst_state": "marks",
}
"""In which module a name is that looks at views. The command line needs none of these to print what
a server answers."""


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    globals()[name] = found
    return found
