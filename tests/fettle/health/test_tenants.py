"""Refused pods and broken claims: what tenants could bring about steers, and takes nothing away."""

from fettle.api import core
from fettle.api.meta import rfc3339_at
from fettle.health import HealthBook
from fettle.health.signals.claims import report_of_claim
from fettle.health.signals.pods import report_of_pod
from fettle.health.signals.reports import SignalReport
from fettle.health.signals.starts import failed_start, start_evidence, starts_of
from fettle.model import BUILT_IN, DeviceId, Health, NodeId, Placement, ReporterId, State
from tests.fettle.building import refusal
from tests.fettle.health.incidents import HOUR, MINUTE, NODE, RULES, of, tell
from tests.fettle.health.signals.objects import (
    NONE_AVAILABLE,
    NOW,
    claim,
    condition,
    node,
    pod,
    refused_pod,
    waiting_pod,
)


def test_a_node_swallows_pods(book: HealthBook) -> None:
    """Ready, with all its GPUs allocatable; only the pods it refuses tell."""
    tell(book, node(condition("Ready", "True", "KubeletReady")), NOW)

    def refuse(name: str, at: float) -> Health:
        said = report_of_pod(refused_pod(name, at), RULES, at, lambda _: None)
        book.ledger.report(said, at)
        return of(book, NODE, at)

    first = refuse("train-0", NOW)
    assert (first.state, first.score) == (State.DEGRADED, 0.6)
    second = refuse("train-1", NOW + 10 * MINUTE)
    assert second.state is State.UNHEALTHY
    for i in range(2, 554):
        worst = refuse(f"train-{i}", NOW + 10 * MINUTE + i)
    assert worst.score == 0.05  # its cap: kept out, yet not for days
    assert "train-553" in worst.evidence[0].evidence.text
    assert "the latest of 554" in worst.evidence[0].evidence.text

    day_later = NOW + 24 * HOUR
    book.changed_by_time(day_later)
    assert of(book, NODE, day_later).score > 0.9
    assert of(book, NODE, day_later).state is State.HEALTHY


def test_a_node_that_swallowed_pods_is_tried_again_after_a_reboot(book: HealthBook) -> None:
    ready = condition("Ready", "True", "KubeletReady")
    tell(book, node(ready), NOW)

    def refuse(names: str, at: float) -> Health:
        for name in names:
            book.ledger.report(report_of_pod(refused_pod(name, at), RULES, at, lambda _: None), at)
        return of(book, NODE, at)

    assert refuse("abcdefgh", NOW).state is State.UNHEALTHY
    tell(book, node(ready, boot="boot-2"), NOW + HOUR)
    after = of(book, NODE, NOW + HOUR)
    assert (after.state, after.score) == (State.HEALTHY, 0.95)
    assert "was until recently: kubelet refused pod" in after.evidence[0].evidence.text
    assert refuse("abcdefgh", NOW + HOUR) is after  # they are still listed
    assert refuse("ij", NOW + HOUR + MINUTE).state is State.UNHEALTHY


def test_a_node_that_swallowed_pods_is_tried_again_once_its_repair_is_stated(
    book: HealthBook,
) -> None:
    ready = condition("Ready", "True", "KubeletReady")

    def state(at: float, now: float) -> Health:
        tell(book, node(ready, annotations={"fettle.dev/repaired": rfc3339_at(at)}), now)
        return of(book, NODE, now)

    def refuse(names: str, at: float) -> Health:
        for name in names:
            book.ledger.report(report_of_pod(refused_pod(name, at), RULES, at, lambda _: None), at)
        return of(book, NODE, at)

    tell(book, node(ready), NOW)
    assert refuse("ab", NOW).state is State.UNHEALTHY
    assert state(NOW - MINUTE, NOW + MINUTE).state is State.UNHEALTHY  # they came after it
    mended = state(NOW + MINUTE, NOW + 2 * MINUTE)
    assert (mended.state, mended.score) == (State.HEALTHY, 0.95)
    assert state(NOW + MINUTE, NOW + 3 * MINUTE).score == 0.95  # said again
    assert refuse("ab", NOW + 4 * MINUTE).score == 0.95  # they are still listed
    assert refuse("cd", NOW + 5 * MINUTE).state is State.UNHEALTHY
    assert state(NOW + MINUTE, NOW + 6 * MINUTE).state is State.UNHEALTHY


