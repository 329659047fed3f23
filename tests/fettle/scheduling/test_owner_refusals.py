"""What is remembered of kubelets' refusals for the owner of the refused pods."""

from datetime import UTC, datetime

import msgspec
import pytest

from fettle.api import core
from fettle.api.meta import ObjectMeta, OwnerReference
from fettle.model.reasons import KubeletRefusedWorkload, PodsDoNotStart
from fettle.scheduling.owner_refusals import KEEP_S, MOST_NODES, OwnerRefusals, is_refused

NOW = 1_000_000.0
NEXT = core.Pod(
    metadata=ObjectMeta(
        name="next",
        namespace="default",
        owner_references=(OwnerReference(uid="o", controller=True),),
    )
)

WORKLOAD = OwnerReference(uid="default/o")


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def refused(
    node: str,
    reason: str = "UnexpectedAdmissionError",
    message: str = "",
    *,
    started: float = NOW,
    created: float = NOW - 10,
) -> core.Pod:
    status = core.PodStatus(phase="Failed", reason=reason, message=message, start_time=at(started))
    metadata = msgspec.structs.replace(NEXT.metadata, creation_timestamp=at(created))
    return core.Pod(metadata=metadata, spec=core.PodSpec(node_name=node), status=status)


@pytest.mark.parametrize(
    ("pod", "is_it"),
    [
        (refused("n"), True),
        (refused("n", "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu"), True),
        (refused("n", "TopologyAffinityError", "Pod was rejected: Resources cannot be"), True),
        (refused("n", "TopologyAffinityError", "Pod Resources cannot be"), True),  # before 1.28
        (refused("n", "Evicted", "The node was low on resource: memory."), False),
        (refused("n", ""), False),
        (refused(""), False),
        (NEXT, False),
    ],
)
def test_a_kubelet_refused_a_pod_that_failed_before_any_container_started(
    pod: core.Pod, is_it: bool
) -> None:
    assert is_refused(pod) == is_it


def test_a_refusal_is_forgotten_after_a_while_and_a_newer_one_counts_anew() -> None:
    clock = Clock()
    refusals = OwnerRefusals(clock)
    refusals.observe(refused("n"))
    assert refusals.nodes_for(NEXT).keys() == {"n"}
    clock.now += KEEP_S - 1
    refusals.observe(refused("n", started=clock.now))
    clock.now += KEEP_S - 1
    assert refusals.nodes_for(NEXT).keys() == {"n"}
    refusals.observe(refused("n"))  # the first one, listed again
    clock.now += 1
    assert not refusals.nodes_for(NEXT)


def test_after_a_restart_a_refusal_counts_from_when_it_was() -> None:
    refusals = OwnerRefusals(Clock())
    refusals.observe(refused("old", started=NOW - KEEP_S, created=NOW - KEEP_S))
    refusals.observe(refused("slow-clock", started=0.0))
    refusals.observe(refused("fast-clock", started=2 * NOW))
    assert refusals.nodes_for(NEXT).keys() == {"slow-clock", "fast-clock"}


@pytest.mark.parametrize(
    ("first", "then", "is_known"),
    [
        (ObjectMeta(name="ann", uid="1"), ObjectMeta(name="ann", uid="2"), True),
        (ObjectMeta(name="ann", uid="1"), ObjectMeta(name="bob", uid="2"), False),
        (
            ObjectMeta(name="ci-x1", generate_name="ci-", uid="1"),
            ObjectMeta(name="ci-x2", generate_name="ci-", uid="2"),
            True,
        ),
        (
            ObjectMeta(name="ann", namespace="a", uid="1"),
            ObjectMeta(name="ann", namespace="b", uid="2"),
            False,
        ),
    ],
)
def test_pods_without_a_controller_are_known_by_the_name_that_they_are_made_with(
    first: ObjectMeta, then: ObjectMeta, is_known: bool
) -> None:
    refusals = OwnerRefusals(Clock())
    lost, again = (msgspec.structs.replace(refused("n"), metadata=m) for m in (first, then))
    refusals.observe(lost)
    refusals.note_nodes_given(lost)
    assert bool(refusals.nodes_for(again)) == bool(refusals.shares_for(again)) == is_known
    assert refusals.may_replace_another(again) == is_known
    assert not refusals.may_replace_another(lost)  # the scheduler tries it again


