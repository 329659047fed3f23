"""For which nodes a waiting pod is woken, by mode."""

import pytest

from fettle.cel import SelectorEngine
from fettle.config import Settings
from fettle.model import Mode
from fettle.scheduling import Answers
from fettle.steward import AllowedNodes
from tests.fettle import building as b
from tests.fettle.others import WatchedPublisher


@pytest.mark.parametrize(
    ("mode", "allowed"),
    [
        (Mode.ENFORCE, {"good"}),
        (Mode.STEER, {"bad", "good"}),
        (Mode.OBSERVE, set()),
    ],
)
async def test_what_is_refused_wakes_nobody_and_observing_wakes_nobody_at_all(
    mode: Mode, allowed: set[str]
) -> None:
    publisher = WatchedPublisher()
    view = b.view(b.node("bad", gpus=1, own=b.health(0.0)), b.node("good", gpus=1))
    publisher.publish(view, frozenset(view.nodes))
    answers = Answers(publisher, SelectorEngine(), Settings(mode=mode))
    assert await AllowedNodes(answers).find(b.pod(b.gpu_pod()), view) == allowed