def test_pods_that_had_run_and_are_refused_as_their_node_restarts_weigh_little(
    book: HealthBook,
) -> None:
    """The kubelet takes them up again before the device plugin is there."""
    for name in "abcdefgh":
        refused = refused_pod(name, NOW, message=NONE_AVAILABLE)
        ran = pod(name, namespace="ml", phase="Running")
        book.ledger.report(report_of_pod(refused, RULES, NOW, lambda _: None, ran), NOW)
    after = of(book, NODE, NOW)
    assert (after.state, after.score) == (State.HEALTHY, 0.9)
    assert "which had run there" in after.evidence[0].evidence.text
    lost = refused_pod("i", NOW)  # by its message, a GPU is lost
    ran = pod("i", namespace="ml", phase="Running")
    book.ledger.report(report_of_pod(lost, RULES, NOW, lambda _: None, ran), NOW)
    assert of(book, NODE, NOW).state is State.DEGRADED


def test_three_refusals_within_the_hour_are_enough_however_they_are_spread(
    book: HealthBook,
) -> None:
    for i, at in enumerate((NOW, NOW + 30 * MINUTE, NOW + 60 * MINUTE)):
        said = report_of_pod(refused_pod(f"p{i}", at), RULES, at, lambda _: None)
        book.ledger.report(said, at)
    assert of(book, NODE, NOW + 60 * MINUTE).state is State.UNHEALTHY


def refuse(
    book: HealthBook,
    name: str,
    at: float,
    *,
    namespace: str = "ml",
    message: str = NONE_AVAILABLE,
    before: core.Pod | None = None,
) -> Health:
    refused = refused_pod(name, at, namespace=namespace, message=message)
    said = report_of_pod(refused, RULES, at, lambda _: None, before)
    book.ledger.report(said, at)
    return of(book, NODE, at)


def test_a_tenant_who_names_a_full_node_cannot_take_it_from_the_others(book: HealthBook) -> None:
    """Pods created with `nodeName`: the kubelet refuses each, since no GPU is free."""
    for i in range(500):
        at = NOW + i
        forged = refuse(
            book, f"p{i}", at, namespace="mallory", before=waiting_pod(f"p{i}", node="gpu-1")
        )
    assert (forged.state, forged.score, forged.proven) == (State.HEALTHY, 0.65, 1.0)
    assert (forged.shown_state, forged.is_corroborated) == (State.DEGRADED, False)
    assert not any(refusal(forged, policy.placement) for policy in BUILT_IN.values())
    assert refusal(forged, Placement(min_score=1.0)) == ""
    top = forged.evidence[0].evidence.text
    assert "mallory/p499, which no scheduler was seen to place" in top


def test_several_namespaces_corroborate_but_a_tenant_may_own_several(book: HealthBook) -> None:
    for i in range(30):
        both = refuse(book, f"p{i}", NOW + i, namespace=f"mallory-{i % 2}")
    assert (both.state, both.score) == (State.HEALTHY, 0.4225)
    assert (both.shown_state, both.is_corroborated) == (State.DEGRADED, True)
    for i in range(30, 90):
        many = refuse(book, f"p{i}", NOW + i, namespace=f"mallory-{i % 9}")
    assert (many.state, many.score) == (State.HEALTHY, 0.4)
    assert not any(refusal(many, policy.placement) for policy in BUILT_IN.values())


def test_pods_that_a_scheduler_placed_prove_a_node_that_swallows_them(book: HealthBook) -> None:
    """A process that outlived its pod holds the GPU: the API says it is free, the kubelet not."""
    for i in range(4):
        worst = refuse(book, f"p{i}", NOW + i * MINUTE, before=waiting_pod(f"p{i}"))
    assert worst.state is State.UNHEALTHY


