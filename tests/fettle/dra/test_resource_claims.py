"""Claims that are allocated: who may still use them, and what they wait for."""

from typing import Any

import pytest

from fettle.api import core, resource
from fettle.api.resource import MAX_RESERVED
from fettle.dra.resource_claims import BINDING_TIMEOUT_S, Binding, ClaimUse, claim_use
from fettle.explain.wording import text
from fettle.model import DeviceId, reasons
from tests.fettle import building as b

ALLOCATED_AT = 1_000_000_000.0
NAMES = {"driver": "d", "pool": "p"}
BINDS = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
POD = b.pod({"metadata": {"name": "p", "namespace": "default", "uid": "mine"}})
GPU = core.PodResourceClaim(name="gpu", resource_claim_name="c")
IN_TIME = Binding(ALLOCATED_AT + BINDING_TIMEOUT_S)
TOO_LATE = Binding(ALLOCATED_AT + BINDING_TIMEOUT_S + 1)


def claim(
    *results: dict[str, Any],
    reported: tuple[dict[str, Any], ...] = (),
    reserved: tuple[str, ...] = (),
    at: str | None = "2001-09-09T01:46:40Z",
    nodes: dict[str, Any] | None = None,
    **metadata: Any,
) -> resource.ResourceClaim:
    results = results or ({"request": "r", "device": "x", **NAMES},)
    consumers = [{"resource": "pods", "name": uid, "uid": uid} for uid in reserved]
    allocation = {
        "devices": {"results": results},
        "allocationTimestamp": at,
        "nodeSelector": nodes,
    }
    return b.claim(
        {
            "metadata": {"name": "c", "namespace": "default", **metadata},
            "spec": {},
            "status": {"allocation": allocation, "reservedFor": consumers, "devices": reported},
        }
    )


def binding(device: str) -> dict[str, Any]:
    return {"request": "r", "device": device, **NAMES, **BINDS}


def saying(device: str, **conditions: str) -> dict[str, Any]:
    said = [{"type": t, "status": s, "reason": "r"} for t, s in conditions.items()]
    return {"device": device, **NAMES, "conditions": said}


def text_of(found: ClaimUse) -> str:
    """Why no node can serve the pod now, in words."""
    return text(found.barred) if found.barred is not None else ""


def barred(*given: Any) -> str:
    return text_of(claim_use(*given))


def test_a_claim_that_waits_for_nothing_can_be_used() -> None:
    assert claim_use(GPU, claim(), POD, TOO_LATE) == ClaimUse()
    assert claim_use(GPU, None, POD, TOO_LATE) == ClaimUse()


def test_a_claim_that_is_being_deleted_can_be_used_by_nobody() -> None:
    deleted = claim(deletionTimestamp="2001-09-09T01:46:40Z")
    assert barred(GPU, deleted, POD, IN_TIME) == "claim gpu is being deleted"


@pytest.mark.parametrize("number", [0, 1, MAX_RESERVED - 1])
def test_a_claim_is_shared_by_as_many_pods_as_the_api_allows(number: int) -> None:
    shared = claim(reserved=tuple(f"u{i}" for i in range(number)))
    assert claim_use(GPU, shared, POD, IN_TIME) == ClaimUse()


def test_reserving_a_full_claim_for_one_pod_more_would_fail() -> None:
    full = claim(reserved=tuple(f"u{i}" for i in range(MAX_RESERVED)))
    assert "reserved for 256 pods, the maximum" in barred(GPU, full, POD, IN_TIME)


def test_a_pod_can_use_a_full_claim_that_is_reserved_for_it() -> None:
    full = claim(reserved=(*(f"u{i}" for i in range(MAX_RESERVED - 1)), "mine"))
    assert claim_use(GPU, full, POD, IN_TIME) == ClaimUse()


def test_a_pod_waits_for_binding_conditions_until_the_timeout() -> None:
    for reported in ((), (saying("x", Ready="False"),), (saying("x"),)):
        found = claim_use(GPU, claim(binding("x"), reported=reported), POD, IN_TIME)
        assert not found.barred
        assert found.awaits is not None
        assert text(found.awaits).startswith(
            "claim gpu is waiting for condition Ready of d/p/x since 2001"
        )


