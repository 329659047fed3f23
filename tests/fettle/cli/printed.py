"""Healths as commands print them."""

from typing import Any

from fettle.model import State


def health(
    score: float, state: State = State.HEALTHY, *texts: str, proven: float | None = None
) -> dict[str, Any]:
    evidence = [
        {
            "text": text,
            "family": "driver",
            "weight": 1 - score,
            "source": "allocatable",
            "reporter": "Node n",
            "observedAt": 0.0,
        }
        for text in texts
    ]
    return {
        "score": score,
        "proven": score if proven is None else proven,
        "state": str(state),
        "kept": None,
        "evidence": evidence,
    }
