"""Preemption of pods with DRA devices: nodes are judged as they are once their victims are gone."""

from typing import Any

import pytest

from fettle.api import kinds
from fettle.scheduling import Preemption
from fettle.scheduling.preemption import RELEASE_S
from tests.extender.conftest import Extender
from tests.fettle import building as b
from tests.fettle.browse.showing import known, told
from tests.fettle.cluster.inventory.fleets import Fleet, node
from tests.fettle.others import turns_during

Raw = dict[str, Any]
LOST = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "None"}]


class Cluster(Fleet):
    """Nodes with the devices a and b of one driver, of which one is lost."""

    def node(self, name: str, *, lost: str, **device: Any) -> None:
        self.put(kinds.CLASS, {"metadata": {"name": b.DRIVER}, "spec": EXTENDED})
        self.put(kinds.TEMPLATE, {"metadata": meta("one"), "spec": {"spec": spec()}})
        self.put(kinds.NODE, node(name, gpus=0))
        devices = [{"name": d, "taints": LOST if d == lost else [], **device} for d in "ab"]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        sliced = {"driver": b.DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        self.put(kinds.SLICE, {"metadata": {"name": name}, "spec": sliced})

    def claim(self, name: str, device: str, *pods: str, node: str = "n", **result: Any) -> None:
        """Allocated to a device, and reserved for pods."""
        held = {"request": "r", "driver": b.DRIVER, "pool": node, "device": device, **result}
        at = "2026-01-01T00:00:00Z"
        allocation = {"allocationTimestamp": at, "devices": {"results": [held]}}
        reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in pods]
        status = {"allocation": allocation, "reservedFor": reserved}
        self.put(kinds.CLAIM, {"metadata": meta(name), "spec": spec(), "status": status})

    def pod(self, name: str, claim: str, *, node: str = "n", **metadata: Any) -> None:
        named = [{"name": "gpu", "resourceClaimName": claim}]
        spec = {"nodeName": node, "resourceClaims": named}
        self.put(kinds.POD, {"metadata": {**meta(name), "uid": name, **metadata}, "spec": spec})

    def show(self, extender: Extender) -> None:
        view = self.look()
        kept = ("claims", "classes", "templates", "pods", "extended_claims")
        extender.show(*view.nodes.values(), **{name: getattr(view, name) for name in kept})

    async def left_by(
        self, extender: Extender, pod: Raw, victims: dict[str, list[str]]
    ) -> list[str]:
        """The nodes that are still candidates."""
        self.show(extender)
        by_node = {
            name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0}
            for name, uids in victims.items()
        }
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": by_node}
        status, reply = await extender.post("preempt", body)
        assert status == 200
        assert all(by_node[name] == left for name, left in reply["NodeNameToMetaVictims"].items())
        return list(reply["NodeNameToMetaVictims"])


EXTENDED = {"extendedResourceName": b.RESOURCE}


def meta(name: str) -> Raw:
    return {"name": name, "namespace": "default"}


def spec(**wanted: Any) -> Raw:
    exactly = {"deviceClassName": b.DRIVER, "allocationMode": "ExactCount", "count": 1, **wanted}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def asking(**entry: str) -> Raw:
    strict = {"fettle.dev/policy": "training"}
    entries = [{"name": "gpu", **entry}]
    metadata = {**meta("high"), "uid": "high", "annotations": strict}
    return {"metadata": metadata, "spec": {"resourceClaims": entries, "priority": 1000}}


TEMPLATE = asking(resourceClaimTemplateName="one")
RESOURCE = b.gpu_pod(annotations={"fettle.dev/policy": "training"})
OWN = asking(resourceClaimName="own")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.mark.parametrize("pod", [TEMPLATE, RESOURCE], ids=["a claim", "an extended resource"])
@pytest.mark.parametrize(("lost", "candidates"), [("a", []), ("b", ["n"])])
async def test_a_node_is_worth_its_victims_if_the_device_that_comes_free_is_sound(
    cluster: Cluster, extender: Extender, pod: Raw, lost: str, candidates: list[str]
) -> None:
    """The allocator takes `a` before `b`: where it is lost all would die in vain, and where it is
    sound they are worth it, whatever is free now."""
    cluster.node("n", lost=lost)
    cluster.claim("c", "a", "low")
    assert await cluster.left_by(extender, pod, {"n": ["low", "beside"]}) == candidates


