"""Every reason has words, and a code of its own."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from fettle.explain.wording import describe_code, list_codes, plain_reason, text
from fettle.model import SOUND, BadInput, DeviceId, Mode, PoolRef, Source, SourceKind, reasons
from fettle.model.reasons import (
    Complaint,
    Obstacles,
    Reason,
    SliceOrderCause,
    StuckIn,
    Unmodelled,
)
from tests.fettle.building import health

BASES = (reasons.NodeRefusal, reasons.DeviceRefusal)


def leaves(of: type[Reason]) -> Iterator[type[Reason]]:
    for kind in of.__subclasses__():
        if kind not in BASES:
            yield kind
        yield from leaves(kind)


REASONS = sorted(leaves(Reason), key=lambda kind: kind.__name__)
DEVICE = DeviceId("gpu.example.com", "n1", "gpu-0")
POOL = PoolRef("gpu.example.com", "n1")
VALUES: dict[Any, Any] = {
    "str": "x",
    "int": 2,
    "float": 0.5,
    "bool": True,
    "Health": SOUND,
    "DeviceId": DEVICE,
    "PoolRef": POOL,
    "Source": Source(SourceKind.CONDITION, "GpuLinkLoss"),
    "Reason": reasons.NothingFits(),
    "Complaint": Complaint.UNHEALTHY,
    "Mode": Mode.OBSERVE,
    "Unmodelled": Unmodelled.POOLS_OF_1_34,
    "SliceOrderCause": SliceOrderCause.SEVERAL_SLICES,
    "StuckIn": StuckIn.CRASHING,
    "Obstacles": Obstacles(reasons.DeviceAllocated(), 2),
    "BadDevice": reasons.BadDevice("gpu-3", "held"),
    "DeviceScore": reasons.DeviceScore(DEVICE, 0.5),
    "HeldDevice": reasons.HeldDevice(DEVICE, SOUND),
    "ValuesWithDevices": reasons.ValuesWithDevices((("c/a", 1), ("c/b", 2)), 1),
}


def value_of(kind: Any) -> Any:
    """Some value of a field's type."""
    args: tuple[Any, ...] = getattr(kind, "__args__", ())
    if getattr(kind, "__origin__", None) is tuple:
        return (value_of(args[0]),) if args[-1] is ... else tuple(map(value_of, args))
    if args:  # a union: its first that is not None
        return value_of(args[0])
    return VALUES[kind.__name__]


def example(kind: type[Reason]) -> Reason:
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: value_of(field.type) for field in fields})


def test_every_reason_has_words_and_can_be_hashed() -> None:
    for kind in REASONS:
        reason = example(kind)
        assert text(reason), kind
        assert hash(reason) == hash(example(kind)), kind


def test_json_has_the_code_the_text_and_every_field() -> None:
    for kind in REASONS:
        said = plain_reason(example(kind))
        assert said["code"] == kind.__name__
        assert said["text"] == text(example(kind))
        assert len(said) == 2 + len(msgspec.structs.fields(kind)), kind
        assert msgspec.json.decode(msgspec.json.encode(said)) == said


def test_a_health_in_json_has_the_heaviest_evidence() -> None:
    said = plain_reason(reasons.NodeUnhealthy(health(0.1, text="XID 79"), 0.5))
    assert said["health"] == {"state": "Unhealthy", "proven": 0.1, "evidence": "XID 79"}


def test_each_code_is_explained_with_what_comes_of_it() -> None:
    told = {one["code"]: one for one in list_codes()}
    assert [*told] == [kind.__name__ for kind in REASONS]
    for code, one in told.items():
        assert one["about"].endswith("."), code
        assert one["effect"].endswith("."), code
    assert told["NodeHeld"]["about"] == "An operator holds the node."
    assert told["NodeHeld"]["kind"] == "What a policy does not accept"
    assert told["NodeHeld"]["fields"] == ["health", "minScore"]
    assert "allowed" in told["SelectorUndecided"]["effect"]
    assert "allowed" in told["DeviceRequirementUndecided"]["effect"]
    assert "refuses nobody" in told["GangIsSlow"]["effect"]
    assert "`beginsInS` seconds" in told["Maintenance"]["about"]


def test_a_code_may_be_written_in_any_case_and_near_ones_are_named() -> None:
    assert describe_code("nodeheld")["code"] == "NodeHeld"
    near = "no reason code 'NodeHold'; near: NodeHeld.*; `fettle explain reason` lists all"
    with pytest.raises(BadInput, match=near):
        describe_code("NodeHold")
