"""What people read about holds: whose they are, and who obeys them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fettle.api import core, kinds, resource
from fettle.cli.device_tables import print_devices
from fettle.cli.printing import MOST_LISTED
from fettle.cluster import EMPTY, View
from fettle.explain import list_holds
from fettle.model import DeviceId, Hold, NodeId, Subject, UnitId
from tests.fettle import building as b

DEVICE = DeviceId(b.DRIVER, "n", "gpu-0")
UNIT = UnitId("n", b.RESOURCE, "index:3")


def view(*subjects: Subject, taint: dict[str, str] | None = None, selector: Any = None) -> View:
    holds = {
        s: (Hold(subject=s, annotation="fettle.dev/hold", reason="fan", by="alice", since=0.0),)
        for s in subjects
    }
    found = msgspec.convert(taint, core.Taint) if taint else None
    node = msgspec.structs.replace(b.node("n"), taints=(found,) if found else ())
    rules: dict[str, resource.DeviceTaintRule] = {}
    if selector is not None:
        raw = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}}
        rule = kinds.TAINT_RULE.decode(msgspec.json.encode(raw))
        assert isinstance(rule, resource.DeviceTaintRule)
        rules["r"] = rule
    return msgspec.structs.replace(EMPTY, nodes={"n": node}, holds=holds, taint_rules=rules)


HELD = {"key": "fettle.dev/hold", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("subject", "taint", "selector", "by"),
    [
        (NodeId("n"), None, None, "Fettle"),
        (NodeId("n"), HELD, None, "Scheduler"),
        (NodeId("n"), {**HELD, "effect": "PreferNoSchedule"}, None, "Fettle"),
        (NodeId("n"), {**HELD, "key": "other"}, None, "Fettle"),
        (NodeId("gone"), HELD, None, "Fettle"),
        (DEVICE, None, None, "Fettle"),
        (DEVICE, HELD, {"device": "gpu-0"}, "Scheduler"),
        (DEVICE, HELD, {"device": "gpu-1"}, "Fettle"),
        (DEVICE, {**HELD, "effect": "None"}, {}, "Fettle"),
        (UNIT, HELD, None, "Fettle"),
    ],
)
def test_the_scheduler_obeys_a_hold_that_has_a_taint(
    subject: Subject, taint: dict[str, str] | None, selector: Any, by: str
) -> None:
    (found,) = list_holds(view(subject, taint=taint, selector=selector))
    assert found["obeyedBy"] == by
    assert (found["subject"], found["by"]) == (str(subject), "alice")
    assert (found["since"], found["until"]) == ("1970-01-01T00:00:00Z", None)


def printed(found: View, capsys: pytest.CaptureFixture[str]) -> list[str]:
    data = {"nodes": [], "network": [], "quarantined": {}, "holds": list_holds(found)}
    print_devices(data, everything=False)
    return capsys.readouterr().out.splitlines()


def test_people_read_who_obeys_each_hold(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(view(NodeId("n"), UNIT, taint=HELD), capsys)
    assert "  node n: held by alice: fan  [the scheduler itself obeys]" in lines
    said = f"  {UNIT}: held by alice: fan  [obeyed only while Fettle is asked]"
    assert said in lines


def test_of_many_holds_the_first_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    many = [NodeId(f"n{number:02d}") for number in range(MOST_LISTED + 3)]
    lines = printed(view(*many), capsys)
    assert lines[-1] == "  … 3 more (`fettle devices -o json` has all)"
    assert sum("held by" in line for line in lines) == MOST_LISTED