def test_forgeries_do_not_lift_the_bound_of_one_honest_refusal(book: HealthBook) -> None:
    refuse(book, "honest", NOW, before=waiting_pod("honest"))
    for i in range(200):
        mixed = refuse(book, f"p{i}", NOW + 1, namespace=f"mallory-{i % 2}")
    assert mixed.state is State.DEGRADED
    assert (mixed.score, round(mixed.proven, 2)) == (0.4225, 0.6)
    why = refusal(mixed, BUILT_IN["training"].placement)
    assert why.startswith("Degraded (0.60): kubelet refused pod ml/honest")


def test_forgeries_make_nothing_worse_than_degraded_of_what_is_degraded(book: HealthBook) -> None:
    tell(book, node(condition("FrequentKubeletRestart", "True")), NOW)
    for i in range(9):
        mixed = refuse(book, f"p{i}", NOW + 1, namespace=f"mallory-{i}")
    assert mixed.score < 0.30
    assert mixed.state is State.DEGRADED
    assert refusal(mixed, BUILT_IN["inference"].placement) == ""


def test_evidence_of_tenants_holds_no_state_and_ends_no_dwell(book: HealthBook) -> None:
    """A claim that is ill and well again, made by a tenant, beside a fault of the device."""
    nic = DeviceId("dra.net", "gpu-1", "eth1")
    tell(book, node(condition("FrequentKubeletRestart", "True")), NOW)
    assert of(book, nic, NOW).state is State.DEGRADED
    book.ledger.vanish(ReporterId("Node", "gpu-1"), NOW)
    at = NOW + 9 * MINUTE
    for ready in ("False", "True"):
        said = claim(
            ("r", nic.driver, nic.pool, nic.device), conditions=[condition("Ready", ready)]
        )
        book.ledger.report(report_of_claim(said, RULES, at), at)
        assert of(book, nic, at).state is State.DEGRADED
    settled = NOW + 12 * HOUR
    refuse(book, "p", settled, namespace="mallory")
    assert of(book, nic, settled).state is State.HEALTHY


def test_a_claim_that_never_gets_ready_lowers_its_devices_score_until_another_does(
    book: HealthBook,
) -> None:
    nic = DeviceId("dra.net", "gpu-1", "eth1")
    held = ("nic", "dra.net", "gpu-1", "eth1")
    bad = condition("Ready", "False", "AttachFailed", "no carrier", at=NOW)
    book.ledger.report(
        report_of_claim(claim(held, name="first", conditions=[bad]), RULES, NOW), NOW
    )
    assert (of(book, nic, NOW).state, of(book, nic, NOW).score) == (State.HEALTHY, 0.65)
    assert "no carrier" in of(book, nic, NOW).evidence[0].evidence.text

    book.ledger.vanish(
        ReporterId("ResourceClaim", "ml/first"), NOW + MINUTE
    )  # its job gave up; the device is the same
    assert of(book, nic, NOW + MINUTE).score == 0.65

    good = claim(held, name="second", conditions=[condition("Ready", "True")])
    book.ledger.report(report_of_claim(good, RULES, NOW + 2 * MINUTE), NOW + 2 * MINUTE)
    assert of(book, nic, NOW + 2 * MINUTE).score > 0.9


def test_a_tenants_broken_claims_never_take_a_device_from_the_others(book: HealthBook) -> None:
    """A claim whose own configuration is wrong, made again and again."""
    nic = DeviceId("dra.net", "gpu-1", "eth1")
    bad, good = condition("Ready", "False", "BadConfig"), condition("Ready", "True")
    at = NOW
    for i in range(200):
        at += MINUTE
        said = claim(
            ("r", nic.driver, nic.pool, nic.device),
            name="c",
            conditions=[bad if i % 2 == 0 else good],
        )
        book.ledger.report(report_of_claim(said, RULES, at), at)
        assert of(book, nic, at).score >= 0.65
        assert of(book, nic, at).state is State.HEALTHY


def failing(namespace: str, name: str = "p") -> SignalReport:
    """A pod that cannot start, since its image asks for what the node does not have."""
    said = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=99.0"
    waiting = {"waiting": {"reason": "RunContainerError", "message": said}}
    made = pod(name, namespace=namespace, phase="Pending", status=container(waiting))
    start = failed_start(made, RULES, NOW)
    assert start is not None
    who = f"Pod {namespace}/{name}"
    return SignalReport(starts_of(who), (start_evidence([start], RULES, NodeId("gpu-1"), who),))


