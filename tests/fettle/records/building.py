"""Decisions as tests need them."""

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from fettle.cel import SelectorEngine
from fettle.cluster import Publisher
from fettle.config import Settings
from fettle.model import Mode
from fettle.observing import DecisionMetrics
from fettle.records import Decided, Decision, DecisionLog, Journal, Recorder, Verb
from fettle.records.decisions import new_id
from fettle.scheduling import Answers


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


def recorder(folder: Path | None, max_bytes: int = 2**20, most: int = 100) -> Recorder:
    answers = Answers(Publisher(), SelectorEngine(), Settings())
    log, journal = DecisionLog(most, 2**20), Journal(folder, max_bytes)
    return Recorder(answers, log, journal, DecisionMetrics(CollectorRegistry()))
