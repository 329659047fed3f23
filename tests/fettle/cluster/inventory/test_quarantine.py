"""Objects that cannot be read make the pools that they are about unclear, and nothing else."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from fettle.api import Bad, kinds
from fettle.api.kinds import Kind
from fettle.cel.runtime.protocol import MATCH
from fettle.cluster.inventory import inventory, reporting, starts, stores
from fettle.config import HealthSettings
from fettle.dra import AllocationStatus, Alternative, Claim, Request
from fettle.dra.allocator import allocate
from fettle.explain.wording import texts
from fettle.health import HealthBook, report_of_taint_rule
from fettle.model import Health, NodeId, State, Subject
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import RULES, Fleet, claim, node, slice_


@pytest.fixture
def fleet(fleet: Fleet) -> Fleet:
    """Two nodes, each with a pool of its own."""
    for name in ("n", "other"):
        fleet.put(kinds.NODE, node(name))
        fleet.put(kinds.SLICE, slice_(name))
    fleet.look()
    return fleet


def doubts(fleet: Fleet) -> dict[str, list[str]]:
    """What is unclear about the pools of each node."""
    nodes = fleet.look().nodes.values()
    return {n.name: [p.unclear for p in n.pools if p.unclear] for n in nodes}


def broken_claim() -> Any:
    return claim("c", "gpu-0") | {"spec": {"devices": 5}}


def broken_rule() -> Any:
    selector = {"driver": b.DRIVER, "pool": "n"}
    return {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": 5}}


@pytest.mark.parametrize(
    ("kind", "broken", "says"),
    [
        (kinds.CLAIM, broken_claim(), "ResourceClaim d/c cannot be read, and may hold"),
        (kinds.TAINT_RULE, broken_rule(), "DeviceTaintRule r cannot be read, and may taint"),
    ],
)
def test_its_pools_are_unclear_until_it_can_be_read_or_is_gone(
    fleet: Fleet, kind: Kind, broken: Any, says: str
) -> None:
    before = fleet.view.nodes
    fleet.take(kind, broken)
    found = doubts(fleet)
    assert says in found["n"][0]
    assert not found["other"]
    assert fleet.changed == {"n"}
    assert fleet.view.nodes["n"].pools[0].fingerprint != before["n"].pools[0].fingerprint
    fleet.inventory.remove(kind, "d/c" if kind is kinds.CLAIM else "r", fleet.now)
    assert doubts(fleet) == {"n": [], "other": []}
    assert fleet.view.nodes["n"].pools == before["n"].pools


def test_a_claim_whose_devices_move_to_another_pool_while_unreadable_takes_the_doubt_along(
    fleet: Fleet,
) -> None:
    fleet.take(kinds.CLAIM, broken_claim())
    fleet.look()
    fleet.take(kinds.CLAIM, claim("c", "gpu-0", pool="other") | {"spec": 5})
    found = doubts(fleet)
    assert (bool(found["n"]), bool(found["other"])) == (False, True)


def test_what_a_claim_was_known_to_hold_is_not_known_any_more(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, claim("c", "gpu-0"))
    fleet.look()
    fleet.take(kinds.CLAIM, claim("c", "gpu-0", pool="other") | {"spec": 5})
    assert (bool(doubts(fleet)["n"]), bool(doubts(fleet)["other"])) == (False, True)
    assert not any(d.allocated for n in fleet.view.nodes.values() for d in n.pools[0].devices)
    assert not fleet.view.claims


def test_what_a_rule_was_known_to_taint_is_not_known_any_more(fleet: Fleet) -> None:
    taint = {"key": "gaudi.intel.com/unhealthy", "value": "CriticalError", "effect": "NoExecute"}
    spec = {"deviceSelector": {"pool": "n"}, "taint": taint}
    fleet.put(kinds.TAINT_RULE, {"metadata": {"name": "r"}, "spec": spec})
    assert fleet.look().nodes["n"].pools[0].devices[0].health.state is State.UNHEALTHY
    moved = {"deviceSelector": {"pool": "other"}, "taint": 5}
    fleet.take(kinds.TAINT_RULE, {"metadata": {"name": "r"}, "spec": moved})
    assert (bool(doubts(fleet)["n"]), bool(doubts(fleet)["other"])) == (False, True)
    device = fleet.view.nodes["n"].pools[0].devices[0]
    assert (device.taints, device.health.state) == ((), State.HEALTHY)


def test_a_rule_that_selects_by_what_is_not_known_taints_what_it_may_select_perhaps(
    fleet: Fleet,
) -> None:
    spec = {
        "deviceSelector": {"pool": "n", "selectors": [{"cel": {"expression": "false"}}]},
        "taint": {"key": "k", "effect": "NoSchedule"},
    }
    fleet.take(kinds.TAINT_RULE, {"metadata": {"name": "r"}, "spec": spec})
    found = doubts(fleet)
    assert "DeviceTaintRule r cannot be read, and may taint" in found["n"][0]
    assert not found["other"]
    assert not fleet.view.nodes["n"].pools[0].devices[0].taints


def test_what_a_slice_was_known_to_publish_is_not_known_any_more(fleet: Fleet) -> None:
    moved = slice_("other") | {"metadata": {"name": "n-slice"}}
    moved["spec"]["devices"] = 5
    fleet.take(kinds.SLICE, moved)
    nodes = fleet.look().nodes
    assert (nodes["n"].pools, nodes["n"].quarantined) == ((), ())
    assert "n-slice" in nodes["other"].quarantined[0]


@pytest.mark.parametrize("kind", [kinds.CLASS, kinds.TEMPLATE, kinds.NAMESPACE, kinds.POLICY])
def test_unreadable_objects_change_the_basis_of_verdicts(fleet: Fleet, kind: Kind) -> None:
    """Not known before, unreadable for a reason and then for another, and gone."""
    bases = [fleet.view.basis]
    for reason in ("a", "a", "b"):
        fleet.inventory.quarantine(Bad(kind, "x", reason), fleet.now)
        bases.append(fleet.look().basis)
    fleet.inventory.remove(kind, "x", fleet.now)
    bases.append(fleet.look().basis)
    assert [later - first for first, later in pairwise(bases)] == [1, 0, 1, 1]


def test_a_hidden_pool_comes_as_early_as_it_could(fleet: Fleet) -> None:
    """Of its devices nothing is known, nor whether they have binding conditions."""
    fleet.put(kinds.SLICE, slice_("n", bindingConditions=["ready"]))
    for name, network in (("s", "zoo"), ("t", "0"), ("u", None)):
        spec = {"driver": b.DRIVER, "allNodes": True, "pool": {"name": network}, "devices": 5}
        fleet.take(kinds.SLICE, {"metadata": {"name": name}, "spec": spec})
    assert [p.name for p in fleet.look().nodes["n"].pools] == ["of unknown name", "0", "zoo", "n"]


def test_only_unreadable_slices_make_a_pool_without_devices_unclear(fleet: Fleet) -> None:
    waiting = slice_("n", devices=1)
    waiting["spec"]["pool"]["resourceSliceCount"] = 2
    fleet.put(kinds.SLICE, waiting)
    fleet.take(kinds.CLAIM, broken_claim())
    assert not doubts(fleet)["n"]
    spec = waiting["spec"] | {"allNodes": True, "devices": 5}
    del spec["nodeName"]
    fleet.take(kinds.SLICE, {"metadata": {"name": "more"}, "spec": spec})
    assert ["ResourceSlice more" in why for why in doubts(fleet)["n"]] == [True]


def test_of_many_unreadable_objects_only_the_first_by_name_is_mentioned(
    fleet: Fleet,
) -> None:
    """Another one where that can be read again, or is gone."""

    def told() -> set[tuple[str, ...]]:
        return {tuple(why.split()[1] for why in whys) for whys in doubts(fleet).values()}

    for name in "cabd":
        fleet.take(kinds.SLICE, {"metadata": {"name": name}, "spec": 5})
    assert told() == {("a", "a")}
    assert [p.name for p in fleet.view.nodes["n"].pools] == ["of unknown name", "n"]
    fleet.inventory.remove(kinds.SLICE, "d", fleet.now)
    fleet.look()
    assert not fleet.changed
    fleet.inventory.remove(kinds.SLICE, "a", fleet.now)
    assert told() == {("b", "b")}
    fleet.take(kinds.SLICE, slice_("n") | {"metadata": {"name": "b"}})
    assert told() == {("c", "c")}
    assert len(fleet.view.quarantined) == 1
    fleet.inventory.remove(kinds.SLICE, "c", fleet.now)
    assert told() == {()}


@pytest.mark.parametrize("first", [0, 1])
def test_of_objects_that_make_different_pools_unclear_only_the_first_by_name_is_mentioned(
    fleet: Fleet, first: int
) -> None:
    of_any_pool = {**broken_claim(), "status": 5}
    both = [(kinds.CLAIM, of_any_pool), (kinds.TAINT_RULE, broken_rule())]
    for kind, raw in (both[first], both[1 - first]):
        fleet.take(kind, raw)
    found = doubts(fleet)
    assert "DeviceTaintRule r" in found["n"][0]
    assert "ResourceClaim d/c" in found["other"][0]


def of_both(on: str, generation: int = 1, count: int = 2, **more: Any) -> Any:
    """A node's slice of a pool that two nodes share."""
    made: Any = slice_(on, generation=generation)
    made["spec"] |= {"pool": {**made["spec"]["pool"], "name": "both"}, **more}
    made["spec"]["pool"]["resourceSliceCount"] = count
    made["metadata"]["name"] = f"both-{on}-{generation}"
    return made