@pytest.mark.parametrize(
    ("victims", "candidates"),
    [
        ({"n": ["low", "other"]}, ["n"]),
        ({"n": ["low"]}, []),
        ({"n": ["low"], "m": ["other"]}, ["m"]),
        ({"n": ["unknown"]}, []),
    ],
    ids=["all go", "one stays", "one goes elsewhere", "none of them goes"],
)
async def test_a_device_comes_free_once_all_pods_that_reserved_its_claim_are_gone(
    cluster: Cluster, extender: Extender, victims: dict[str, list[str]], candidates: list[str]
) -> None:
    cluster.node("n", lost="b")
    cluster.node("m", lost="")
    cluster.claim("c", "a", "low", "other")
    assert await cluster.left_by(extender, TEMPLATE, victims) == candidates


async def test_a_victim_with_admin_access_frees_no_device(
    cluster: Cluster, extender: Extender
) -> None:
    cluster.node("n", lost="b")
    cluster.claim("c", "a", "busy")
    cluster.claim("looks", "a", "low", adminAccess=True)
    assert await cluster.left_by(extender, TEMPLATE, {"n": ["low"]}) == []


@pytest.mark.parametrize(
    ("victims", "candidates"), [(["small"], ["n"]), (["large"], []), (["small", "large"], [])]
)
async def test_a_share_of_a_lost_device_that_comes_free_would_go_to_the_pod(
    cluster: Cluster, extender: Extender, victims: list[str], candidates: list[str]
) -> None:
    """Of the lost device `a`: the pod gets it as soon as there is room for it."""
    room = {"memory": {"value": "8"}}
    cluster.node("n", lost="a", allowMultipleAllocations=True, capacity=room)
    for name, memory in (("small", "3"), ("large", "5")):
        consumed = {"memory": memory}
        cluster.claim(name, "a", name, shareID=f"of-{name}", consumedCapacity=consumed)
    wanted = spec(capacity={"requests": {"memory": "4"}})
    cluster.put(kinds.CLAIM, {"metadata": meta("own"), "spec": wanted})
    assert await cluster.left_by(extender, OWN, {"n": victims}) == candidates


@pytest.mark.parametrize(("others", "candidates"), [((), ["n"]), (("stays",), [])])
async def test_the_pods_own_claim_is_allocated_anew_once_nobody_has_it_reserved(
    cluster: Cluster, extender: Extender, others: tuple[str, ...], candidates: list[str]
) -> None:
    cluster.node("n", lost="b")
    cluster.claim("own", "b", "low", *others)
    assert await cluster.left_by(extender, OWN, {"n": ["low"]}) == candidates


# -- claims let go a moment after their pods are gone, and the scheduler looks at once


def nominated(node: str) -> Raw:
    return {**TEMPLATE, "status": {"nominatedNodeName": node}}


@pytest.fixture
async def preempted(cluster: Cluster, extender: Extender) -> Cluster:
    """Two nodes that were answered as worth their victims, which no view shows as evicted yet."""
    for name in ("n", "m"):
        cluster.node(name, lost="b")
        cluster.claim(f"of-{name}", "a", f"low-{name}", node=name)
    both = {"n": ["low-n"], "m": ["low-m"]}
    assert await cluster.left_by(extender, TEMPLATE, both) == ["n", "m"]
    return cluster


ELSEWHERE = {"m": ["low-m"]}


async def test_nobody_else_is_evicted_for_a_pod_whose_node_comes_free(
    preempted: Cluster, extender: Extender
) -> None:
    for pod in (nominated("n"), nominated("n"), TEMPLATE):  # as it is after the first reply
        assert await preempted.left_by(extender, pod, ELSEWHERE) == []
    other = {**nominated("n"), "metadata": {**TEMPLATE["metadata"], "uid": "another"}}
    assert await preempted.left_by(extender, other, ELSEWHERE) == ["m"]


