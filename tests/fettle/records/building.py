"""Decisions as tests need them."""

from typing import Any

from fettle.model import Mode
from fettle.records import Decided, Decision, Verb
from fettle.records.decisions import new_id


def decision(pod: str = "p", decided: Decided = Decided.REFUSED, **fields: Any) -> Decision:
    """Of the filter verb, about a pod with a UID; `at` sets both times."""
    at = fields.pop("at", 1000.0)
    return Decision(
        **{
            "id": new_id(),
            "verb": Verb.FILTER,
            "key": f"default/{pod}",
            "uid": f"uid-{pod}",
            "policy": "training",
            "mode": Mode.ENFORCE,
            "decided": decided,
            "first": at,
            "last": at,
            **fields,
        }
    )
