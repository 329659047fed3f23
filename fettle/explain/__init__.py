"""Everything that people read: reasons in words, and pods, policies and devices as plain data.

Stands beside the answer in *watch → inventory → health → verdict → answer*. Pure.
"""

from fettle.explain.conclusions import conclusion, excluded_by, exclusion
from fettle.explain.devices import list_network_devices, list_nodes, list_unknown_signals
from fettle.explain.finding import FoundDevice, find_device, find_node, near, unit_called
from fettle.explain.former import with_former
from fettle.explain.holds import is_held_by_rule, list_holds
from fettle.explain.mechanisms import describe_mechanisms
from fettle.explain.modes import describe_modes
from fettle.explain.nearest import nearest_devices
from fettle.explain.node_healths import CAUSES, LOST, state_in_words, worst_state
from fettle.explain.placed import plain_placed
from fettle.explain.pods import (
    JSON_VERSION,
    Stewardship,
    explain_pod,
    explain_policy,
    result_word,
    summary,
)
from fettle.explain.recoveries import Recoveries, explain_device, explain_node
from fettle.explain.taints import list_taints
from fettle.explain.withholding import WITHHELD, withhold_of_placed, withhold_of_pod
from fettle.explain.wording import (
    LOWERED,
    SUSPECTED,
    describe_code,
    list_codes,
    plain_reason,
    text,
    texts,
)

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
    "near",
    "nearest_devices",
    "plain_placed",
    "plain_reason",
    "result_word",
    "state_in_words",
    "summary",
    "text",
    "texts",
    "unit_called",
    "with_former",
    "withhold_of_placed",
    "withhold_of_pod",
    "worst_state",
]
