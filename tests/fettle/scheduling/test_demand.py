from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core, resource
from fettle.config import Settings
from fettle.dra.claims import claim_of_spec
from fettle.dra.extended_resources import device_units, is_device_resource, units_of
from fettle.explain.wording import text
from fettle.model import BUILT_IN
from fettle.scheduling.demand import demand_of
from tests.fettle import building as b

POLICIES = Settings().all_policies()
CLASSES = {b.DRIVER: b.device_class()}


def claim_pod(**entry: str) -> dict[str, object]:
    return {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": [{"name": "gpu", **entry}]},
    }


def claim_spec(**exactly: object) -> dict[str, object]:
    request = {"name": "r", "exactly": {"deviceClassName": b.DRIVER, **exactly}}
    return {"devices": {"requests": [request]}}


def test_a_pod_without_devices_has_no_demand() -> None:
    pod = b.pod({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}})
    assert demand_of(pod, b.view(), POLICIES) is None


@pytest.mark.parametrize("quantity", ["0", "1"])
def test_the_marker_alone_is_no_device(quantity: str) -> None:
    limits = {"fettle.dev/claims": quantity}
    pod = b.pod(
        {"metadata": {"name": "p"}, "spec": {"containers": [{"resources": {"limits": limits}}]}}
    )
    assert demand_of(pod, b.view(), POLICIES) is None


def test_containers_add_up_and_an_init_container_counts_if_it_needs_more() -> None:
    def container(count: int, **more: str) -> dict[str, object]:
        return {"resources": {"limits": {b.RESOURCE: str(count)}}, **more}

    def units(*, init: list[object], main: list[object]) -> dict[str, int]:
        spec = {"containers": main, "initContainers": init}
        return dict(device_units(b.pod({"metadata": {"name": "p"}, "spec": spec})))

    assert units(init=[], main=[container(1), container(2)]) == {b.RESOURCE: 3}
    assert units(init=[container(4)], main=[container(1), container(2)]) == {b.RESOURCE: 4}
    sidecar = container(2, restartPolicy="Always")
    assert units(init=[sidecar, container(2)], main=[container(1)]) == {b.RESOURCE: 4}
    assert units(init=[sidecar], main=[container(3)]) == {b.RESOURCE: 5}


@pytest.mark.parametrize(
    ("quantity", "units"),
    [
        ("8", 8),
        (8, 8),
        ("1k", 1000),
        ("2Ki", 2048),
        ("1T", 10**12),
        ("2Ti", 2**41),
        ("1e3", 1000),
        ("2000m", 2),
        ("2.0", 2),
        ("1500m", 2),  # a part of one counts as one, as the scheduler rounds it
        ("0", 0),
        ("-3", 0),
        ("99E", 2**63 - 1),
        ("half", 0),
        ("", 0),
    ],
)
def test_quantities_of_units_are_read_as_the_scheduler_reads_them(
    quantity: str | int, units: int
) -> None:
    assert units_of(quantity) == units


@given(st.text(max_size=20))
def test_no_quantity_raises_an_error(quantity: str) -> None:
    assert units_of(quantity) >= 0


@pytest.mark.parametrize(
    ("name", "is_device"),
    [
        ("nvidia.com/gpu", True),
        ("cpu", False),
        ("hugepages-2Mi", False),
        ("kubernetes.io/batch-cpu", False),
        ("storage.kubernetes.io/x", False),
        ("fettle.dev/claims", False),
        ("deviceclass.resource.kubernetes.io/gpu", True),
    ],
)
def test_extended_resources_outside_kubernetes_own_domains_are_devices(
    name: str, is_device: bool
) -> None:
    assert is_device_resource(name) is is_device