def test_a_pod_does_not_wait_for_devices_that_are_ready() -> None:
    ready = claim(binding("x"), reported=(saying("x", Ready="True"),))
    assert claim_use(GPU, ready, POD, TOO_LATE) == ClaimUse()


def test_after_the_timeout_the_allocation_is_revoked() -> None:
    found = claim_use(GPU, claim(binding("x"), reserved=("mine",)), POD, TOO_LATE)
    assert "condition Ready of d/p/x did not become true within 600 s" in text_of(found)
    assert "revokes the allocation" in text_of(found)


def test_an_allocation_without_a_timestamp_never_times_out() -> None:
    endless = claim(binding("x"), at=None, reserved=("mine",))
    assert claim_use(GPU, endless, POD, TOO_LATE) == ClaimUse(
        awaits=reasons.BindingAwaited("gpu", "Ready", DeviceId("d", "p", "x"))
    )


@pytest.mark.parametrize("results", [(), (binding("x"),)], ids=["plain", "awaited"])
def test_an_allocation_without_a_timestamp_cannot_be_reserved_for_another_pod(
    results: tuple[dict[str, Any], ...],
) -> None:
    why = barred(GPU, claim(*results, at=None), POD, IN_TIME)
    assert "claim gpu was allocated without an allocationTimestamp" in why
    assert why.endswith("delete the ResourceClaim and create it again")
    shared = barred(GPU, claim(*results, at=None, reserved=("a", "b")), POD, IN_TIME)
    assert shared.endswith("or wait until the 2 pods that use it have ended")


def test_a_pod_can_use_an_allocation_without_a_timestamp_that_is_reserved_for_it() -> None:
    assert claim_use(GPU, claim(at=None, reserved=("other", "mine")), POD, IN_TIME) == ClaimUse()


def test_an_allocation_that_will_be_revoked_needs_no_timestamp() -> None:
    broken = claim(binding("x"), at=None, reported=(saying("x", Broken="True"),))
    assert "Broken says that d/p/x cannot be bound" in barred(GPU, broken, POD, IN_TIME)


def test_an_allocation_whose_node_selector_cannot_be_parsed_ends_every_attempt() -> None:
    expression = {"key": "zone", "operator": "Near", "values": ["a"]}
    nodes = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    for binding_ in (IN_TIME, IN_TIME._replace(observed=False)):
        why = barred(GPU, claim(nodes=nodes, reserved=("mine",)), POD, binding_)
        assert "attempt for this pod would end in an error" in why
        assert "unknown operator Near" in why


def test_a_binding_failure_condition_fails_the_allocation_at_once() -> None:
    broken = claim(binding("x"), reported=(saying("x", Broken="True", Ready="True"),))
    assert "Broken says that d/p/x cannot be bound" in barred(GPU, broken, POD, IN_TIME)


def test_an_allocation_that_other_pods_use_is_not_revoked() -> None:
    broken = claim(
        binding("x"), reported=(saying("x", Broken="True"),), reserved=("mine", "theirs")
    )
    assert "reserved for another pod" in barred(GPU, broken, POD, IN_TIME)


def test_the_first_device_with_an_unmet_condition_decides() -> None:
    reported = (saying("x", Ready="False"), saying("y", Broken="True"))
    found = claim_use(GPU, claim(binding("x"), binding("y"), reported=reported), POD, IN_TIME)
    assert found.barred is None
    assert found.awaits is not None
    assert found.awaits.condition == "Ready"


def test_failure_conditions_without_binding_conditions_are_ignored() -> None:
    result = {"request": "r", "device": "x", **NAMES, "bindingFailureConditions": ["Broken"]}
    broken = claim(result, reported=(saying("x", Broken="True"),))
    assert claim_use(GPU, broken, POD, TOO_LATE) == ClaimUse()


def test_without_the_gate_binding_conditions_are_ignored() -> None:
    off = TOO_LATE._replace(observed=False)
    assert claim_use(GPU, claim(binding("x")), POD, off) == ClaimUse()
    assert claim_use(GPU, claim(at=None), POD, off) == ClaimUse()