NEWER = of_both("other", generation=2, devices=5)
TWICE = [{"name": "gpu-0"}, {"name": "gpu-0"}]


@pytest.mark.parametrize(
    "there",
    [
        [of_both("n"), of_both("other", devices=5)],
        [of_both("n"), of_both("other"), NEWER],
        [of_both("n"), of_both("other"), of_both("more"), NEWER],
        [of_both("n", devices=TWICE), of_both("other"), NEWER],
    ],
    ids=[
        "one that it lacks",
        "one newer than what makes it whole",
        "one newer than too many",
        "one newer than what is invalid",
    ],
)
def test_a_nodes_pool_rests_on_slices_for_other_nodes_which_may_be_unreadable(
    fleet: Fleet, there: list[Any]
) -> None:
    for raw in there:
        fleet.take(kinds.SLICE, raw)
    (why,) = doubts(fleet)["n"]
    assert f"ResourceSlice {there[-1]['metadata']['name']} cannot be read" in why


def test_a_pool_of_which_a_node_has_all_slices_rests_on_no_other_nodes(fleet: Fleet) -> None:
    """Nor one without devices, of which it then has none."""
    empty = of_both("n", count=1, driver="none.example.com", devices=[])
    empty["metadata"]["name"] = "empty"
    for raw in (of_both("n", count=1), empty):
        fleet.take(kinds.SLICE, raw)
    before = fleet.look().nodes["n"]
    fleet.take(kinds.SLICE, of_both("other", generation=2, devices=5))
    assert fleet.look().nodes["n"] == before
    fleet.take(kinds.SLICE, of_both("other", devices=5, driver=5))
    assert fleet.look().nodes["n"] == before


