"""Which devices should have a taint of Fettle's."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.resource import DeviceTaint
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher
from fettle.config import DeviceTaintSettings, Settings
from fettle.config.settings import SchedulerSettings
from fettle.dra import DeviceView
from fettle.model import (
    SOUND,
    Degraded,
    EvidenceKind,
    Family,
    NodeId,
    Placement,
    Source,
    SourceKind,
    State,
    Weighed,
)
from fettle.scheduling import Answers
from fettle.scheduling.judge.acceptance import Acceptance, Cause
from fettle.scheduling.plans import TaintPlan, plan_for, plan_taints, why_in_vain
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import Cluster
from tests.fettle.scheduling.plans.builders import fault, healthy_by

NOW = 10_000.0
UNHEALTHY, DEGRADED = "fettle.dev/unhealthy", "fettle.dev/degraded"
BOTH = DeviceTaintSettings(unhealthy="NoSchedule", degraded="NoSchedule", confirm_seconds=60)


def device(name: str, *evidence: Weighed, since: float = 0.0, taints: str = "") -> DeviceView:
    """`taints` are like "key=value:effect", separated by spaces."""
    parsed = []
    for one in taints.split():
        left, _, effect = one.rpartition(":")
        key, _, value = left.partition("=")
        parsed.append(DeviceTaint(key=key, value=value, effect=effect))
    made = b.device(name, taints=tuple(parsed))
    health = healthy_by(*evidence, since=since) if evidence else SOUND
    return msgspec.structs.replace(made, health=health)


def plan(
    *devices: DeviceView,
    settings: DeviceTaintSettings = BOTH,
    most: int | None = None,
    steers: bool = True,
    aside: frozenset[Cause] = frozenset(),
    now: float = NOW,
) -> TaintPlan:
    accepted = {
        State.UNHEALTHY: Acceptance(Placement(min_score=0), {b.DRIVER: aside}),
        State.DEGRADED: Acceptance(
            Placement(min_score=0, degraded=Degraded.REFUSE), {b.DRIVER: aside}
        ),
    }
    return plan_taints(devices, accepted, settings, now, lambda _: most, steers=steers)


def said(found: TaintPlan) -> dict[str, str]:
    return {
        device.device: f"{planned.taint.key}:{planned.taint.effect}"
        for device, planned in found.taints.items()
    }


def test_what_is_unhealthy_or_degraded_is_tainted_under_its_own_key_and_nothing_else_is() -> None:
    found = plan(
        device("dead", fault("dead", 1.0)),
        device("slow", fault("slow", 0.5)),
        device("worn", fault("worn", 0.1)),
        device("sound"),
        device("unknown", fault("unknown", 0.0, kind=EvidenceKind.UNKNOWN)),
    )
    assert said(found) == {"dead": f"{UNHEALTHY}:NoSchedule", "slow": f"{DEGRADED}:NoSchedule"}
    assert said(plan(device("dead", fault("dead", 1.0)), settings=DeviceTaintSettings())) == {}


@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
def test_the_effect_is_none_until_the_state_is_confirmed(effect: str) -> None:
    settings = msgspec.convert({"unhealthy": effect, "confirmSeconds": 60}, DeviceTaintSettings)
    bad = device("dead", fault("dead", 1.0), since=NOW - 20)
    early = plan(bad, settings=settings)
    assert said(early) == {"dead": f"{UNHEALTHY}:None"}
    assert early.due == NOW + 40
    assert said(plan(bad, settings=settings, now=NOW + 40)) == {"dead": f"{UNHEALTHY}:{effect}"}


def test_what_a_tenant_could_cause_or_is_wrong_with_the_node_or_held_taints_no_device() -> None:
    assert (
        said(
            plan(
                device("a", fault("a", 1.0, reporting_namespace="team-a")),
                device("b", fault("b", 1.0, of=NodeId("n"))),
                device("c", fault("c", 1.0, family=Family.OPERATOR, kind=EvidenceKind.LATCHED)),
            )
        )
        == {}
    )
    both = device("d", fault("d", 0.5), fault("d", 1.0, of=NodeId("n"), family=Family.NODE))
    assert said(plan(both)) == {"d": f"{DEGRADED}:NoSchedule"}


def test_for_causes_that_the_breaker_set_aside_no_taint_is_begun_and_none_is_taken_away() -> None:
    bad = device("dead", fault("dead", 1.0))
    aside = frozenset({Cause(Source(SourceKind.TAINT, "rule"), named=True)})
    assert said(plan(bad, aside=aside)) == {}
    assert said(
        plan(bad, aside=frozenset({Cause(Source(SourceKind.TAINT, "another rule"), named=True)}))
    )
    for effect in ("None", "NoSchedule", "NoExecute"):
        has = f"fettle.dev/unhealthy=assessed:{effect}"
        tainted = device("dead", fault("dead", 1.0), taints=has)
        assert said(plan(tainted, aside=aside)) == {"dead": f"{UNHEALTHY}:{effect}"}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gpu.nvidia.com/xid=79:NoSchedule", None),
        ("gpu.nvidia.com/xid=79:NoExecute", None),
        ("gpu.nvidia.com/xid=79:None", "NoSchedule"),
        ("fettle.dev/unhealthy=by-hand:NoSchedule", None),
        ("fettle.dev/unhealthy=assessed:NoSchedule", "NoSchedule"),
        ("fettle.dev/hold=annotated:NoSchedule", "NoSchedule"),
    ],
)
def test_what_somebody_else_taints_as_strongly_gets_no_taint_of_ours(
    theirs: str, ours: str | None
) -> None:
    found = said(plan(device("dead", fault("dead", 1.0), taints=theirs)))
    assert found == ({} if ours is None else {"dead": f"{UNHEALTHY}:{ours}"})


def test_degraded_devices_keep_effect_none_while_claims_get_no_fallback() -> None:
    slow, dead = device("slow", fault("slow", 0.5)), device("dead", fault("dead", 1.0))
    found = plan(slow, dead, steers=False)
    assert said(found) == {"slow": f"{DEGRADED}:None", "dead": f"{UNHEALTHY}:NoSchedule"}
    assert found.unproven == 1


def test_above_the_share_those_that_have_a_taint_keep_it_and_the_worst_come_first() -> None:
    mine = "fettle.dev/unhealthy=assessed:NoSchedule"
    devices = (
        device("newer", fault("newer", 1.0), since=50),
        device("older", fault("older", 1.0), since=10),
        device("has", fault("has", 1.0), since=90, taints=mine),
        device("slow", fault("slow", 0.5), since=1, taints=mine.replace("unhealthy", "degraded")),
    )
    found = plan(*devices, most=2)
    assert said(found) == {"has": f"{UNHEALTHY}:NoSchedule", "older": f"{UNHEALTHY}:NoSchedule"}
    assert found.over_share == {b.DRIVER: 2}


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, NOW)), max_size=8),
    st.integers(0, 8),
    st.booleans(),
)
def test_once_written_a_plan_stays_the_same_and_never_exceeds_the_share(
    faults: list[tuple[float, float]], most: int, steers: bool
) -> None:
    devices = [
        device(f"d{i}", fault(f"d{i}", weight), since=since)
        for i, (weight, since) in enumerate(faults)
    ]
    first = plan(*devices, most=most, steers=steers)
    assert len(first.taints) <= most
    written = [
        msgspec.structs.replace(
            d, taints=(first.taints[d.id].taint,) if d.id in first.taints else ()
        )
        for d in devices
    ]
    assert said(plan(*reversed(written), most=most, steers=steers)) == said(first)


def test_a_taint_that_only_informs_stays_beside_the_drivers_and_is_not_written_where_that_is() -> (
    None
):
    """Else it would come and go with a fault that does."""
    theirs, mine = "gpu.nvidia.com/xid=79:None", f"{UNHEALTHY}=assessed:None"
    bad = fault("dead", 1.0)
    assert said(plan(device("dead", bad, since=NOW, taints=theirs))) == {}
    both = device("dead", bad, since=NOW, taints=f"{theirs} {mine}")
    assert said(plan(both)) == {"dead": f"{UNHEALTHY}:None"}


async def planned_in(
    bad: int, *, nodes: int = 20, max_share: float = 0.2, kind: EvidenceKind = EvidenceKind.LEVEL
) -> TaintPlan | None:
    """In a fleet of nodes with eight devices each, of which one is bad on the first `bad` nodes."""
    cluster = Cluster()
    fleet: dict[str, NodeView] = {}
    for name in (f"n{i:02}" for i in range(nodes)):
        devices = [b.device(f"g{i}", pool=name, local=name) for i in range(8)]
        if len(fleet) < bad:
            dead = fault("g0", 1.0, of=devices[0].id, kind=kind)
            devices[0] = msgspec.structs.replace(devices[0], health=healthy_by(dead))
        fleet[name] = b.node(name, pools=(b.pool(*devices, name=name),))
    cluster.show(fleet)
    settings = msgspec.structs.replace(BOTH, max_share=max_share)
    return await plan_for(cluster.answers, settings, NOW, steers=True)


async def count_planned(bad: int, **fleet: Any) -> tuple[int, int]:
    """How many get a taint, and how many are as bad and get none."""
    found = await planned_in(bad, **fleet)
    assert found is not None
    return len(found.taints), sum(found.over_share.values())


async def test_a_rule_that_spoils_many_nodes_and_few_devices_is_not_set_aside() -> None:
    for bad in (3, 6):
        assert await count_planned(bad) == (bad, 0)
        assert await count_planned(bad, kind=EvidenceKind.LATCHED) == (bad, 0)


async def test_the_share_counts_all_causes_and_only_where_there_are_enough_nodes() -> None:
    assert await count_planned(3, max_share=0.0125) == (2, 1)
    assert await count_planned(3, max_share=0.0) == (0, 3)
    assert await count_planned(3, nodes=9, max_share=0.0) == (3, 0)


@pytest.mark.parametrize(
    ("served", "gates", "says"),
    [
        (True, "", ""),
        (False, "", "serves no DeviceTaintRules"),
        (True, "DRADeviceTaintRules=false", "the scheduler ignores DeviceTaintRules"),
    ],
)
def test_it_is_known_when_the_scheduler_would_obey_no_rule(
    served: bool, gates: str, says: str
) -> None:
    publisher = Publisher()
    publisher.publish(b.view(served={"DeviceTaintRule": served}), frozenset())
    settings = Settings(scheduler=SchedulerSettings(feature_gates=gates))
    found = why_in_vain(Answers(publisher, SelectorEngine(), settings))
    assert says in found
    assert bool(found) == bool(says)


async def test_before_anything_is_counted_there_is_no_plan_so_that_no_rule_is_removed() -> None:
    assert await planned_in(0, nodes=0) is None
