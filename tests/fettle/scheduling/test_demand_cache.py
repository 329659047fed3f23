"""Demands that are kept for equal pods, and what makes pods unequal."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core
from fettle.cluster import View
from fettle.config import Settings
from fettle.model import ANNOTATION
from fettle.model.annotations import MIN_SCORE_ANNOTATION, ON_DEVICE_FAILURE_ANNOTATION
from fettle.model.policy import TRAINING
from fettle.scheduling.demand import MAX_KEPT, Demand, DemandCache, demand_of
from tests.fettle import building as b

POLICIES = Settings().all_policies()
BACKED = b.device_class(extendedResourceName=b.RESOURCE)
OWNED = {"kind": "Pod", "name": "p", "uid": "p", "controller": True}
ALLOCATED = {
    "allocation": {"devices": {"results": []}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
}


def requesting(count: int) -> dict[str, Any]:
    exactly = {"deviceClassName": b.DRIVER, "count": count}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def stored(count: int, status: dict[str, Any] | None = None, **metadata: Any) -> Any:
    metadata = {"name": "x", "namespace": "default", **metadata}
    return b.claim({"metadata": metadata, "spec": requesting(count), "status": status or {}})


def template(count: int) -> Any:
    metadata = {"name": "x", "namespace": "default"}
    return b.template({"metadata": metadata, "spec": {"spec": requesting(count)}})


EMPTY = b.view()
LABELLED = {"default": {ANNOTATION: "scavenger"}}
TEMPLATES = {"default/x": template(1)}


def changed(**fields: Any) -> View:
    """A view with the objects of the empty one, except these."""
    return msgspec.structs.replace(EMPTY, **fields)


def holding(x: Any, **fields: Any) -> View:
    claims = {"default/x": x, "default/y": stored(1, name="y")}
    return changed(claims=claims, templates=TEMPLATES, **fields)


VIEWS = [
    EMPTY,
    changed(classes={b.DRIVER: BACKED}),
    changed(namespaces=LABELLED),
    changed(namespaces=LABELLED, policies={"scavenger": TRAINING}),
    changed(templates=TEMPLATES),
    changed(templates=TEMPLATES, quarantined={"ResourceClaimTemplate default/x": "why"}),
    changed(templates={"default/x": template(2)}),
    holding(stored(1)),
    holding(stored(1), classes={b.DRIVER: BACKED}),
    holding(stored(1), quarantined={"ResourceClaim default/x": "it says nothing"}),
    holding(stored(2)),
    holding(stored(1, ALLOCATED)),
    holding(stored(1, deletionTimestamp="2026-01-01T00:00:00Z")),
    holding(stored(1, ownerReferences=[OWNED])),
]


def container(**fields: Any) -> Any:
    return st.fixed_dictionaries({"name": st.sampled_from("ab"), **fields})


RESOURCES = st.dictionaries(
    st.sampled_from([b.RESOURCE, "amd.com/gpu", "cpu", "fettle.dev/claims"]),
    st.sampled_from(["1", 1, "2", "0", "half", 10**30]),
    max_size=3,
)
CONTAINERS = st.lists(
    container(
        resources=st.fixed_dictionaries({"limits": RESOURCES}),
        restartPolicy=st.sampled_from([None, "Always"]),
    ),
    max_size=2,
)
ANNOTATIONS = st.dictionaries(
    st.sampled_from([ANNOTATION, MIN_SCORE_ANNOTATION, "team"]),
    st.sampled_from(["training", "inference", "0.5"]),
)
BY_NAME, BY_TEMPLATE = "resourceClaimName", "resourceClaimTemplateName"
CLAIMS = st.lists(st.sampled_from("xy"), max_size=2).flatmap(
    lambda names: st.tuples(
        *(
            st.tuples(st.just(entry), st.sampled_from([BY_NAME, BY_TEMPLATE]), st.just(name))
            for entry, name in zip("ab", names, strict=False)
        )
    )
)
MADE = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from("ab"), "resourceClaimName": st.sampled_from([None, "x"])}
    ),
    max_size=1,
)


def pod(
    name: str,
    annotations: dict[str, str] | None = None,
    containers: Any = (),
    init: Any = (),
    claims: Any = (),
    made: Any = (),
) -> core.Pod:
    """A pod; `claims` has for each its name, the field that refers to it, and the reference."""
    return b.pod(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "annotations": annotations or {},
            },
            "spec": {
                "containers": containers,
                "initContainers": init,
                "resourceClaims": [{"name": entry, key: named} for entry, key, named in claims],
            },
            "status": {"resourceClaimStatuses": made},
        }
    )


NAMES = st.sampled_from("pq")
WITH_CLAIMS = st.builds(
    lambda name, claims, made: pod(name, claims=claims, made=made), NAMES, CLAIMS, MADE
)
PODS = WITH_CLAIMS | st.builds(pod, NAMES, ANNOTATIONS, CONTAINERS, CONTAINERS, CLAIMS, MADE)


@given(st.lists(st.tuples(PODS, st.sampled_from(VIEWS)), max_size=8))
def test_a_kept_demand_always_equals_the_pods_own(asked: list[tuple[core.Pod, View]]) -> None:
    view = VIEWS[0]
    cache = DemandCache(lambda pod: demand_of(pod, view, POLICIES))
    for asking, view in asked:
        assert cache.of(asking, view) == demand_of(asking, view, POLICIES)


ENTRIES = [
    [],
    *([(entry, key, name)] for entry in "ab" for key in (BY_NAME, BY_TEMPLATE) for name in "xy"),
    [("a", BY_NAME, "x"), ("b", BY_NAME, "x")],
    [("a", BY_NAME, "y"), ("b", BY_NAME, "x")],
    [("a", BY_TEMPLATE, "x"), ("b", BY_NAME, "x")],
]
UNITS = [{"name": "c", "resources": {"limits": {b.RESOURCE: "1"}}}]
IN_TURN = [
    pod(name, claims=claims, containers=containers, made=made)
    for claims in ENTRIES
    for containers in ([], UNITS)
    for made in ([], [{"name": "a"}], [{"name": "a", "resourceClaimName": "x"}])
    for name in "pq"
]


@pytest.mark.parametrize("backwards", [False, True])
def test_a_kept_demand_equals_the_pods_own_after_each_new_view(backwards: bool) -> None:
    view = EMPTY
    cache = DemandCache(lambda pod: demand_of(pod, view, POLICIES))
    for view in VIEWS[::-1] if backwards else VIEWS:
        for asking in IN_TURN[::-1] if backwards else IN_TURN:
            assert cache.of(asking, view) == demand_of(asking, view, POLICIES)


SAID = {"namespace": "default", "annotations": {}, "containers": [1], "init": [], "beside": 0}


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "team"},
        {"annotations": {ANNOTATION: "training"}},
        {"annotations": {MIN_SCORE_ANNOTATION: "0.5"}},
        {"annotations": {ON_DEVICE_FAILURE_ANNOTATION: "None"}},
        {"containers": [2]},
        {"init": [2]},
        {"beside": 1},
    ],
)
def test_pods_that_differ_in_anything_that_makes_a_demand_do_not_share_one(
    other: dict[str, Any],
) -> None:
    def saying(said: dict[str, Any]) -> core.Pod:
        def container(count: int) -> dict[str, Any]:
            return {"name": "c", "resources": {"limits": {b.RESOURCE: str(count)}}}

        return b.pod(
            {
                "metadata": {
                    "name": "p",
                    "namespace": said["namespace"],
                    "annotations": said["annotations"],
                },
                "spec": {
                    "containers": [container(count) for count in said["containers"]],
                    "initContainers": [container(count) for count in said["init"]],
                    "overhead": {b.RESOURCE: str(said["beside"])},
                },
            }
        )

    cluster = Counted(b.view(namespaces={"team": {ANNOTATION: "scavenger"}}))
    assert cluster.of(saying(SAID)) != cluster.of(saying(SAID | other))


class Counted:
    """The demands in one view after another, and how many were made."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.made = 0
        self.demands = DemandCache(self._make)

    def _make(self, pod: core.Pod) -> Demand | None:
        self.made += 1
        return demand_of(pod, self.view, POLICIES)

    def of(self, pod: core.Pod) -> Demand | None:
        return self.demands.of(pod, self.view)


