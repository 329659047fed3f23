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


ALLOCATED, TAINTED = reasons.DeviceAllocated(), reasons.TaintedByRule(("xid",))
NUMA, ROOT = "gpu.example.com/numa", "resource.kubernetes.io/pcieRoot"
PAIRS = tuple((f"k/g{i}", f"k/n{i}") for i in range(4))
GPU = "example.com/gpu"
STAYS = (
    "claim gpu is allocated and no other pod uses it, but the scheduler revokes that only if it "
    "looks at a node where the claim cannot be used, and there is none: delete {} and create it "
    "again to have it anew"
)
WORDS = [
    (
        reasons.TooFewDevices(("k/g",), 1, 8, (Obstacles(ALLOCATED, 6), Obstacles(TAINTED, 2))),
        "k/g: 1 requested, 8 devices match: 6 allocated, 2 tainted (xid)",
    ),
    (
        reasons.TooFewDevices(("k/g",), 1, 1, (Obstacles(reasons.CountersExhausted(POOL), 1),)),
        "k/g: 1 requested, 1 device matches: "
        "1 for which the counters of pool gpu.example.com/n1 do not suffice",
    ),
    (
        reasons.TooFewDevices(
            ("k/g",), 3, 2, (Obstacles(reasons.CapacityTooSmall(), 1),), one_share=True
        ),
        "k/g: 3 requested, 2 devices match: 1 with too little capacity "
        "(a request takes at most one share of each device)",
    ),
    (
        reasons.TooFewDevices(("k/x",), None, 1, (Obstacles(reasons.CapacityTooSmall(), 1),)),
        "k/x: all requested, 1 device matches: 1 with too little capacity",
    ),
    (
        reasons.NoDevices(("k/g/2", "k/g/3", "k/g/4")),
        "k/g/2, k/g/3, k/g/4: there are no devices here",
    ),
    (
        reasons.PoolNotWhole(POOL, "incomplete: 1 of 2 slices"),
        "pool gpu.example.com/n1 is incomplete: 1 of 2 slices",
    ),
    (
        reasons.AttributeMissing("k/g", NUMA),
        f"k/g: no matching device has the attribute {NUMA}, which a constraint compares",
    ),
    (
        reasons.ConstraintNotMet(("k/x", "k/y"), NUMA, False, 2, 1, value="0"),
        f"k/x, k/y: 2 requested with a common value of {NUMA}, at most 1 available (value 0)",
    ),
    (
        reasons.ConstraintNotMet(("k/g/2", "k/g/3"), NUMA, False, 2, 1, True, "0"),
        f"k/g/2, k/g/3: at least 2 requested with a common value of {NUMA}, "
        "at most 1 available (value 0)",
    ),
    (
        reasons.ConstraintNotMet(
            ("k/g",),
            NUMA,
            False,
            requested=2,
            available=1,
            value='"x"',
            obstacles=(Obstacles(reasons.AttributeAbsent(), 2), Obstacles(ALLOCATED, 1)),
        ),
        f"k/g: 2 requested with a common value of {NUMA}, at most 1 available "
        '(value "x"; 2 more without the attribute, 1 more allocated)',
    ),
    (
        reasons.ConstraintNotMet(
            ("k/g",),
            NUMA,
            False,
            requested=1,
            available=0,
            obstacles=(Obstacles(TAINTED, 1), Obstacles(reasons.AttributeAbsent(), 1)),
        ),
        f"k/g: 1 requested with a common value of {NUMA}, none available "
        "(1 tainted (xid), 1 without the attribute)",
    ),
    (
        reasons.ConstraintNotMet(
            ("k/x", "k/y"), NUMA, True, 3, 2, obstacles=(Obstacles(TAINTED, 1),)
        ),
        f"k/x, k/y: 3 requested with different values of {NUMA}, at most 2 available "
        "(1 more tainted (xid))",
    ),
    (
        reasons.GroupsNotMet(
            PAIRS,
            ROOT,
            available=3,
            pairs=True,
            values=reasons.ValuesWithDevices((("k/g0", 3), ("k/n0", 4)), 3),
            obstacles=(Obstacles(ALLOCATED, 1),),
        ),
        "k/g0 and k/n0, k/g1 and k/n1, k/g2 and k/n2, …: 4 pairs requested, each with a common "
        f"value of {ROOT}, at most 3 available (values with free devices: "
        "3 for k/g0, 4 for k/n0, 3 for both; 1 more allocated)",
    ),
    (
        reasons.GroupsNotMet(
            PAIRS[:3], ROOT, 2, values=reasons.ValuesWithDevices((("k/g0", 3), ("k/n0", 3)), 2)
        ),
        "k/g0 and k/n0, k/g1 and k/n1, k/g2 and k/n2: 3 groups requested, each with a common "
        f"value of {ROOT}, at most 2 available (values with free devices: "
        "3 for k/g0, 3 for k/n0, 2 for both)",
    ),
    (
        reasons.PodGated(("a.example/x", "y")),
        "the pod has scheduling gates (a.example/x, y): the scheduler does not look at it before "
        "they are removed",
    ),
    (
        reasons.ClaimsNotCreated(("gpu",)),
        "the ResourceClaim for gpu has not been made from its template yet, for which the "
        "scheduler waits: events of the pod say why, such as a quota",
    ),
    (
        reasons.PodPlaced("n", True, True),
        "the pod runs on n: the verdicts are for another pod like it, which gets claims of its own",
    ),
    (
        reasons.PodHolds(
            "", (reasons.HeldDevice(DEVICE, health(0.2)), reasons.HeldDevice(DEVICE, None))
        ),
        "for its extended resources it holds gpu.example.com/n1/gpu-0, Unhealthy (0.20): a fault; "
        "gpu.example.com/n1/gpu-0, which is not published for this node",
    ),
    (
        reasons.PodHolds("gpu", (reasons.HeldDevice(DEVICE, SOUND),), True),
        "for its claim gpu it has admin access to gpu.example.com/n1/gpu-0, Healthy (1.00)",
    ),
    (
        reasons.ClaimWillBeReallocated("gpu"),
        "claim gpu is allocated and no other pod uses it: as no node fits, the scheduler revokes "
        "the allocation and allocates again, unless taints, node selectors or a lack of cpu or "
        "memory keep the pod off the other nodes anyway",
    ),
    (
        reasons.ClaimStaysAllocated("gpu", "ns/c"),
        STAYS.format("ResourceClaim ns/c"),
    ),
    (
        reasons.ClaimStaysAllocated("gpu", ""),
        STAYS.format("the pod"),
    ),
    (
        reasons.NodeEndsAttempt("n2", 1, reasons.SelectorFailed("k/r", DEVICE, "no such key")),
        "node n2 (and 1 more) can keep the pod off all other nodes: if the scheduler looks at it, "
        "its attempt to place the pod ends in an error: "
        "k/r on gpu.example.com/n1/gpu-0: no such key",
    ),
    (
        reasons.TooFewAcceptableUnits(GPU, 7, 8, 8, Complaint.DEGRADED, health(0.5), 0.8),
        f"{GPU}: 7 acceptable of 8, 8 requested; the worst is Degraded (0.50): a fault",
    ),
    (
        reasons.RiskTooHigh(GPU, 7, 8, 1, 0.125, 0.1, health(0.2)),
        f"{GPU}: 7 acceptable of 8 that the device plugin may give, 1 requested: a bad one at "
        "12.5 %, more than 10 %; the worst is Unhealthy (0.20): a fault",
    ),
    (
        reasons.DeviceDegraded(
            "gpu/r", DEVICE, health(0.5), 0.8, passed_over=True, taint_would_help=True
        ),
        "gpu/r would get gpu.example.com/n1/gpu-0, which is Degraded (0.50): a fault; acceptable "
        "devices exist here, but the scheduler would not take them: a DeviceTaintRule with effect "
        "NoSchedule keeps it off those that are refused (the setting deviceTaints lets Fettle "
        "write it)",
    ),
    (
        reasons.DeviceRequirementNotMet("gpu/r", DEVICE, "driver 570 or later", passed_over=True),
        "gpu/r would get gpu.example.com/n1/gpu-0, which does not meet the policy: driver 570 or "
        "later; acceptable devices exist here, but the scheduler would not take them",
    ),
    (
        reasons.TooFewAcceptableDevices(DEVICE, Complaint.UNHEALTHY, health(0.0), 0.8),
        "which devices it would get is not decided, and there are not enough acceptable ones: "
        "gpu.example.com/n1/gpu-0 is Unhealthy (0.00): a fault",
    ),
    (
        reasons.BindingWouldBeAwaited("gpu", ("Ready",), (DEVICE,) * 4),
        "claim gpu would wait for condition Ready of gpu.example.com/n1/gpu-0, "
        "gpu.example.com/n1/gpu-0, gpu.example.com/n1/gpu-0, …",
    ),
    (
        reasons.BindingWouldBeAwaited("gpu", ("Ready", "Up"), (DEVICE,)),
        "claim gpu would wait for conditions Ready, Up of gpu.example.com/n1/gpu-0",
    ),
    (
        reasons.NodeNotWhole(GPU, (), unnamed=1),
        f"preferred: its other devices cannot serve pods that need all of its {GPU}: 1 withdrawn",
    ),
    (
        reasons.NodeNotWhole(GPU, (reasons.BadDevice("n/c", "Unhealthy"),)),
        f"preferred: its other devices cannot serve pods that need all of its {GPU}: "
        "n/c is Unhealthy",
    ),
    (
        reasons.Maintenance("MaintenancePlanned is True", begins_in_s=7200, runs_s=10800),
        "the last choice: maintenance begins in 2 h, before a pod that runs for 3 h would end: "
        "MaintenancePlanned is True",
    ),
    (
        reasons.Maintenance("MaintenancePlanned is True"),
        "the last choice: maintenance is under way: MaintenancePlanned is True",
    ),
    (
        reasons.PodStuck(
            StuckIn.CRASHING,
            1767225720.0,
            reasons.DeviceUnhealthy("gpu", DEVICE, health(0.0), 0.8, allocated=True),
        ),
        "stuck in CrashLoopBackOff since 2026-01-01 00:02:00 UTC: gpu is allocated "
        "gpu.example.com/n1/gpu-0, which is Unhealthy (0.00): a fault",
    ),
    (
        reasons.RuleSetAside(
            Source(SourceKind.TAINT, "test"), GPU, ("strict", "mild"), 40, 160, 0.2, burst=True
        ),
        "breaker: taint test is set aside in example.com/gpu: it alone condemns 40 of 160 (25 %; "
        "more than 20 %), within minutes, so by policies strict, mild what it condemns is the "
        "last choice of pods that have waited long enough; either the rule is wrong, or so much "
        "has really failed",
    ),
    (
        reasons.RequestsDoNotFit(),
        "not all requests can be met together (they compete for the same devices)",
    ),
    (
        reasons.RequestsDoNotFit((reasons.SharedCapacity(DEVICE),)),
        "not all requests can be met together (capacity of gpu.example.com/n1/gpu-0)",
    ),
    (
        reasons.RequestsDoNotFit((reasons.SharedCounters(POOL),), single=True),
        "too few devices fit together (counters of pool gpu.example.com/n1)",
    ),
    (
        reasons.RequestsDoNotFit((reasons.SharedConstraint("k", NUMA, distinct=True),), True),
        f"too few devices fit together (distinctAttribute {NUMA} of claim k)",
    ),
]


@pytest.mark.parametrize(("reason", "words"), WORDS, ids=lambda value: type(value).__name__)
def test_a_reason_says(reason: Reason, words: str) -> None:
    assert text(reason) == words


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