def test_any_pool_may_have_devices_of_an_unreadable_slice_for_all_nodes(fleet: Fleet) -> None:
    spec = slice_()["spec"] | {"allNodes": True, "devices": 5}
    del spec["nodeName"]
    fleet.take(kinds.SLICE, {"metadata": {"name": "s"}, "spec": spec})
    found = doubts(fleet)
    assert [p.unclear for p in fleet.view.nodes["n"].pools if p.devices] == found["n"]


def test_an_unreadable_slice_for_all_nodes_gives_each_node_an_unclear_pool(fleet: Fleet) -> None:
    spec = slice_()["spec"] | {"allNodes": True, "pool": {"name": "net", "generation": "x"}}
    del spec["nodeName"]
    fleet.take(kinds.SLICE, {"metadata": {"name": "s"}, "spec": spec})
    found = doubts(fleet)
    assert all("ResourceSlice s cannot be read, and may publish" in why for [why] in found.values())
    assert {p.name for p in fleet.view.nodes["n"].pools} == {"n", "net"}
    fleet.inventory.remove(kinds.SLICE, "s", fleet.now)
    assert doubts(fleet) == {"n": [], "other": []}


def test_an_object_that_stays_equally_unreadable_changes_nothing(fleet: Fleet) -> None:
    fleet.take(kinds.CLAIM, broken_claim())
    before = fleet.look()
    fleet.take(kinds.CLAIM, broken_claim())
    assert fleet.look().nodes == before.nodes


