"""Whether pods get the devices that were predicted, and how that is counted."""

import asyncio
from typing import Any

import msgspec
import pytest

from fettle.api import core, resource
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher
from fettle.config import Settings
from fettle.dra import DeviceView
from fettle.model import BUILT_IN
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from fettle.scheduling.predictions import MAX_WAITING, REMEMBERED, Predictions, Result
from tests.fettle import building as b

CLASS = b.device_class("all", "true")
TEMPLATE = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "all"}}]}}
ALL = msgspec.structs.replace(CLASS, spec=resource.DeviceClassSpec())  # no selector to evaluate


class Cluster:
    """A view with one node, a pod that was answered, and the results for its claims."""

    def __init__(self, *devices: DeviceView) -> None:
        self.publisher = Publisher()
        self.answers = Answers(self.publisher, SelectorEngine(), Settings())
        self.compared: list[Result] = []
        self.predictions = Predictions(self.answers, self.compared.append)
        self.answers.on_nodes_given(self.predictions.note_nodes_given)
        self.show(b.node("n", pools=(b.pool(*devices),)))

    @property
    def results(self) -> list[Result]:
        """Those so far, once all that is due is compared."""
        asyncio.run(self.predictions.compare())
        return self.compared

    def show(self, *nodes: NodeView) -> None:
        before = self.publisher.view
        template = b.template(
            {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": TEMPLATE}}
        )
        view = b.view(*nodes, templates={"default/t": template}, classes={"all": ALL})
        newer = {"generation": before.generation + 1, "basis": before.basis + 1}
        self.publisher.publish(msgspec.structs.replace(view, **newer), frozenset({"n"}))

    def publish_with(self, **fields: Any) -> None:
        """Publish a view with these fields, in which no node changed."""
        view = self.publisher.view
        fields |= {"generation": view.generation + 1, "basis": view.basis + 1}
        self.publisher.publish(msgspec.structs.replace(view, **fields), frozenset())

    def answer(self, pod: str = "") -> None:
        """Answer the pod of these tests, or one like it."""
        asked = POD
        if pod:
            metadata = msgspec.structs.replace(POD.metadata, name=pod, uid=pod)
            asked = msgspec.structs.replace(POD, metadata=metadata)
        demand = self.answers.demand(asked)
        assert isinstance(demand, Demand)
        self.answers.note_nodes_given(demand, asked)


POD: core.Pod = b.pod(
    {
        "metadata": {"name": "p", "namespace": "default", "uid": "1"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
    }
)


def claim(
    device: str | None,
    *,
    node: str = "n",
    pod: str = "p",
    uid: str = "1",
    claim_uid: str = "c",
    **more: Any,
) -> resource.ResourceClaim:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    result = {"request": "r", "driver": b.DRIVER, "pool": "n", "device": device, **more}
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }
    metadata: dict[str, Any] = {
        "name": "p-gpu-x",
        "namespace": "default",
        "uid": claim_uid,
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [{"kind": "Pod", "name": pod, "uid": uid}],
    }
    status = {"allocation": allocation} if device else {}
    return b.claim({"metadata": metadata, "spec": TEMPLATE, "status": status})


def test_the_predicted_device_counts_as_exact() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(claim("a"))
    assert cluster.results == [Result.EXACT]


async def test_nothing_is_compared_before_the_writer_goes_on() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    comparing = asyncio.create_task(cluster.predictions.keep())
    await asyncio.sleep(0)
    cluster.predictions.observe(claim("a"))
    assert cluster.compared == []
    async with asyncio.timeout(5):
        while not cluster.compared:
            await asyncio.sleep(0)
    assert cluster.compared == [Result.EXACT]
    comparing.cancel()


def test_another_sound_device_counts_as_other_sound() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(claim("b"))
    assert cluster.results == [Result.OTHER_SOUND]


def test_a_device_that_the_policy_refuses_counts_as_refused() -> None:
    cluster = Cluster(b.device("a"), b.device("b", 0.1))
    cluster.answer()
    cluster.predictions.observe(claim("b"))
    assert cluster.results == [Result.REFUSED_DEVICE]


def test_a_refused_device_counts_as_refused_even_if_it_is_predicted_now() -> None:
    cluster = Cluster(b.device("a"), b.device("b", 0.1))
    cluster.answer()
    cluster.show(b.node("n", pools=(b.pool(b.device("a", allocated=True), b.device("b", 0.1)),)))
    cluster.predictions.observe(claim("b"))
    assert cluster.results == [Result.REFUSED_DEVICE]


def test_while_a_breaker_is_open_the_policy_refuses_what_it_did() -> None:
    cluster = Cluster()
    bad = b.pool(b.device("a", 0.1))
    cluster.show(*(b.node(name, pools=(bad,)) for name in "abcdefghijklmn"))
    cluster.answer()
    assert b.DRIVER in cluster.answers.breaker(BUILT_IN["inference"].placement).set_aside
    cluster.predictions.observe(claim("a"))
    assert cluster.results == [Result.REFUSED_DEVICE]


def test_a_device_with_admin_access_is_compared_too() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(claim("a", adminAccess=True))
    assert cluster.results == [Result.EXACT]


def test_no_policy_refuses_a_device_that_a_claim_has_admin_access_to() -> None:
    cluster = Cluster(b.device("a", 0.1))
    cluster.answer()
    cluster.predictions.observe(claim("a", adminAccess=True))
    assert cluster.results == [Result.EXACT]


def test_a_prediction_is_stale_if_the_node_changed_since_the_answer() -> None:
    cluster = Cluster(b.device("a"), b.device("b"), b.device("c"))
    cluster.answer()
    busy = b.pool(b.device("a", allocated=True), b.device("b"), b.device("c"))
    cluster.show(b.node("n", pools=(busy,)))
    cluster.predictions.observe(claim("c"))
    assert cluster.results == [Result.STALE]


def test_a_prediction_is_stale_after_another_allocation_that_no_view_shows_yet() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(claim("a", pod="faster"))
    cluster.predictions.observe(claim("b"))
    assert cluster.results == [Result.STALE]


@pytest.mark.parametrize(
    ("then", "now"), [({"all": ALL}, CLASS), ({}, ALL)], ids=["was edited", "appeared"]
)
@pytest.mark.parametrize("shown", [True, False], ids=["in the view", "not in the view yet"])
def test_a_prediction_is_stale_if_a_device_class_changed_since_the_answer(
    then: dict[str, resource.DeviceClass], now: resource.DeviceClass, *, shown: bool
) -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.publish_with(classes=then)
    cluster.answer()
    cluster.predictions.observe(now)
    if shown:
        cluster.publish_with(classes={"all": now})
    cluster.predictions.observe(claim("b"))
    assert cluster.results == [Result.STALE]


def test_an_unchanged_or_unrelated_device_class_does_not_make_a_prediction_stale() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(ALL)
    cluster.predictions.observe(b.device_class("another", "true"))
    cluster.predictions.observe(claim("b"))
    assert cluster.results == [Result.OTHER_SOUND]


def test_a_class_change_before_the_latest_answer_does_not_make_a_prediction_stale() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.publish_with(classes={"all": CLASS})
    cluster.answer()
    cluster.predictions.observe(ALL)
    cluster.publish_with(classes={"all": ALL})
    cluster.answer()
    cluster.predictions.observe(claim("b"))
    assert cluster.results == [Result.OTHER_SOUND]


def test_an_undecided_prediction_counts_as_undecided() -> None:
    cluster = Cluster(b.device("a", unclear="its capacity cannot be read"))
    cluster.answer()
    cluster.predictions.observe(claim("a"))
    assert cluster.results == [Result.UNDECIDED]


def test_a_device_where_no_allocation_was_predicted_is_a_wrong_prediction() -> None:
    cluster = Cluster(b.device("a", allocated=True))
    cluster.answer()
    cluster.predictions.observe(claim("a"))
    assert cluster.results == [Result.OTHER_SOUND]


def test_a_device_that_the_node_is_not_known_to_have_counts_as_stale() -> None:
    cluster = Cluster(b.device("a"))
    cluster.answer()
    cluster.predictions.observe(claim("new"))
    assert cluster.results == [Result.STALE]


def test_a_device_where_none_was_predicted_is_stale_if_the_node_changed() -> None:
    cluster = Cluster(b.device("a", allocated=True))
    cluster.answer()
    cluster.show(b.node("n", pools=(b.pool(b.device("a", allocated=True), b.device("b")),)))
    cluster.predictions.observe(claim("a"))
    assert cluster.results == [Result.STALE]


def test_a_refused_device_counts_as_refused_even_if_nothing_was_predicted() -> None:
    cluster = Cluster(b.device("a", 0.1, unclear="its capacity cannot be read"))
    cluster.answer()
    cluster.predictions.observe(claim("a"))
    assert cluster.results == [Result.REFUSED_DEVICE]


@pytest.mark.parametrize(
    "other",
    [
        claim(None),
        claim("a", node="unknown"),
        claim("a", pod="never-seen"),
        claim("a", uid="2"),
    ],
    ids=[
        "not allocated",
        "a node that nobody knows",
        "a pod that was not answered",
        "a pod of the same name as one that was",
    ],
)
def test_allocations_for_pods_that_were_not_answered_are_not_counted(
    other: resource.ResourceClaim,
) -> None:
    cluster = Cluster(b.device("a"))
    cluster.answer()
    cluster.predictions.observe(other)
    assert cluster.results == []


def test_an_already_allocated_claim_is_not_counted_again() -> None:
    cluster = Cluster(b.device("a"))
    cluster.answer()
    view = cluster.publisher.view
    known = {"claims": {"default/p-gpu-x": claim("a")}, "generation": view.generation + 1}
    cluster.publisher.publish(msgspec.structs.replace(view, **known), frozenset())
    cluster.predictions.observe(claim("a"))
    assert cluster.results == []


def test_an_allocation_written_twice_before_the_next_view_is_counted_once() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    for _ in range(3):
        cluster.predictions.observe(claim("a"))
    assert cluster.results == [Result.EXACT]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param([claim("b")], id="other devices"),
        pytest.param([claim("a", claim_uid="another")], id="another claim of the same name"),
    ],
)
def test_another_allocation_before_the_next_view_is_counted(
    later: list[resource.ResourceClaim],
) -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    for new in (claim("a"), *later):
        cluster.predictions.observe(new)
    assert len(cluster.results) == 2


