import pickle
from collections.abc import Iterator, Set
from itertools import permutations

import msgspec
import pytest

from fettle.api import core, kinds
from fettle.cluster import NodeMarks, NodeView
from fettle.config import BreakerSettings
from fettle.dra import DeviceView, PoolView
from fettle.model import BUILT_IN, EvidenceKind, State
from fettle.scheduling.breaker import Breaker
from fettle.scheduling.judge.acceptance import complaint
from tests.fettle import building as b
from tests.fettle.cluster.inventory import fleets
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.scheduling.census import BreakerWithCensus, share

TRAINING = BUILT_IN["training"].placement


class Walked(tuple[DeviceView, ...]):
    """Devices, with a count of how often they were iterated."""

    times = 0

    def __iter__(self) -> Iterator[DeviceView]:
        self.times += 1
        return super().__iter__()


def fleet(bad: int, *, total: int = 20, held: bool = False) -> dict[str, NodeView]:
    return {
        f"n{i}": b.node(f"n{i}", gpus=8, own=b.health(0.1, held=held) if i < bad else b.health(1))
        for i in range(total)
    }


def opened(nodes: dict[str, NodeView], settings: BreakerSettings | None = None) -> Set[str]:
    breaker = BreakerWithCensus(TRAINING, settings)
    breaker.update(nodes, nodes)
    return breaker.open


def test_refusing_a_fifth_of_a_pool_is_allowed_and_more_is_not() -> None:
    assert opened(fleet(4)) == set()
    assert opened(fleet(5)) == {b.RESOURCE}


def test_holds_do_not_open_the_breaker() -> None:
    assert opened(fleet(20, held=True)) == set()


def test_in_a_pool_on_fewer_than_ten_nodes_a_rule_may_condemn_half() -> None:
    assert opened(fleet(4, total=9)) == set()
    assert opened(fleet(5, total=9)) == {b.RESOURCE}
    assert opened(fleet(2, total=4)) == set()
    assert opened(fleet(1, total=1)) == {b.RESOURCE}
    assert opened(fleet(3, total=10)) == {b.RESOURCE}


def test_in_a_small_pool_only_waits_are_bounded() -> None:
    """One dead device may be most of it, and something is done about that."""
    for total, aside in ((9, set()), (10, {b.RESOURCE})):
        breaker, nodes = BreakerWithCensus(TRAINING), fleet(9, total=total)
        breaker.update(nodes, nodes)
        assert (breaker.open, set(breaker.not_acted_on)) == ({b.RESOURCE}, aside)


def test_a_device_that_is_refused_for_its_state_alone_counts() -> None:
    """Its score is good again, but it is Degraded until 0.90."""
    lasting = msgspec.structs.replace(b.health(0.85), state=State.DEGRADED)
    assert opened({f"n{i}": b.node(f"n{i}", gpus=8, own=lasting) for i in range(20)})


@pytest.mark.parametrize("kind", [EvidenceKind.LATCHED, EvidenceKind.LEVEL])
def test_a_share_that_is_set_higher_holds_for_all_evidence(kind: EvidenceKind) -> None:
    ill = b.ill(("xid", 1.0), kind=kind)
    nodes = {f"n{i}": b.node(f"n{i}", gpus=8, own=ill) for i in range(12)} | {
        f"s{i}": b.node(f"s{i}", gpus=8) for i in range(8)
    }
    assert opened(nodes, BreakerSettings(max_excluded_share=0.6)) == set()
    assert opened(nodes, BreakerSettings(max_excluded_share=0.59)) == {b.RESOURCE}


def test_the_breaker_closes_when_nodes_recover_counting_only_changed_nodes() -> None:
    nodes = fleet(6)
    breaker = BreakerWithCensus(TRAINING)
    assert breaker.update(nodes, nodes)
    healed = {**nodes, "n0": b.node("n0", gpus=8), "n1": b.node("n1", gpus=8)}
    assert breaker.update(("n0", "n1"), healed)
    assert breaker.open == set()


def test_a_removed_node_no_longer_counts() -> None:
    nodes = fleet(5)
    breaker = BreakerWithCensus(TRAINING)
    breaker.update(nodes, nodes)
    del nodes["n0"]
    breaker.update(("n0",), nodes)
    assert share(breaker, b.RESOURCE) == 4 / 19


UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def tainted(node: NodeView, key: str = UNSCHEDULABLE, effect: str = "NoSchedule") -> NodeView:
    return msgspec.structs.replace(node, taints=(core.Taint(key=key, effect=effect),))


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
@pytest.mark.parametrize("key", [UNSCHEDULABLE, NOT_READY, UNREACHABLE])
def test_cordoned_and_lost_nodes_do_not_count(key: str, effect: str) -> None:
    nodes = fleet(4, total=15)
    nodes |= {name: tainted(nodes[name], key, effect) for name in ("n1", "n2", "n3")}
    breaker = BreakerWithCensus(TRAINING)
    breaker.update(nodes, nodes)
    assert share(breaker, b.RESOURCE) == 1 / 12
    assert breaker.open == set()


@pytest.mark.parametrize(
    ("key", "effect"),
    [
        ("nvidia.com/gpu", "NoSchedule"),
        ("example.com/maintenance", "NoExecute"),
        (UNSCHEDULABLE, "PreferNoSchedule"),
    ],
)
def test_nodes_with_other_taints_count(key: str, effect: str) -> None:
    nodes = {name: tainted(node, key, effect) for name, node in fleet(5).items()}
    assert opened(nodes) == {b.RESOURCE}


def test_an_uncordoned_node_counts_again() -> None:
    nodes = fleet(5)
    cordoned = {**nodes, **{name: tainted(nodes[name]) for name in ("n0", "n1")}}
    breaker = BreakerWithCensus(TRAINING)
    breaker.update(nodes, cordoned)
    assert share(breaker, b.RESOURCE) == 3 / 18
    assert breaker.update(("n0", "n1"), nodes)
    assert breaker.open == {b.RESOURCE}
    assert breaker.update(("n0", "n1"), cordoned)
    assert breaker.open == set()


def test_nodes_that_fettle_itself_has_cordoned_go_on_counting() -> None:
    """Else each of its cordons would hide a fault of the cause that made it."""
    nodes = fleet(5)
    ours = NodeMarks(cordon="1 Unhealthy of 8 devices")
    cordoned = {
        name: msgspec.structs.replace(tainted(nodes[name]), marks=ours) for name in ("n0", "n1")
    }
    assert opened({**nodes, **cordoned}) == {b.RESOURCE}
    lost = {
        name: msgspec.structs.replace(tainted(nodes[name], NOT_READY), marks=ours)
        for name in ("n0", "n1")
    }
    assert opened({**nodes, **lost}) == set()


def test_a_pool_whose_nodes_are_all_cordoned_is_not_judged() -> None:
    nodes = fleet(20)
    breaker = BreakerWithCensus(TRAINING, BreakerSettings(min_nodes=0))
    assert breaker.update(nodes, nodes)
    assert breaker.update(nodes, {name: tainted(node) for name, node in nodes.items()})
    assert breaker.open == set()
    assert share(breaker, b.RESOURCE) == 0


def test_a_pool_with_few_schedulable_nodes_is_small() -> None:
    nodes = fleet(3, total=12)
    assert opened(nodes) == {b.RESOURCE}
    cordoned = {name: tainted(nodes[name]) for name in ("n9", "n10", "n11")}
    assert opened({**nodes, **cordoned}) == set()


def test_a_network_device_that_only_cordoned_nodes_see_does_not_count() -> None:
    shared = b.pool(b.device("good", local=""), name="shared")
    apart = b.pool(b.device("bad", 0.1, local=""), name="apart")
    nodes = {f"n{i}": b.node(f"n{i}", pools=(shared,)) for i in range(10)}
    nodes["apart"] = tainted(b.node("apart", pools=(shared, apart)))
    assert opened(nodes) == set()


def test_cordoned_nodes_do_not_open_the_breaker_for_dead_devices() -> None:
    cluster = Fleet()
    lost = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    for i in range(15):
        node = fleets.node(f"n{i}", status={"conditions": [lost] if i < 4 else []})
        if i in (1, 2):
            taint = {"key": UNSCHEDULABLE, "effect": "NoSchedule"}
            node["spec"] = {"unschedulable": True, "taints": [taint]}
        if i == 3:
            keys = {"NoSchedule": UNREACHABLE, "NoExecute": UNREACHABLE}
            node["spec"] = {"taints": [{"key": k, "effect": e} for e, k in keys.items()]}
        cluster.put(kinds.NODE, node)
    assert opened(dict(cluster.look().nodes)) == set()


def test_each_bad_unit_counts_as_one_unit() -> None:
    nodes = {f"n{i}": b.node(f"n{i}", gpus=8, units={"a": 0.1}) for i in range(20)}
    breaker = BreakerWithCensus(TRAINING)
    breaker.update(nodes, nodes)
    assert share(breaker, b.RESOURCE) == 1 / 8


