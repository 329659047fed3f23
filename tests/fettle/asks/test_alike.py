"""Pods that say the same, and what they are told apart by."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.asks import asks
from fettle.asks.alike import MOST, AlikeAsks
from fettle.policy import ANNOTATION, MIN_SCORE_ANNOTATION, ON_DEVICE_FAILURE_ANNOTATION
from fettle.settings import Settings
from fettle.view import View
from fettle.wire import core
from tests.fettle import building as b

POLICIES = Settings().all_policies()
BACKED = b.device_class(extendedResourceName=b.RESOURCE)
VIEWS = [
    msgspec.structs.replace(view, basis=basis)
    for basis, view in enumerate(
        (
            b.view(),
            b.view(classes={b.DRIVER: BACKED}),
            b.view(namespaces={"default": {ANNOTATION: "scavenger"}}),
            b.view(quarantined={"DevicePolicy training": "it says nothing"}),
        )
    )
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
PODS = st.builds(
    lambda name, annotations, containers, init, claims: b.pod(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "annotations": annotations,
            },
            "spec": {
                "containers": containers,
                "initContainers": init,
                "resourceClaims": [{"name": "gpu", "resourceClaimName": c} for c in claims],
            },
        }
    ),
    st.sampled_from("pq"),
    st.dictionaries(
        st.sampled_from([ANNOTATION, MIN_SCORE_ANNOTATION, "team"]),
        st.sampled_from(["training", "inference", "0.5"]),
    ),
    CONTAINERS,
    CONTAINERS,
    st.lists(st.sampled_from("xy"), max_size=1),
)


@given(st.lists(st.tuples(PODS, st.sampled_from(VIEWS)), max_size=8))
def test_what_pods_ask_is_never_another_pods_ask(asked: list[tuple[core.Pod, View]]) -> None:
    view = VIEWS[0]
    alike = AlikeAsks(lambda pod: asks.ask_of(pod, view, POLICIES))
    for pod, view in asked:
        assert alike.of(pod, view) == asks.ask_of(pod, view, POLICIES)


SAID = {"namespace": "default", "annotations": {}, "containers": [1], "init": []}


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "team"},
        {"annotations": {ANNOTATION: "training"}},
        {"annotations": {MIN_SCORE_ANNOTATION: "0.5"}},
        {"annotations": {ON_DEVICE_FAILURE_ANNOTATION: "None"}},
        {"containers": [2]},
        {"init": [2]},
    ],
)
def test_pods_are_told_apart_by_all_that_makes_an_ask(other: dict[str, Any]) -> None:
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
                },
            }
        )

    cluster = Counted(b.view(namespaces={"team": {ANNOTATION: "scavenger"}}))
    assert cluster.of(saying(SAID)) != cluster.of(saying(SAID | other))


class Counted:
    """Asks of one view after another, and how many were made."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.made = 0
        self.asks = AlikeAsks(self._make)

    def _make(self, pod: core.Pod) -> asks.Ask | None:
        self.made += 1
        return asks.ask_of(pod, self.view, POLICIES)

    def of(self, pod: core.Pod) -> asks.Ask | None:
        return self.asks.of(pod, self.view)


def asking(count: int = 1, name: str = "p") -> core.Pod:
    raw = b.gpu_pod(count, name=name)
    raw["metadata"]["uid"] = name
    return b.pod(raw)


def test_pods_that_say_the_same_have_one_ask_until_what_they_rest_on_changes() -> None:
    cluster = Counted(b.view())
    first = cluster.of(asking())
    assert first is not None
    assert cluster.of(asking(name="q")) is first
    cluster.view = msgspec.structs.replace(cluster.view, generation=2)
    assert cluster.of(asking(name="q")) is first
    assert cluster.made == 1
    cluster.view = msgspec.structs.replace(cluster.view, basis=2)
    assert cluster.of(asking(name="q")) == first
    assert cluster.made == 2


def test_a_claim_that_was_made_for_one_pods_resources_is_not_another_ones() -> None:
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
    cluster = Counted(b.view(classes={b.DRIVER: BACKED}, extended_claims={"p": claim}))
    for name, barred in (("p", True), ("q", False), ("p", True)):
        ask = cluster.of(asking(name=name))
        assert ask is not None
        assert bool(ask.barred) is barred


def test_no_more_are_kept_than_that_however_long_a_view_stays() -> None:
    cluster = Counted(b.view())
    for count in range(1, MOST + 2):
        cluster.of(asking(count))
    cluster.of(asking(MOST + 1))
    assert cluster.made == MOST + 1
    cluster.of(asking())
    assert cluster.made == MOST + 2