def test_a_claim_that_is_allocated_again_is_counted_again() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(claim("a"))
    cluster.show(b.node("n", pools=(b.pool(b.device("a"), b.device("b")),)))
    cluster.predictions.observe(claim("a"))
    assert cluster.results == [Result.EXACT, Result.EXACT]


def test_the_remembered_allocations_before_the_next_view_are_bounded() -> None:
    cluster = Cluster(b.device("a"))
    cluster.answer()
    for number in range(REMEMBERED + 1):
        cluster.predictions.observe(claim("a", claim_uid=str(number)))
    del cluster.results[:]
    cluster.predictions.observe(claim("a", claim_uid=str(REMEMBERED)))
    cluster.predictions.observe(claim("a", claim_uid="1"))
    assert cluster.results == []


def test_a_device_of_a_pool_that_is_being_replaced_counts_as_stale() -> None:
    assert withheld(b.device("a")) == [Result.STALE]


def test_a_refused_device_of_a_pool_that_is_being_replaced_counts_as_refused() -> None:
    assert withheld(b.device("a", 0.1)) == [Result.REFUSED_DEVICE]


def withheld(device: DeviceView) -> list[Result]:
    """The result once a claim holds the device, though it could not be allocated."""
    cluster = Cluster()
    pool = msgspec.structs.replace(b.pool(), incomplete=True, withheld=(device,))
    cluster.show(b.node("n", pools=(pool,)))
    cluster.answer()
    cluster.predictions.observe(claim("a"))
    return cluster.results