def test_a_network_device_counts_once_however_many_nodes_see_it() -> None:
    fabric = [b.device("bad", 0.1, local=""), *(b.device(f"f{i}", local="") for i in range(4))]
    nodes = {f"n{i}": b.node(f"n{i}", pools=(b.pool(*fabric),)) for i in range(20)}
    nodes["n0"] = b.node("n0", pools=(b.pool(*fabric), b.pool(b.device("own", 0.1), name="n0")))
    breaker = BreakerWithCensus(TRAINING)
    breaker.update(nodes, nodes)
    assert share(breaker, b.DRIVER) == 2 / 6
    healed = {n: b.node(n, pools=(b.pool(*fabric[1:]),)) for n in list(nodes)[:19]}
    breaker.update(nodes, healed)
    assert share(breaker, b.DRIVER) == 0
    breaker.update(nodes, {})
    assert share(breaker, b.DRIVER) == 0


def test_a_pool_shared_by_many_nodes_is_counted_only_a_few_times() -> None:
    walked = []
    for number in (10, 100):
        devices = Walked([b.device("bad", 0.1, local=""), b.device("good", local="")])
        fabric = PoolView(b.DRIVER, "fabric", devices)
        nodes = {f"n{i}": b.node(f"n{i}", pools=(fabric,)) for i in range(number)}
        breaker = BreakerWithCensus(TRAINING)
        breaker.update(nodes, nodes)
        assert share(breaker, b.DRIVER) == 1 / 2
        changed = {name: b.node(name, gpus=8, pools=(fabric,)) for name in nodes}
        breaker.update(changed, changed)
        breaker.update(changed, {})
        walked.append(devices.times)
    assert walked[0] == walked[1] <= 4


def test_network_devices_that_came_and_went_take_no_memory() -> None:
    breaker = BreakerWithCensus(TRAINING)
    sizes = []
    for number in range(1000):
        pool = b.pool(b.device(f"f{number}", local=""))
        breaker.update(("n",), {"n": b.node("n", pools=(pool,))})
        sizes.append(len(pickle.dumps(breaker)))
    assert max(sizes) - min(sizes) < 100


def test_the_order_in_which_placements_are_asked_for_does_not_matter() -> None:
    fabric = (b.device("bad", 0.5, local=""), b.device("good", local=""))
    nodes = {
        **fleet(5),
        "unit": b.node("unit", gpus=8, units={"a": 0.5}),
        "own": b.node("own", pools=(b.pool(b.device("d", 0.5), *fabric, name="own"),)),
        **{f"s{i}": b.node(f"s{i}", pools=(b.pool(*fabric),)) for i in range(10)},
    }
    for first, second in permutations([p.placement for p in BUILT_IN.values()], 2):
        breaker = BreakerWithCensus(first)
        breaker.update(nodes, nodes)
        derived = Breaker(second, BreakerSettings(), breaker.census)
        derived.judge()
        fresh = BreakerWithCensus(second)
        fresh.update(nodes, nodes)
        later = {**nodes, "n0": b.node("n0", gpus=8), "n9": b.node("n9", gpus=8, own=b.health(0))}
        for _ in range(2):
            for pool in (b.RESOURCE, b.DRIVER):
                assert share(derived, pool) == share(fresh, pool)
            assert derived.set_aside == fresh.set_aside
            breaker.update(("n0", "n9"), later)
            derived.judge()
            fresh.update(("n0", "n9"), later)


def test_evidence_from_a_tenant_neither_refuses_nodes_nor_opens_the_breaker() -> None:
    cluster = Fleet()
    lost = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    for i in range(20):
        status = {"conditions": [lost] if i == 0 else []}
        cluster.put(kinds.NODE, fleets.node(f"n{i}", status=status))
    for i in range(1, 20):
        refused = b.gpu_pod(name=f"p{i}")
        refused["spec"]["nodeName"] = f"n{i}"
        refused["status"] = {
            "phase": "Failed",
            "reason": "UnexpectedAdmissionError",
            "message": "Pod was rejected: Allocate failed due to y, which is unexpected",
            "startTime": "1970-01-12T13:46:40Z",
        }
        cluster.put(kinds.POD, refused)
    nodes = dict(cluster.look().nodes)
    assert nodes["n1"].health.score == 0.65
    refused_nodes = [name for name in nodes if complaint(nodes[name].health, TRAINING) is not None]
    assert refused_nodes == ["n0"]
    assert opened(nodes) == set()