def test_an_unreadable_class_does_not_count_as_what_it_was_before(fleet: Fleet) -> None:
    read = {"metadata": {"name": "c"}, "spec": {}}
    fleet.take(kinds.CLASS, read)
    assert "c" in fleet.look().classes
    fleet.take(kinds.CLASS, read | {"spec": {"config": 5}})
    assert "c" not in fleet.look().classes
    assert "DeviceClass c" in fleet.view.quarantined
    fleet.take(kinds.CLASS, read)
    assert "c" in fleet.look().classes
    assert not fleet.view.quarantined


SHARE = {"shareID": "a", "consumedCapacity": {"memory": "much"}}


def shared_claim(**result: Any) -> Any:
    made = claim("c", "gpu-0")
    made["status"]["allocation"]["devices"]["results"][0] |= result
    return made


def test_a_share_of_unreadable_size_makes_its_pool_unclear(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.take(kinds.CLAIM, shared_claim(**SHARE))
        found = doubts(fleet)
        assert "ResourceClaim d/c cannot be read" in found["n"][0]
        assert not found["other"]
    assert "its consumption of memory" in fleet.view.quarantined["ResourceClaim d/c"]
    fleet.take(kinds.CLAIM, shared_claim(**SHARE | {"consumedCapacity": {"memory": "4Gi"}}))
    assert not doubts(fleet)["n"]


def test_equal_shares_in_one_claim_add_up(fleet: Fleet) -> None:
    made = shared_claim(**SHARE | {"consumedCapacity": {"memory": "4"}})
    results = made["status"]["allocation"]["devices"]["results"]
    results *= 2
    fleet.take(kinds.CLAIM, made)
    assert fleet.look().nodes["n"].pools[0].devices[0].consumed == {"memory": 8 * 10**9}
    del results[1]
    fleet.take(kinds.CLAIM, made)
    assert fleet.look().nodes["n"].pools[0].devices[0].consumed == {"memory": 4 * 10**9}


class Defective(HealthBook):
    """Fails on one node, as a defect of ours would."""

    def __init__(self, failing: Exception) -> None:
        super().__init__(HealthSettings(), RULES)
        self._failing = failing

    def assess(self, key: Subject, subjects: Iterable[Subject], now: float) -> Health:
        if key == NodeId("n"):
            raise self._failing
        return super().assess(key, subjects, now)


@pytest.mark.parametrize("failing", [ZeroDivisionError("by a defect"), KeyError("name")], ids=repr)
def test_a_node_that_cannot_be_judged_is_unknown_and_costs_no_other(failing: Exception) -> None:
    fleet = Fleet(Defective(failing))
    for name in ("n", "other"):
        fleet.put(kinds.NODE, node(name))
    nodes = fleet.look().nodes
    assert nodes["n"].health.state is State.UNKNOWN
    assert nodes["n"].quarantined == (f"Node n: cannot be judged: {failing!r}",)
    assert nodes["other"].health.state is State.HEALTHY
    assert nodes["other"].plugins


@pytest.mark.parametrize("reader", ["held_devices", "unreadable_shares"])
def test_a_claim_on_which_reading_fails_no_longer_holds_what_it_held(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """However much of it was folded in."""
    fleet.put(kinds.CLAIM, claim("c", "gpu-0"))

    def fail(_: object) -> None:
        raise ZeroDivisionError("by a defect")

    with monkeypatch.context() as defect:
        defect.setattr(inventory, reader, fail)
        fleet.put(kinds.CLAIM, claim("c", "gpu-1"))
        assert not any(d.allocated for d in fleet.look().nodes["n"].pools[0].devices)
        assert not fleet.view.claims
        assert "by a defect" in fleet.view.quarantined["ResourceClaim d/c"]
    fleet.put(kinds.CLAIM, claim("c", "gpu-1"))
    assert [d.allocated for d in fleet.look().nodes["n"].pools[0].devices] == [False, True]
    fleet.inventory.remove(kinds.CLAIM, "d/c", fleet.now)
    assert not any(d.allocated for d in fleet.look().nodes["n"].pools[0].devices)


def test_an_object_that_cannot_be_removed_is_named_and_costs_no_other(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("c", "e"):
        fleet.put(kinds.CLAIM, claim(name, f"gpu-{'ce'.index(name)}"))
    index = stores.Stores.index_claim

    def fail(found: Any, old: Any, new: Any) -> None:
        if old is not None and old.metadata.name == "c":
            raise ZeroDivisionError("by a defect")
        index(found, old, new)

    with monkeypatch.context() as defect:
        defect.setattr(stores.Stores, "index_claim", fail)
        fleet.inventory.begin_list(kinds.CLAIM)
        fleet.inventory.end_list(kinds.CLAIM, fleet.now)
    fleet.look()
    assert not fleet.view.claims
    assert [*fleet.view.quarantined] == ["ResourceClaim d/c"]
    assert "cannot be removed" in fleet.view.quarantined["ResourceClaim d/c"]
    fleet.inventory.remove(kinds.CLAIM, "d/c", fleet.now)
    fleet.look()
    assert not fleet.view.quarantined


def test_a_node_that_cannot_be_removed_is_not_shown_any_more(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object, __: object, ___: object) -> None:
        raise ZeroDivisionError("by a defect")

    with monkeypatch.context() as defect:
        defect.setattr(reporting.Reports, "node_left", fail)
        fleet.inventory.remove(kinds.NODE, "n", fleet.now)
    assert fleet.look().nodes.keys() == {"other"}
    assert [*fleet.view.quarantined] == ["Node n"]


def test_a_rule_on_which_reading_fails_is_named_and_costs_no_other(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(rule: Any, *others: Any) -> Any:
        if rule.metadata.name == "bad":
            raise ZeroDivisionError("by a defect")
        return report_of_taint_rule(rule, *others)

    monkeypatch.setattr(reporting, "report_of_taint_rule", fail)
    for name, pool in (("bad", "n"), ("good", "other")):
        taint = {"key": "example.com/ill", "effect": "NoExecute"}
        spec = {"deviceSelector": {"driver": b.DRIVER, "pool": pool}, "taint": taint}
        fleet.put(kinds.TAINT_RULE, {"metadata": {"name": name}, "spec": spec})
    nodes = fleet.look().nodes
    assert [*fleet.view.quarantined] == ["DeviceTaintRule bad"]
    assert [*fleet.view.taint_rules] == ["good"]
    assert all(d.health.evidence for d in nodes["other"].pools[0].devices)


def test_where_failed_starts_cannot_be_told_nodes_are_judged_all_the_same(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> Any:
        raise ZeroDivisionError("by a defect")

    monkeypatch.setattr(starts.Starts, "reports", fail)
    fleet.put(kinds.NODE, node("new"))
    assert "new" in fleet.look().nodes


WANTED = Claim("c", (Request("r", (Alternative("r", selectors=("true",)),)),))


@pytest.mark.parametrize(
    ("spec", "pool"),
    [
        (5, "pool of unknown name"),
        (
            {"driver": b.DRIVER, "allNodes": True, "pool": 5},
            f"{b.DRIVER} pool of unknown name",
        ),
    ],
)
def test_a_pool_whose_name_is_unreadable_too_is_mentioned_in_plain_words(
    fleet: Fleet, spec: Any, pool: str
) -> None:
    fleet.take(kinds.SLICE, {"metadata": {"name": "s"}, "spec": spec})
    found = allocate([WANTED], fleet.look().nodes["n"].pools, lambda _, device: MATCH)
    (why,) = texts(found.reasons)
    assert why == f"{pool}: ResourceSlice s cannot be read, and may publish devices of this pool"


def test_the_allocator_stops_at_a_hidden_pool(fleet: Fleet) -> None:
    spec = slice_()["spec"] | {"allNodes": True, "pool": {"name": "a", "resourceSliceCount": 1}}
    del spec["nodeName"]
    answers = []
    for devices in (spec["devices"], 5, spec["devices"]):
        fleet.take(kinds.SLICE, {"metadata": {"name": "s"}, "spec": spec | {"devices": devices}})
        found = allocate([WANTED], fleet.look().nodes["n"].pools, lambda _, device: MATCH)
        answers.append([taken.device.id.pool for taken in found.devices] or found.found)
    assert answers == [["a"], AllocationStatus.UNDECIDED, ["a"]]