def test_a_shared_claim_is_compared_for_the_pod_that_it_is_reserved_for() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))

    def named(name: str, **status: Any) -> resource.ResourceClaim:
        metadata = {"name": name, "namespace": "default"}
        return b.claim({"metadata": metadata, "spec": TEMPLATE, "status": status})

    def pod(name: str, *claims: str) -> core.Pod:
        entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        return b.pod({"metadata": metadata, "spec": {"resourceClaims": entries}})

    claims = {f"default/{name}": named(name) for name in ("other", "shared")}
    view = msgspec.structs.replace(cluster.publisher.view, generation=9, basis=9, claims=claims)
    cluster.publisher.publish(view, frozenset())
    for asked in (pod("first", "shared"), pod("second", "other", "shared")):
        demand = cluster.answers.demand(asked)
        assert demand is not None
        cluster.answers.note_nodes_given(demand, asked)
    allocated = claim("a").status
    assert allocated is not None
    reserved = {"reservedFor": [{"resource": "pods", "name": "first", "uid": "uid-first"}]}
    cluster.predictions.observe(
        named("shared", allocation=msgspec.to_builtins(allocated.allocation), **reserved)
    )
    assert cluster.results == [Result.EXACT]


# Network devices, whose allocation does not name a node


def network(device: str, **of: str) -> resource.ResourceClaim:
    """A claim with a device that several nodes can use."""
    return selected(
        claim(device, **of), {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    )


def selected(allocated: resource.ResourceClaim, *terms: dict[str, Any]) -> resource.ResourceClaim:
    """The claim with another node selector."""
    raw = msgspec.to_builtins(allocated)
    raw["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": terms}
    return b.claim(raw)


def bound(node: str, **metadata: Any) -> core.Pod:
    named = {"name": "p", "namespace": "default", "uid": "1"} | metadata
    return b.pod({"metadata": named, "spec": {"nodeName": node}})


@pytest.mark.parametrize(
    "terms",
    [
        [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]}],
        [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        ],
        [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n", "m"]}]}],
        [],
    ],
)
def test_an_allocation_without_a_node_is_compared_once_the_pod_is_bound(
    terms: list[Any],
) -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(selected(claim("b"), *terms))
    assert cluster.results == []
    cluster.predictions.observe(POD)
    assert cluster.results == []
    cluster.predictions.observe(bound("n"))
    assert cluster.results == [Result.OTHER_SOUND]


