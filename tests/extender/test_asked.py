"""How an operator sees whether schedulers ask Fettle, and what they ask for in vain."""

import pytest
from structlog.testing import capture_logs

from extender import verbs
from extender.asked import MOST
from tests.extender.conftest import Extender
from tests.fettle import building as b

IN_VAIN = {"verb": "unknown", "result": "not_found"}


async def test_a_path_that_is_not_served_is_logged_once_and_always_counted(
    extender: Extender,
) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            status, reply = await extender.post("/filter", {})
            assert (status, reply["error"]) == (
                404,
                "path //filter not found: /filter, /prioritize and /preempt are served",
            )
        await extender.post("bind", {})
    assert [(log["log_level"], log["path"]) for log in logs] == [
        ("warning", "//filter"),
        ("warning", "/bind"),
    ]
    for log in logs:
        assert "/filter, /prioritize and /preempt" in log["event"]
        for setting in ("urlPrefix", "filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb"):
            assert setting in log["event"]
    assert extender.count("fettle_extender_decisions_total", **IN_VAIN) == 4
    assert extender.verbs.asked.notes() == [
        "extender: no scheduler has asked yet",
        "extender: since its start asked in vain for //filter, /bind",
    ]


async def test_only_so_many_paths_are_logged_and_kept(extender: Extender) -> None:
    with capture_logs() as logs:
        for number in range(MOST + 5):
            await extender.post(f"verb-{number}", {})
    assert len(logs) == MOST
    assert extender.count("fettle_extender_decisions_total", **IN_VAIN) == MOST + 5
    assert f"/verb-{MOST}" not in extender.verbs.asked.notes()[1]


async def test_what_is_only_looked_for_at_a_path_is_not_counted(extender: Extender) -> None:
    """kube-scheduler only POSTs."""
    with capture_logs() as logs:
        async with extender.client.get(f"http://127.0.0.1:{extender.port}/healthz") as reply:
            assert reply.status == 404
            assert "ask the one of --browse-listen" in (await reply.json())["error"]
    assert logs == []
    assert extender.count("fettle_extender_decisions_total", **IN_VAIN) == 0


async def test_when_each_verb_was_last_asked_is_told(extender: Extender) -> None:
    assert extender.verbs.asked.notes() == ["extender: no scheduler has asked yet"]
    extender.show(b.node("n1"))
    await extender.prioritize(b.gpu_pod(), "n1")
    (note,) = extender.verbs.asked.notes()
    assert note == "extender: last asked: filter never, prioritize 0 s ago, preempt never"


async def test_a_scheduler_that_asks_and_is_not_named_is_logged_once(extender: Extender) -> None:
    """The webhook takes it for one that does not ask."""
    extender.show(b.node("n1"))
    with capture_logs() as logs:
        for name in ("p", "q"):
            pod = b.gpu_pod(name=name)
            await extender.filter({**pod, "spec": {**pod["spec"], "schedulerName": "second"}}, "n1")
            await extender.filter(pod, "n1")
    (log,) = logs
    assert (log["log_level"], log["scheduler"]) == ("warning", "second")
    assert "scheduler.names" in log["event"]


async def test_the_pods_last_asked_about_are_remembered_and_no_more(
    extender: Extender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "REMEMBERED_PODS", 2)
    extender.show(b.node("n1"))
    for name in ("p", "q", "p", "r"):
        await extender.filter(b.gpu_pod(name=name), "n1")
    assert list(extender.verbs.recent) == ["default/p", "default/r"]