def container(state: object) -> dict[str, object]:
    return {"containerStatuses": [{"name": "main", "state": state}]}


def test_failed_starts_and_refusals_together_are_bounded_and_refuse_nothing(
    book: HealthBook,
) -> None:
    """Whoever may create pods can have both, as often as they like, in all their namespaces."""
    for number in range(20):
        for name in "abc":
            book.ledger.report(failing(f"ns-{number}", name), NOW)
            refused = refused_pod(name, NOW, message=NONE_AVAILABLE, namespace=f"ns-{number}")
            book.ledger.report(report_of_pod(refused, RULES, NOW, lambda _: None), NOW)
        health = of(book, NODE, NOW)
        assert health.score == (0.65 if number == 0 else 0.4225 if number == 1 else 0.4)
        assert (health.state, health.proven) == (State.HEALTHY, 1.0)


def test_what_was_said_in_error_goes_without_a_trace(book: HealthBook) -> None:
    book.ledger.report(failing("ml"), NOW)
    assert of(book, NODE, NOW).score == 0.65
    wrong = failing("ml")._replace(evidence=(), retracted=frozenset({NODE}))
    assert book.ledger.report(wrong, NOW + MINUTE) == {NODE}
    assert not of(book, NODE, NOW + MINUTE).evidence
    book.ledger.report(failing("ml"), NOW + MINUTE)  # it fails again after all
    assert of(book, NODE, NOW + MINUTE).score == 0.65


def test_a_reboot_ends_what_failed_starts_left(book: HealthBook) -> None:
    tell(book, node(), NOW)
    book.ledger.report(failing("ml"), NOW)
    book.ledger.vanish(failing("ml").reporter, NOW)
    assert of(book, NODE, NOW).score == 0.65
    tell(book, node(boot="boot-2"), NOW + MINUTE)
    assert of(book, NODE, NOW + MINUTE).score > 0.9


def test_a_score_that_is_not_that_of_a_degraded_device_is_told_as_healthy(
    book: HealthBook,
) -> None:
    fresh = refuse(book, "p", NOW, namespace="mallory")
    assert (fresh.score, fresh.shown_state) == (0.65, State.DEGRADED)
    book.ledger.vanish(ReporterId("Pod", "mallory/p"), NOW)
    book.changed_by_time(NOW + 24 * HOUR)
    faded = of(book, NODE, NOW + 24 * HOUR)
    assert faded.score > 0.7
    assert (faded.shown_state, faded.suspected) == (State.HEALTHY, 0)


IN_OTHER_WORDS = (
    "Pod was rejected: Allocate failed due to a plugin's own words, which is unexpected"
)


def test_a_refusal_in_words_that_nobody_knows_is_one_namespaces_word_until_a_second_has_it(
    book: HealthBook,
) -> None:
    """What a plugin refuses may be the pod's own: all of one workload are refused alike."""
    for i in range(9):
        name, at = f"p{i}", NOW + i
        alone = refuse(book, name, at, message=IN_OTHER_WORDS, before=waiting_pod(name))
    assert (alone.state, alone.score, alone.proven) == (State.HEALTHY, 0.65, 1.0)
    for name in "ab":
        refused = refused_pod(name, NOW + 60, namespace="other", message=IN_OTHER_WORDS)
        before = waiting_pod(name, namespace="other")
        book.ledger.report(
            report_of_pod(refused, RULES, NOW + 60, lambda _: None, before), NOW + 60
        )
    both = of(book, NODE, NOW + 60)
    assert both.state is State.UNHEALTHY
    assert both.score == both.proven < 0.1


def test_refusals_in_unknown_words_that_no_scheduler_placed_prove_nothing(book: HealthBook) -> None:
    for i in range(30):
        forged = refuse(
            book, f"p{i}", NOW + i, namespace=f"mallory-{i % 5}", message=IN_OTHER_WORDS
        )
    assert (forged.state, forged.score, forged.proven) == (State.HEALTHY, 0.4, 1.0)