def test_the_pod_may_be_bound_before_its_network_devices_are_visible() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(bound("n"))
    cluster.predictions.observe(network("a"))
    assert cluster.results == [Result.EXACT]


def test_network_devices_are_compared_with_what_was_predicted_when_they_were_allocated() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(network("a"))
    cluster.show(b.node("n", pools=(b.pool(b.device("a", allocated=True), b.device("b")),)))
    cluster.predictions.observe(bound("n"))
    assert cluster.results == [Result.EXACT]


def test_a_claim_for_one_node_tells_where_the_network_devices_of_the_pod_went() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(network("b"))
    cluster.predictions.observe(claim("a", claim_uid="another"))
    assert cluster.results == [Result.OTHER_SOUND, Result.EXACT]
    cluster.predictions.observe(bound("n"))
    assert len(cluster.results) == 2


def test_a_prediction_is_stale_once_a_pod_on_another_node_got_some_of_the_network_devices() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(claim("a", node="m", pod="faster"))
    cluster.predictions.observe(network("b"))
    cluster.predictions.observe(bound("n"))
    assert cluster.results == [Result.STALE]


def test_allocations_from_other_pools_do_not_make_a_prediction_stale() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(claim("a", pod="faster", claim_uid="f", pool="of another node"))
    cluster.predictions.observe(claim("b"))
    assert cluster.results == [Result.OTHER_SOUND]


@pytest.mark.parametrize(
    "other",
    [bound("n", uid="2"), bound("n", name="q"), bound("unknown")],
    ids=["of the same name", "another", "a node that nobody knows"],
)
def test_binding_another_pod_says_nothing_about_network_devices(other: core.Pod) -> None:
    cluster = Cluster(b.device("a"))
    cluster.answer()
    cluster.predictions.observe(network("a"))
    cluster.predictions.observe(other)
    assert cluster.results == []


def test_a_pod_that_is_answered_again_is_compared_with_the_latest_answer_only() -> None:
    cluster = Cluster(b.device("a"), b.device("b"))
    cluster.answer()
    cluster.predictions.observe(network("b"))
    cluster.answer()
    cluster.predictions.observe(bound("n"))
    assert cluster.results == []


def test_the_records_kept_for_pods_that_are_never_bound_are_bounded() -> None:
    cluster = Cluster(b.device("a"))
    others = [f"p{number}" for number in range(MAX_WAITING)]
    cluster.answer()
    cluster.predictions.observe(network("a"))
    for name in others:
        cluster.answer(name)
        cluster.predictions.observe(network("a", pod=name, uid=name, claim_uid=name))
    cluster.predictions.observe(bound("n"))
    assert cluster.results == []
    cluster.predictions.observe(bound("n", name=others[-1], uid=others[-1]))
    assert cluster.results == [Result.EXACT]
