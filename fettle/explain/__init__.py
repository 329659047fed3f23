"""Everything that people read: reasons in words, and pods, policies and devices as plain data.

Stands beside the answer in *watch → inventory → health → verdict → answer*. Pure.
"""

from fettle.explain.devices import list_network_devices, list_nodes, list_unknown_conditions
from fettle.explain.holds import is_held_by_rule, list_holds
from fettle.explain.modes import describe_modes
from fettle.explain.placed import plain_placed
from fettle.explain.pods import (
    JSON_VERSION,
    explain_pod,
    explain_policy,
    result_word,
    summary,
)
from fettle.explain.wording import plain_reason, text, texts

__all__ = [
    "JSON_VERSION",
    "describe_modes",
    "explain_pod",
    "explain_policy",
    "is_held_by_rule",
    "list_holds",
    "list_network_devices",
    "list_nodes",
    "list_unknown_conditions",
    "plain_placed",
    "plain_reason",
    "result_word",
    "summary",
    "text",
    "texts",
]
