"""What annotations say of an operator's holds."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fettle.api.meta import ObjectMeta
from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.operator_words import holds_on_node, in_force, written
from fettle.model import HOLD, DeviceId, Hold, NodeId, UnitId
from tests.fettle.health.signals.objects import NOW, node, stamp
from tests.fettle.health.signals.reading import RULES

N = "gpu-1"
DEVICE = DeviceId("gpu.nvidia.com", "rack/1", "gpu-3")


def holds(**annotations: str) -> tuple[Hold, ...]:
    keys = {f"fettle.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return holds_on_node(ObjectMeta(name=N, annotations=keys))


def one(value: str) -> Hold:
    (found,) = holds(hold=value)
    return found


@pytest.mark.parametrize(
    "subject",
    [NodeId(N), DEVICE, UnitId(N, "nvidia.com/gpu", "index:3"), UnitId(N, "amd.com/gpu", "GPU-1a")],
)
@pytest.mark.parametrize("until", [NOW + 60, math.inf])
def test_what_fettle_hold_writes_is_read_again(subject: Any, until: float) -> None:
    hold = Hold(subject=subject, annotation=HOLD, reason="fan", by="alice", since=NOW, until=until)
    assert one(written(hold)) == hold


@pytest.mark.parametrize("text", ["fan swap", "5", "[1]", '"x"', "{not json", '{"reason": 5}'])
def test_any_other_value_is_the_reason_of_a_hold_on_the_whole_node(text: str) -> None:
    found = one(text)
    assert (found.subject, found.reason, found.by) == (NodeId(N), text, "")
    assert (found.since, found.until) == (None, math.inf)


@pytest.mark.parametrize("value", ["false", " False "])
def test_false_is_no_hold(value: str) -> None:
    assert holds(hold=value) == ()


def test_each_annotation_is_a_hold_of_its_own() -> None:
    found = holds(hold="riser", hold_1='{"by": "bob"}', hold_2="false", other="x")
    assert [(h.annotation, h.reason, h.by) for h in found] == [
        ("fettle.dev/hold", "riser", ""),
        ("fettle.dev/hold-1", "", "bob"),
    ]


@pytest.mark.parametrize("device", ["gpu-3", "a/b", "/x/y", "a//", "x/y/"])
def test_a_device_that_cannot_be_read_holds_the_whole_node(device: str) -> None:
    found = one(msgspec.json.encode({"device": device, "reason": "r"}).decode())
    assert found.subject == NodeId(N)
    assert repr(device) in found.reason


@pytest.mark.parametrize("until", ["soon", "2026-99-99", "99999-01-01T00:00Z"])
def test_a_time_that_cannot_be_read_never_comes(until: str) -> None:
    found = one(msgspec.json.encode({"until": until, "reason": "r"}).decode())
    assert found.until == math.inf
    assert repr(until) in found.reason


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_new_york")
def test_a_time_may_have_any_offset_and_has_utc_without_one() -> None:
    for until in ("2026-05-01T18:00:00+02:00", "2026-05-01T16:00Z", "2026-05-01T16:00"):
        assert one(f'{{"until": "{until}"}}').until == 1_777_651_200


def test_an_address_is_read_as_monitors_write_it() -> None:
    found = one('{"device": "nvidia.com/gpu pci:0000:C4:00"}')
    assert found.subject == UnitId(N, "nvidia.com/gpu", "pci:0000:c4:00.0")


def report(now: float = NOW, **annotations: str) -> Any:
    keys = {f"fettle.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return report_of_node(node(annotations=keys), RULES, now)


def test_evidence_names_all_holds_on_its_subject_and_the_earliest_time() -> None:
    alice = f'{{"by": "alice", "reason": "fan", "since": "{stamp(NOW - 60)}"}}'
    bob = f'{{"by": "bob", "reason": "riser", "since": "{stamp(NOW - 90)}"}}'
    (said,) = report(hold=alice, hold_1=bob).evidence
    assert said.text == "held by alice: fan; held by bob: riser"
    assert said.observed_at == NOW - 90


def test_holds_on_a_device_and_a_unit_say_nothing_of_the_node() -> None:
    said = report(hold=f'{{"device": "{DEVICE}"}}', hold_1='{"device": "nvidia.com/gpu index:3"}')
    subjects = {e.subject for e in said.evidence}
    assert subjects == {DEVICE, UnitId(N, "nvidia.com/gpu", "index:3")}


def test_a_hold_is_over_at_its_time() -> None:
    until = f'{{"until": "{stamp(NOW + 60)}", "reason": "r"}}'
    assert f"until {stamp(NOW + 60)}: r" in report(hold=until).evidence[0].text
    assert report(hold=until).holds
    assert report(NOW + 60, hold=until) == report(NOW + 60)
    assert in_force(holds(hold=until), NOW + 59.9)
