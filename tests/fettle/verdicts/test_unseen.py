from typing import Any

from fettle.asks.asks import Ask, Units
from fettle.asks.claims import Alternative, Claim, Request
from fettle.policy import BUILT_IN
from fettle.verdicts.unseen import Unseen
from fettle.view import View
from fettle.wire import core
from tests.fettle import building as b

ASK = Ask(
    BUILT_IN["training"],
    claims=(Claim("gpu", (Request("r", (Alternative("r", b.DRIVER),)),)),),
)


def pod(name: str, **status: Any) -> core.Pod:
    metadata = {"name": name, "namespace": "default"}
    return b.pod(
        {"metadata": metadata, "spec": {"nodeName": status.pop("node", None)}, "status": status}
    )


def number(unseen: Unseen, view: View | None = None, *, at: float = 0.5, ask: Ask = ASK) -> int:
    return unseen.number(ask, pod("me"), view or b.view(), at)


def noted(*names: str, at: float = 0.0) -> Unseen:
    unseen = Unseen()
    for name in names:
        unseen.note(ASK, pod(name), at)
    return unseen


def test_pods_that_were_answered_a_moment_ago_count_and_the_pod_itself_does_not() -> None:
    assert number(noted("me", "a", "b")) == 2


def test_numbers_are_rounded_up_to_few_steps() -> None:
    assert number(noted("a", "b", "c")) == 4
    assert number(noted(*map(str, range(50)))) == 8


def test_after_a_second_nobody_is_waited_for() -> None:
    assert number(noted("a"), at=1.5) == 0


def test_a_pod_that_is_bound_is_no_longer_unseen() -> None:
    view = b.view(pods={"default/a": pod("a", node="n")})
    assert number(noted("a", "b"), view) == 1


def test_a_pod_whose_claims_are_allocated_is_no_longer_unseen() -> None:
    statuses = [{"name": "gpu", "resourceClaimName": "a-gpu"}]
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]
    claim = {
        "metadata": {"name": "a-gpu", "namespace": "default"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    pods = {"default/a": pod("a", resourceClaimStatuses=statuses)}
    assert number(noted("a"), b.view(pods=pods)) == 1
    assert number(noted("a"), b.view(pods=pods, claims={"default/a-gpu": b.claim(claim)})) == 0


def test_pods_with_other_needs_do_not_count() -> None:
    other = Ask(BUILT_IN["training"], claims=(Claim("nic"),))
    assert number(noted("a"), ask=other) == 0


def test_units_of_device_plugins_are_nobody_else_s_to_take() -> None:
    units = Ask(BUILT_IN["training"], units=(Units(b.RESOURCE, 1),))
    unseen = Unseen()
    unseen.note(units, pod("a"), 0.0)
    assert number(unseen, ask=units) == 0
