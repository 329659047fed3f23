"""The scheduler waits two seconds for an answer, and then does without Fettle altogether."""

import msgspec
import pytest

from tests.extender.conftest import Extender
from tests.fettle import building as b
from tests.fettle.scheduling.test_long_searches import crowded

POD = b.gpu_pod()


async def test_nodes_not_judged_in_time_are_undecided_and_known_the_next_time(
    extender: Extender, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, hard = crowded(9, 10)
    bad = msgspec.structs.replace(hard, name="bad", health=b.health(0.1))
    extender.show(msgspec.structs.replace(hard, name="hard"), bad)
    monkeypatch.setattr(extender.answers.demands, "of", lambda _pod: ask)
    extender.answers.wait_s = 0.0
    extender.waits.answer_within_s = 0.02
    names = ["hard", "bad"]
    assert (await extender.filter(POD, *names))["NodeNames"] == names
    assert extender.count("fettle_extender_nodes_total", result="undecided") == 2
    assert set(await extender.prioritize(POD, *names)) == set(names)
    extender.waits.answer_within_s = 30.0
    assert (await extender.filter(POD, *names))["NodeNames"] == ["hard"]