async def test_nobody_else_is_evicted_for_a_pod_whose_node_came_free_while_it_was_refused(
    preempted: Cluster, extender: Extender
) -> None:
    preempted.inventory.remove(kinds.CLAIM, "default/of-n", preempted.now)
    for pod in (nominated("n"), TEMPLATE):
        assert await preempted.left_by(extender, pod, ELSEWHERE) == []


async def test_others_are_evicted_where_somebody_else_was_quicker(
    preempted: Cluster, extender: Extender
) -> None:
    preempted.claim("of-n", "a", "quicker")
    for pod in (nominated("n"), TEMPLATE):
        assert await preempted.left_by(extender, pod, ELSEWHERE) == ["m"]


async def test_others_are_evicted_where_the_fault_came_meanwhile(
    preempted: Cluster, extender: Extender
) -> None:
    preempted.node("n", lost="a")
    assert await preempted.left_by(extender, nominated("n"), ELSEWHERE) == ["m"]


async def test_others_are_evicted_where_the_node_is_gone(
    preempted: Cluster, extender: Extender
) -> None:
    preempted.inventory.remove(kinds.NODE, "n", preempted.now)
    assert await preempted.left_by(extender, nominated("n"), ELSEWHERE) == ["m"]


async def test_claims_that_never_let_go_are_not_waited_for_long(cluster: Cluster) -> None:
    now = 0.0
    extender = Extender()
    preemption = Preemption(extender.answers, lambda: now)
    for name in ("n", "m"):
        cluster.node(name, lost="b")
        cluster.claim(f"of-{name}", "a", f"low-{name}", node=name)
    cluster.show(extender)

    async def acceptable(manifest: Raw, victims: dict[str, list[str]]) -> list[str]:
        found, _ = await preemption.judged_nodes(b.pod(manifest), victims)
        return found

    assert await acceptable(TEMPLATE, {"n": ["low-n"], **ELSEWHERE}) == ["n", "m"]
    assert await acceptable(nominated("n"), ELSEWHERE) == []
    now = RELEASE_S + 1
    assert await acceptable(nominated("n"), ELSEWHERE) == ["m"]


async def test_the_claims_of_a_full_cluster_are_read_in_short_slices(
    cluster: Cluster, extender: Extender
) -> None:
    cluster.node("n", lost="b")
    for number in range(5000):
        cluster.claim(f"c{number}", "a", f"low-{number}")
    cluster.show(extender)
    preemption = Preemption(extender.answers)
    verdicts, turns = await turns_during(preemption.verdicts(b.pod(TEMPLATE), {"n": ["low-1"]}))
    assert set(verdicts) == {"n"}
    assert turns > 3


# -- explanations


async def noted(cluster: Cluster, extender: Extender, **spec: Any) -> list[str]:
    """What is said of the node `n` beside the verdict, for a pod of this spec."""
    pod = {**TEMPLATE, "spec": {**TEMPLATE["spec"], **spec}}
    cluster.put(kinds.POD, pod)
    cluster.show(extender)
    _, explained = await told(known(extender.answers), "/explain?pod=default/high")
    notes: list[str] = explained["nodes"]["n"]["notes"]
    return notes


async def test_explain_says_what_a_refused_pod_would_get_by_preemption(
    cluster: Cluster, extender: Extender
) -> None:
    cluster.node("n", lost="b")
    cluster.claim("c", "a", "low")
    cluster.pod("low", "c")
    (note,) = await noted(cluster, extender)
    assert note == f"if it preempts default/low here, it would get {b.DRIVER}/n/a"
    assert await noted(cluster, extender, preemptionPolicy="Never") == []
    assert await noted(cluster, extender, priority=0) == []


async def test_explain_says_why_a_pod_does_not_preempt_where_that_would_not_help(
    cluster: Cluster, extender: Extender
) -> None:
    cluster.node("n", lost="a")
    cluster.claim("c", "a", "low")
    cluster.pod("low", "c")
    leftover, note = await noted(cluster, extender)
    assert leftover.startswith("preferred: its other devices")
    text = "preempts nobody here: with default/low gone it would be refused: gpu/r would get "
    assert note.startswith(f"{text}{b.DRIVER}/n/a, which is Unhealthy")
    assert await noted(cluster, extender, nodeName="n") == [leftover]