def allocated_to(
    *results: str | dict[str, object], driver: str = "d", pool: str = "p", **status: object
) -> resource.ResourceClaim:
    """The claim `c`, with devices by name, or by the fields of their results."""
    names = {"request": "r", "driver": driver, "pool": pool}
    given = [names | ({"device": r} if isinstance(r, str) else r) for r in results]
    allocation = {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": given}}
    return b.claim(
        {
            "metadata": {"name": "c", "namespace": "default"},
            "spec": claim_spec(),
            "status": {"allocation": allocation, **status},
        }
    )


def test_an_allocated_claim_pins_the_pod_to_its_devices() -> None:
    claim = allocated_to("x", {"device": "y", "adminAccess": True})
    view = b.view(claims={"default/c": claim}, classes=CLASSES)
    demand = demand_of(b.pod(claim_pod(resourceClaimName="c")), view, POLICIES)
    assert demand is not None
    (bound,) = demand.bound
    assert [str(h.device) for h in bound.held] == ["d/p/x", "d/p/y"]
    assert demand.claims == ()


def test_a_claim_that_cannot_be_used_now_bars_the_pod() -> None:
    conditions = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    broken = {"type": "Broken", "status": "True", "reason": "r", "message": ""}
    names = {"driver": "d", "pool": "p", "device": "x"}
    reported = [{**names, "conditions": [broken]}]
    claim = allocated_to({"device": "x", **conditions}, devices=reported)
    view = b.view(claims={"default/c": claim}, classes=CLASSES)
    demand = demand_of(b.pod(claim_pod(resourceClaimName="c")), view, POLICIES)
    assert demand is not None
    assert (demand.bound, demand.claims) == ((), ())
    assert "Broken says that d/p/x cannot be bound" in text(demand.barred[0])


def test_without_the_feature_gate_no_device_class_backs_an_extended_resource() -> None:
    classes = {"gpu": b.device_class("gpu", extendedResourceName=b.RESOURCE)}
    view = b.view(classes=classes)
    demand = demand_of(b.pod(b.gpu_pod(2)), view, POLICIES, backed=False)
    assert demand is not None
    assert demand.units[0].backing == ()


def test_before_a_claim_exists_its_template_is_judged_with_the_api_defaults() -> None:
    template = b.template(
        {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": claim_spec()}}
    )
    view = b.view(templates={"default/t": template}, classes=CLASSES)
    demand = demand_of(b.pod(claim_pod(resourceClaimTemplateName="t")), view, POLICIES)
    assert demand is not None
    (alternative,) = demand.alternatives()
    assert (alternative.mode, alternative.count) == ("ExactCount", 1)
    assert alternative.selectors == (f'device.driver == "{b.DRIVER}"',)


def test_a_claim_that_is_not_seen_yet_leaves_the_demand_unsettled() -> None:
    demand = demand_of(b.pod(claim_pod(resourceClaimName="nope")), b.view(), POLICIES)
    assert demand is not None
    (said,) = demand.unsettled
    assert text(said).endswith(": ResourceClaim default/nope does not exist")


@pytest.mark.parametrize(
    ("status", "missing"),
    [
        ({}, ": ResourceClaimTemplate default/t does not exist"),
        (
            {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]},
            ": neither ResourceClaim default/p-gpu, which was made for it, nor "
            "ResourceClaimTemplate default/t exists",
        ),
    ],
)
def test_a_template_that_is_not_seen_yet_is_named_with_its_claim(
    status: dict[str, Any], missing: str
) -> None:
    pod = {**claim_pod(resourceClaimTemplateName="t"), "status": status}
    demand = demand_of(b.pod(pod), b.view(), POLICIES)
    assert demand is not None
    (said,) = demand.unsettled
    assert text(said).endswith(missing)


def test_a_missing_device_class_is_an_error_for_the_scheduler() -> None:
    claim = b.claim(
        {
            "metadata": {"name": "c", "namespace": "default"},
            "spec": claim_spec(deviceClassName="missing"),
        }
    )
    view = b.view(claims={"default/c": claim}, classes=CLASSES)
    demand = demand_of(b.pod(claim_pod(resourceClaimName="c")), view, POLICIES)
    assert demand is not None
    (alternative,) = demand.alternatives()
    assert alternative.class_missing
    assert alternative.class_name == "missing"


def test_the_newest_device_class_backs_an_extended_resource() -> None:
    classes = {
        name: b.device_class(name, extendedResourceName=b.RESOURCE) for name in ("later", "early")
    }
    demand = demand_of(b.pod(b.gpu_pod(2)), b.view(classes=classes), POLICIES)
    assert demand is not None
    (backing,) = demand.units[0].backing
    (alternative,) = backing.alternatives
    assert (alternative.class_name, alternative.count) == ("early", 2)


def test_the_pods_annotation_overrides_the_namespaces_policy() -> None:
    namespaces = {"default": {"fettle.dev/policy": "scavenger"}}
    view = b.view(namespaces=namespaces)
    by_namespace = demand_of(b.pod(b.gpu_pod()), view, POLICIES)
    annotated = b.gpu_pod(annotations={"fettle.dev/policy": "training"})
    by_annotation = demand_of(b.pod(annotated), view, POLICIES)
    assert by_namespace is not None
    assert by_annotation is not None
    assert by_namespace.policy == BUILT_IN["scavenger"]
    assert by_annotation.policy == BUILT_IN["training"]


def test_an_unreadable_claim_is_unsettled_with_the_reason() -> None:
    unreadable = {"ResourceClaim default/odd": "ResourceClaim default/odd: Expected `object`"}
    view = b.view(quarantined=unreadable)
    demand = demand_of(b.pod(claim_pod(resourceClaimName="odd")), view, POLICIES)
    assert demand is not None
    assert len(demand.unsettled) == 1
    assert "cannot be read: ResourceClaim default/odd: Expected `object`" in text(
        demand.unsettled[0]
    )


def test_an_unreadable_device_class_is_not_a_missing_one() -> None:
    said = {f"DeviceClass {b.DRIVER}": f"DeviceClass {b.DRIVER}: Expected `object`"}
    claim = b.claim({"metadata": {"name": "c", "namespace": "default"}, "spec": claim_spec()})
    pod = b.pod(claim_pod(resourceClaimName="c"))
    unread = b.view(claims={"default/c": claim}, quarantined=said)
    demand = demand_of(pod, unread, POLICIES)
    assert demand is not None
    assert not demand.claims
    assert f"device class {b.DRIVER} cannot be read: DeviceClass" in text(demand.unsettled[0])


def test_an_allocated_claim_that_became_unreadable_is_not_judged_by_its_old_content() -> None:
    claim = allocated_to("a", driver=b.DRIVER, pool="n")
    pod = b.pod(claim_pod(resourceClaimName="c"))
    read = demand_of(pod, b.view(claims={"default/c": claim}, classes=CLASSES), POLICIES)
    assert read is not None
    assert read.bound
    said = {"ResourceClaim default/c": "ResourceClaim default/c: wrong"}
    unread = b.view(claims={"default/c": claim}, classes=CLASSES, quarantined=said)
    demand = demand_of(pod, unread, POLICIES)
    assert demand is not None
    assert not demand.bound
    assert "cannot be read" in text(demand.unsettled[0])


def test_an_unreadable_template_matters_until_its_claim_is_created() -> None:
    said = {"ResourceClaimTemplate default/t": "ResourceClaimTemplate default/t: wrong"}
    entry = {"resourceClaimTemplateName": "t"}
    before = demand_of(b.pod(claim_pod(**entry)), b.view(quarantined=said), POLICIES)
    assert before is not None
    assert "cannot be read" in text(before.unsettled[0])
    claim = b.claim({"metadata": {"name": "c", "namespace": "default"}, "spec": claim_spec()})
    made = b.view(claims={"default/c": claim}, classes=CLASSES, quarantined=said)
    pod = claim_pod(**entry, resourceClaimName="c")
    after = demand_of(b.pod(pod), made, POLICIES)
    assert after is not None
    assert after.unsettled == ()


def naming_twice(**pod_metadata: object) -> core.Pod:
    """A pod with two entries that name one claim."""
    raw = claim_pod(resourceClaimName="c")
    raw["metadata"] = {"name": "p", "namespace": "default", **pod_metadata}
    entries = [{"name": name, "resourceClaimName": "c"} for name in ("gpu", "again")]
    raw["spec"] = {"containers": [{"name": "c"}], "resourceClaims": entries}
    return b.pod(raw)


def test_a_claim_that_a_pod_names_twice_is_judged_once_and_bars_the_pod() -> None:
    claim = b.claim({"metadata": {"name": "c", "namespace": "default"}, "spec": claim_spec()})
    view = b.view(claims={"default/c": claim}, classes=CLASSES)
    demand = demand_of(naming_twice(), view, POLICIES)
    assert demand is not None
    assert [claim.name for claim in demand.claims] == ["gpu"]
    (why,) = demand.barred
    assert "claims gpu and again are one ResourceClaim, default/c" in text(why)


def test_an_allocated_claim_that_a_pod_names_twice_is_judged_once_and_bars_the_pod() -> None:
    view = b.view(claims={"default/c": allocated_to("x")}, classes=CLASSES)
    demand = demand_of(naming_twice(), view, POLICIES)
    assert demand is not None
    assert [bound.name for bound in demand.bound] == ["gpu"]
    assert len(demand.barred) == 1


def test_a_claim_that_is_reserved_for_a_pod_already_may_be_named_twice_by_it() -> None:
    claim = allocated_to("x", reservedFor=[{"resource": "pods", "name": "p", "uid": "mine"}])
    view = b.view(claims={"default/c": claim}, classes=CLASSES)
    demand = demand_of(naming_twice(uid="mine"), view, POLICIES)
    assert demand is not None
    assert len(demand.bound) == 1
    assert demand.barred == ()


def test_entries_of_one_template_are_two_claims() -> None:
    entries = [{"name": name, "resourceClaimTemplateName": "t"} for name in ("gpu", "again")]
    raw = claim_pod()
    raw["spec"] = {"containers": [{"name": "c"}], "resourceClaims": entries}
    template = b.template(
        {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": claim_spec()}}
    )
    view = b.view(templates={"default/t": template}, classes=CLASSES)
    demand = demand_of(b.pod(raw), view, POLICIES)
    assert demand is not None
    assert [claim.name for claim in demand.claims] == ["gpu", "again"]
    assert demand.barred == ()


def test_a_request_of_an_unknown_form_is_unclear() -> None:
    claim = b.claim({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r"}]}}})
    (alternative,) = claim_of_spec("c", claim.spec, CLASSES).alternatives()
    assert alternative.unclear == "a request of unknown form"