def labelled(
    pod: core.Pod, owner: str, labels: dict[str, str], *, namespace: str = "n"
) -> core.Pod:
    reference = (OwnerReference(kind="Job", name=owner, uid=owner, controller=True),)
    metadata = msgspec.structs.replace(
        pod.metadata, namespace=namespace, owner_references=reference, labels=labels
    )
    return msgspec.structs.replace(pod, metadata=metadata)


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
        ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
        ("actions.github.com/scale-set-name", "AutoscalingRunnerSet"),
    ],
)
def test_a_workload_that_makes_a_new_owner_to_try_again_is_remembered_over_that(
    label: str, kind: str
) -> None:
    refusals = OwnerRefusals(Clock())
    refusals.observe(labelled(refused("n"), "job-1", {label: "train"}))
    again = labelled(NEXT, "job-2", {label: "train"})
    (reason,) = refusals.nodes_for(again).values()
    assert isinstance(reason, KubeletRefusedWorkload)
    assert reason.workload == f"{kind}/train"
    for other in (
        labelled(NEXT, "job-2", {label: "other"}),
        labelled(NEXT, "job-2", {label: "train"}, namespace="other"),
        labelled(NEXT, "job-1", {}),
    ):
        assert not refusals.nodes_for(other)
    refusals.note_nodes_given(again)
    third = labelled(refused("", created=NOW), "job-3", {label: "train"})
    metadata = msgspec.structs.replace(third.metadata, uid="third")
    assert refusals.may_replace_another(msgspec.structs.replace(third, metadata=metadata))


def test_what_is_remembered_is_bounded() -> None:
    refusals = OwnerRefusals(Clock())
    for number in range(MOST_NODES + 1):
        refusals.observe(refused(f"n{number}"))
    assert refusals.nodes_for(NEXT).keys() == {f"n{number}" for number in range(1, MOST_NODES + 1)}
    few = OwnerRefusals(Clock(), most_owners=2)
    for owner in "oxy":
        reference = (OwnerReference(uid=owner, controller=True),)
        pod = refused("n")
        metadata = msgspec.structs.replace(pod.metadata, owner_references=reference)
        few.observe(msgspec.structs.replace(pod, metadata=metadata))
    assert not few.nodes_for(NEXT)


def test_a_node_on_which_its_pods_do_not_start_is_avoided_from_when_that_was_last_so() -> None:
    clock = Clock()
    refusals = OwnerRefusals(clock)
    refusals.does_not_start(WORKLOAD, "n", NOW)
    (reason,) = refusals.nodes_for(NEXT).values()
    assert isinstance(reason, PodsDoNotStart)
    assert (reason.at, reason.until) == (NOW, NOW + KEEP_S)
    clock.now += KEEP_S - 1
    refusals.does_not_start(WORKLOAD, "n", clock.now)
    clock.now += KEEP_S - 1
    assert refusals.nodes_for(NEXT).keys() == {"n"}
    clock.now += 1
    assert not refusals.nodes_for(NEXT)


def test_the_latest_of_what_a_node_did_is_the_reason() -> None:
    clock = Clock()
    refusals = OwnerRefusals(clock)
    refusals.observe(refused("n"))
    refusals.does_not_start(WORKLOAD, "n", NOW - 60)
    assert isinstance(refusals.nodes_for(NEXT)["n"], KubeletRefusedWorkload)
    clock.now += 60
    refusals.does_not_start(WORKLOAD, "n", clock.now)
    assert isinstance(refusals.nodes_for(NEXT)["n"], PodsDoNotStart)


def test_a_node_gets_its_score_back_little_by_little() -> None:
    clock = Clock()
    refusals = OwnerRefusals(clock)
    assert not refusals.shares_for(NEXT)
    refusals.observe(refused("n"))
    shares = []
    for _ in range(6):
        shares.append(round(refusals.shares_for(NEXT).get("n", 1.0), 2))
        clock.now += KEEP_S
    assert shares == [0.0, 0.5, 0.75, 0.88, 0.94, 1.0]
    alone = msgspec.structs.replace(NEXT, metadata=ObjectMeta(name="alone"))
    assert not refusals.shares_for(alone)


def test_a_pod_that_claims_the_owner_of_another_namespaces_speaks_for_none_of_its_pods() -> None:
    """Whoever creates a pod writes its owner references, and the API server checks no UID."""
    refusals = OwnerRefusals(Clock())
    pod = refused("n")
    forged = msgspec.structs.replace(pod.metadata, namespace="mallorys")
    refusals.observe(msgspec.structs.replace(pod, metadata=forged))
    assert not refusals.nodes_for(NEXT)