def pod_with(count: int = 1, name: str = "p") -> core.Pod:
    raw = b.gpu_pod(count, name=name)
    raw["metadata"]["uid"] = name
    return b.pod(raw)


def test_equal_pods_share_a_demand_until_its_sources_in_the_view_change() -> None:
    cluster = Counted(b.view())
    first = cluster.of(pod_with())
    assert first is not None
    assert cluster.of(pod_with(name="q")) is first
    cluster.view = msgspec.structs.replace(cluster.view, generation=2, basis=2, nodes={})
    assert cluster.of(pod_with(name="q")) is first
    assert cluster.made == 1
    cluster.view = msgspec.structs.replace(cluster.view, namespaces={})
    assert cluster.of(pod_with(name="q")) == first
    assert cluster.made == 2


def test_equal_pods_whose_claims_are_not_allocated_yet_share_a_demand() -> None:
    claims = {f"default/{name}": stored(1, name=name) for name in "xy"}
    cluster = Counted(b.view(claims=claims, templates={"default/t": template(1)}))
    assert cluster.of(needing("p", resourceClaimTemplateName="t")) is cluster.of(
        needing("q", resourceClaimTemplateName="t")
    )
    assert cluster.made == 1
    assert cluster.of(needing("p", resourceClaimName="x")) is cluster.of(
        needing("q", resourceClaimName="y")
    )
    assert cluster.made == 2


def needing(name: str, **entry: str) -> core.Pod:
    return b.pod(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"resourceClaims": [{"name": "gpu", **entry}]},
        }
    )


def test_a_claim_for_one_pods_extended_resources_does_not_affect_equal_pods() -> None:
    owner = {"kind": "Pod", "name": "p", "uid": "p", "controller": True}
    claim = b.claim(
        {
            "metadata": {
                "name": "c",
                "namespace": "default",
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [owner],
            },
            "spec": {"devices": {"requests": [{"name": "r"}]}},
        }
    )
    cluster = Counted(b.view(classes={b.DRIVER: BACKED}, extended_claims={"default/p": claim}))
    for name, barred in (("p", True), ("q", False), ("p", True)):
        demand = cluster.of(pod_with(name=name))
        assert demand is not None
        assert bool(demand.barred) is barred


def test_the_number_of_kept_demands_is_bounded() -> None:
    cluster = Counted(b.view())
    for count in range(1, MAX_KEPT + 2):
        cluster.of(pod_with(count))
    cluster.of(pod_with(MAX_KEPT + 1))
    assert cluster.made == MAX_KEPT + 1
    cluster.of(pod_with())
    assert cluster.made == MAX_KEPT + 2
