"""What the second listener tells its callers, by where they are."""

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from prometheus_client import CollectorRegistry

from extender.browse import Browse
from fettle.selectors.engine import SelectorEngine
from fettle.settings import Settings
from fettle.verdicts.answering import Answers
from fettle.view import Publisher
from tests.fettle import building as b

UNREADABLE = {
    "Pod stealth/secret-project": "Pod stealth/secret-project: limits are no amounts",
    "Pod stealth/other": "Pod stealth/other: limits are no amounts",
    "Node n1": "Node n1: labels are no object",
}
NOTE = "snapshot: Pod stealth/secret-project is in two files"


def browse(quarantined: dict[str, str]) -> Browse:
    publisher = Publisher()
    publisher.publish(b.view(b.node("n1"), quarantined=quarantined), frozenset())
    answers = Answers(publisher, SelectorEngine(), Settings())
    return Browse(answers, CollectorRegistry(), {}, 300.0, notes=lambda: [NOTE])


async def readyz(caller: str, quarantined: dict[str, str]) -> str:
    request: Any = make_mocked_request("GET", "/readyz?verbose").clone(remote=caller)
    told = (await browse(quarantined).readyz(request)).text
    assert told is not None
    return told


@pytest.mark.parametrize("caller", ["127.0.0.1", "::1"])
async def test_who_calls_from_this_host_is_told_what_cannot_be_read(caller: str) -> None:
    told = await readyz(caller, UNREADABLE)
    assert "quarantined: Pod stealth/secret-project: limits are no amounts" in told
    assert NOTE in told


@pytest.mark.parametrize("caller", ["192.0.2.7", "2001:db8::7", ""])
async def test_others_are_told_how_many_objects_cannot_be_read_and_none_of_their_names(
    caller: str,
) -> None:
    told = await readyz(caller, UNREADABLE)
    assert told.startswith("ok\n")
    assert "quarantined: 2 Pod" in told
    assert "quarantined: 1 Node" in told
    assert "stealth" not in told
    assert "n1" not in told


async def test_others_are_told_of_no_quarantine_where_there_is_none() -> None:
    assert "quarantined" not in await readyz("192.0.2.7", {})
