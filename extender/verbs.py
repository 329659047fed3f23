"""What the three verbs share: when they answer an error, and how their answers are counted."""

from fettle.model import FettleError
from fettle.observing import ExtenderMetrics

ANSWER_WITHIN_S = 1.5
"""Beside what it waits for selectors, a call takes no longer: the shipped configuration gives it
two seconds, after which the scheduler does without Fettle. Nodes not judged by then are undecided.
"""
REFUSED = "refused"


class NotReady(FettleError):
    """The view is not complete or not fresh. The answer is an error, never refusals."""


def raise_unless_ready(problem: str, verb: str, metrics: ExtenderMetrics) -> None:
    """Raises NotReady if there is a problem."""
    if problem:
        metrics.decided(verb, "not_ready")
        raise NotReady(f"fettle: not ready: {problem}")


def result_of(nodes: int, refused: int) -> str:
    """How an answer that refused so many of the nodes is counted."""
    if not refused:
        return "passed"
    return REFUSED if refused == nodes else "narrowed"
