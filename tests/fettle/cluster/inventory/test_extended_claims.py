"""Claims that the scheduler makes for extended resources are found by the UID of their pod."""

from typing import Any

from fettle.api import kinds
from tests.fettle.cluster.inventory.fleets import Fleet


def made(uid: str, name: str = "c", *, annotated: str = "true", **owner: Any) -> Any:
    key = "resource.kubernetes.io/extended-resource-claim"
    owner = {"kind": "Pod", "name": "p", "uid": uid, "controller": True, **owner}
    metadata = {"name": name, "namespace": "d", "ownerReferences": [owner]}
    return {"metadata": metadata | {"annotations": {key: annotated}}, "spec": {}}


def found(fleet: Fleet) -> dict[str, str]:
    return {uid: claim.metadata.name for uid, claim in fleet.look().extended_claims.items()}


def test_a_claim_is_found_while_it_exists(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, made("u"))
    assert found(fleet) == {"u": "c"}
    status: Any = {"allocation": {"devices": {}}}
    fleet.put(kinds.CLAIM, {**made("u"), "status": status})
    assert fleet.look().extended_claims["u"].status is not None
    fleet.inventory.remove(kinds.CLAIM, "d/c", fleet.now)
    assert found(fleet) == {}


def test_claims_of_other_kinds_are_not(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, made("u", annotated="false"))
    fleet.put(kinds.CLAIM, made("v", "other", controller=False))
    assert found(fleet) == {}


def test_a_claim_that_changes_hands_is_found_by_its_new_owner(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, made("u"))
    fleet.look()
    fleet.put(kinds.CLAIM, made("v"))
    assert found(fleet) == {"v": "c"}


def test_of_several_claims_for_one_pod_the_first_by_name_is_found(fleet: Fleet) -> None:
    """Whatever came first, so that a restart finds the same."""
    for name in ("b", "a", "c"):
        fleet.put(kinds.CLAIM, made("u", name))
    assert found(fleet) == {"u": "a"}
    for gone, left in (("c", "a"), ("a", "b")):
        fleet.inventory.remove(kinds.CLAIM, f"d/{gone}", fleet.now)
        assert found(fleet) == {"u": left}
    fleet.inventory.remove(kinds.CLAIM, "d/b", fleet.now)
    assert found(fleet) == {}


def test_other_changes_leave_them_as_they_are(fleet: Fleet) -> None:
    fleet.put(kinds.CLAIM, made("u"))
    before = fleet.look().extended_claims
    fleet.put(kinds.CLAIM, {"metadata": {"name": "x", "namespace": "d"}, "spec": {}})
    assert fleet.look().extended_claims is before
