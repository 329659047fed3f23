"""What becomes, on the real control plane, of what the lint rules catch: one function a failure.

Each takes the rule's id in small letters, which also names the objects it makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fettle.lint import RULES
from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, ApiError
from tests.controlplane.fleet import create_node
from tests.controlplane.kubelet import Kubelet
from tests.fettle.lint.builders import Object
from tests.fettle.lint.fleets import GPU, NIC
from tests.fettle.lint.tables import configs, counts, resources, selectors, tolerations, workloads
from tests.fettle.lint.tables.case import Case

CASES = [
    *selectors.CASES,
    *counts.CASES,
    *tolerations.CASES,
    *configs.CASES,
    *workloads.CASES,
    *resources.CASES,
]
CAUGHT = {
    rule.id: [case for case in CASES if case.caught and case.rule == rule.id] for rule in RULES
}


_OF_THEIR_OWN_TESTS = ("ComputeDomain",)
"""The API server chooses the UIDs by which claims name them."""


async def create_world(api: Api) -> None:
    """All clusters of the tables in one: their nodes, devices, classes, the template and claim."""
    world: dict[tuple[str, str], Object] = {}
    for case in CASES:
        for known in case.known:
            world.setdefault((known["kind"], known["metadata"]["name"]), known)
    for (kind, name), known in world.items():
        if kind == "Node":
            await create_node(api, known)
        elif kind in _OF_THEIR_OWN_TESTS:
            continue
        elif kind != "ResourceClaim" or name == "c":
            await api.create(known)


async def create_pod(api: Api, name: str, case: Case) -> None:
    """A pod that uses the claim, template or class that a case is about, or is that pod."""
    made = named(case.object, name)
    match made["kind"]:
        case "Pod":
            await api.create(made)
            return
        case "DeviceClass":
            await api.create(made)
            spec = objects.claim_spec(device_class=name)
            made = objects.claim(name, spec)
    await api.create(made)
    if made["kind"] == "ResourceClaimTemplate":
        await api.create(objects.pod(name, templates={"gpu": name}))
    else:
        await api.create(objects.pod(name, claims={"gpu": name}))


def named(object: Object, name: str) -> Object:
    return {**object, "metadata": {**object["metadata"], "name": name}}


async def evicted_again(api: Api, kubelet: Kubelet, rule: str) -> None:
    taint = {"key": "example.com/bad", "effect": "NoExecute"}
    await create_node(api, objects.node("bad"))
    await api.create(
        objects.resource_slice("bad", [objects.device("d", taints=[taint])], driver="bad.com")
    )
    await api.create(objects.device_class("bad.com", driver="bad.com"))
    toleration = {"key": "example.com/bad", "operator": "Exists"}
    spec = objects.claim_spec(device_class="bad.com", tolerations=[toleration])
    await api.create(objects.claim_template(rule, spec))
    await api.create(objects.pod(rule, templates={"gpu": rule}))
    await waiting.gone(api, "pods", rule, timeout_s=30)
    told = {e["reason"] for e in await api.events_about(rule)}  # an eviction may be tried twice
    assert {reason for reason in told if "Eviction" in reason} == {"DeviceTaintManagerEviction"}


async def runs_without_devices(api: Api, kubelet: Kubelet, rule: str) -> None:
    await create_pod(api, rule, CAUGHT["FTL033"][0])
    await waiting.in_phase(api, rule, "Running", timeout_s=30)
    allocation = (await api.get("resourceclaims", rule))["status"]["allocation"]
    assert not allocation.get("devices", {}).get("results")


async def runs_in_silence(api: Api, kubelet: Kubelet, rule: str) -> None:
    """The scheduler and the API server have nothing to say; the kubelet is a stand-in here."""
    await create_pod(api, rule, CAUGHT[rule.upper()][0])
    await waiting.in_phase(api, rule, "Running", timeout_s=30)
    assert {e["reason"] for e in await api.events_about(rule)} <= {"Scheduled"}


async def is_not_evicted(api: Api, kubelet: Kubelet, rule: str) -> None:
    resource, driver = "example.com/stays", "stays.example.com"
    await create_node(api, objects.node("stays"))
    await api.create(objects.resource_slice("stays", 2, driver=driver))
    await api.create(objects.device_class(driver, driver=driver, extended_resource=resource))
    await api.create(objects.pod(rule, gpus=1, resource=resource))
    await api.create(objects.claim_template(rule, objects.claim_spec(device_class=driver)))
    await api.create(objects.pod(f"{rule}-claim", templates={"gpu": rule}))
    for name in (rule, f"{rule}-claim"):
        await waiting.in_phase(api, name, "Running", timeout_s=30)
    await api.create(objects.device_taint_rule(rule, "example.com/bad", "NoExecute", driver=driver))
    await waiting.gone(api, "pods", f"{rule}-claim", timeout_s=30)
    await asyncio.sleep(1)
    assert (await api.get("pods", rule))["status"]["phase"] == "Running"


async def evicts_from_the_whole_driver(api: Api, kubelet: Kubelet, rule: str) -> None:
    """Of two nodes. The row without a selector evicts nobody."""
    driver = "swept.example.com"
    await api.create(objects.device_class(driver, driver=driver))
    await api.create(objects.claim_template(rule, objects.claim_spec(device_class=driver)))
    names = [f"{rule}-{i}" for i in range(2)]
    for name in names:
        await create_node(api, objects.node(name))
        await api.create(objects.resource_slice(name, 1, driver=driver))
        await api.create(objects.pod(name, templates={"gpu": rule}))
    for name in names:
        await waiting.in_phase(api, name, "Running", timeout_s=30)
    cases = {case.what: case.object for case in CAUGHT["FTL113"]}
    await api.create(named(cases["is for no device"], f"{rule}-none"))
    await asyncio.sleep(2)
    for name in names:
        assert (await api.get("pods", name))["status"]["phase"] == "Running"
    await api.create(named(cases["evicts from all devices of a driver"], rule))
    for name in names:
        await waiting.gone(api, "pods", name, timeout_s=30)


async def takes_room_among_devices(api: Api, kubelet: Kubelet, rule: str) -> None:
    await create_pod(api, rule, CAUGHT["FTL063"][0])
    assert await waiting.bound(api, rule, timeout_s=30) in ("pool-a", "pool-b")


async def the_257th_cannot_be_reserved(api: Api, kubelet: Kubelet, rule: str) -> None:
    """What the scheduler writes for each pod; 257 real ones take minutes."""
    await api.create(objects.claim(rule, objects.claim_spec(device_class=NIC)))
    await api.create(objects.pod(rule, claims={"gpu": rule}))
    await waiting.bound(api, rule, timeout_s=30)
    many = [{"resource": "pods", "name": f"p{i}", "uid": f"u{i}"} for i in range(257)]
    with pytest.raises(ApiError, match="must have at most 256 items"):
        await api.patch_status("resourceclaims", rule, {"reservedFor": many})
    await api.patch_status("resourceclaims", rule, {"reservedFor": many[:256]})


async def is_reserved_once(api: Api, kubelet: Kubelet, rule: str) -> None:
    """The scheduler looks for as many devices as there are entries, and allocates those of one."""
    driver = "pair.example.com"
    await create_node(api, objects.node("pair"))
    await api.create(objects.resource_slice("pair", 2, driver=driver))
    await api.create(objects.device_class(driver, driver=driver))
    await api.create(objects.claim(rule, objects.claim_spec(device_class=driver)))
    await api.create(objects.pod(rule, claims={"gpu": rule, "again": rule}))
    await waiting.refused(api, rule, saying="Duplicate value", timeout_s=30)


async def beta_is_not_served(api: Api, kubelet: Kubelet, rule: str) -> None:
    (case,) = CAUGHT["FTL034"]
    path = f"/apis/{case.object['apiVersion']}/namespaces/default/resourceclaims"
    with pytest.raises(ApiError) as refusal:
        await api.request("POST", path, body=case.object)
    assert refusal.value.code == 404


async def pending_without_a_word(api: Api, kubelet: Kubelet, rule: str) -> None:
    await create_pod(api, rule, CAUGHT["FTL037"][0])
    await waiting.stays_pending(api, rule, for_s=3)
    assert (await api.get("pods", rule))["status"].get("conditions", []) == []
    assert await api.events_about(rule) == []


async def no_claim_is_made(api: Api, kubelet: Kubelet, rule: str) -> None:
    await create_pod(api, rule, Case(rule, "", objects.pod(rule, templates={"gpu": "tt"})))
    await waiting.wait_until(
        lambda: api.events_about(rule),
        lambda events: any(e["reason"] == "FailedResourceClaimCreation" for e in events),
        what="the event",
    )


async def no_claim_fits_the_quota(api: Api, kubelet: Kubelet, rule: str) -> None:
    await waiting.wait_until(
        lambda: api.get("resourcequotas", "devices"),
        lambda quota: quota.get("status", {}).get("hard"),
        what="the quota is in force",
    )
    for index, case in enumerate(CAUGHT["FTL055"]):
        name = f"{rule}-{index}"
        await create_pod(api, name, case)
        await waiting.wait_until(
            lambda name=name: api.events_about(name),  # type: ignore[misc]
            lambda events: any(
                e["reason"] == "FailedResourceClaimCreation" and "exceeded quota" in e["message"]
                for e in events
            ),
            what="the event",
        )


async def runs_on_one_node(api: Api, kubelet: Kubelet, rule: str) -> None:
    await api.create(objects.claim(rule))
    names = [f"{rule}-{i}" for i in range(3)]
    for name in names:
        await api.create(objects.pod(name, claims={"gpu": rule}))
    nodes = {await waiting.bound(api, name, timeout_s=30) for name in names}
    assert len(nodes) == 1


async def gets_twice_the_devices(api: Api, kubelet: Kubelet, rule: str) -> None:
    # It needs two free devices on one node, and the others of this test take those of the world.
    await create_node(api, objects.node("roomy"))
    await api.create(objects.resource_slice("roomy", 16, driver=GPU))
    await create_pod(api, rule, CAUGHT["FTL041"][0])
    await waiting.bound(api, rule, timeout_s=30)
    status = (await api.get("pods", rule))["status"]
    extended = status["extendedResourceClaimStatus"]["resourceClaimName"]
    own = status["resourceClaimStatuses"][0]["resourceClaimName"]
    devices = [
        (result["pool"], result["device"])
        for claim in (extended, own)
        for result in (await api.get("resourceclaims", claim))["status"]["allocation"]["devices"][
            "results"
        ]
    ]
    assert len(set(devices)) == 2


async def the_newest_class_wins(api: Api, kubelet: Kubelet, rule: str) -> None:
    resource = "example.com/twice"
    for name in ("older", "newer"):
        made = objects.device_class(f"{rule}-{name}", extended_resource=resource)
        await api.create(made)
        await asyncio.sleep(1.1)  # creation times have whole seconds
    await api.create(objects.pod(rule, gpus=1, resource=resource))
    await waiting.bound(api, rule, timeout_s=30)
    status = (await api.get("pods", rule))["status"]["extendedResourceClaimStatus"]
    claim = await api.get("resourceclaims", status["resourceClaimName"])
    (request,) = claim["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == f"{rule}-newer"


async def never_allocated(api: Api, kubelet: Kubelet, rule: str) -> None:
    await create_pod(api, rule, CAUGHT["FTL044"][0])
    claim = await waiting.wait_until(
        lambda: api.get("pods", rule),
        lambda pod: pod["status"].get("resourceClaimStatuses"),
        what="the claim is made",
    )
    name = claim["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    await asyncio.sleep(3)
    assert "allocation" not in (await api.get("resourceclaims", name)).get("status", {})


async def seconds_are_ignored(api: Api, kubelet: Kubelet, rule: str) -> None:
    """Of an effect that never evicts: the pod outlives them."""
    taint = {"key": "example.com/slow", "effect": "NoSchedule"}
    driver = "slow.example.com"
    await create_node(api, objects.node("slow"))
    await api.create(
        objects.resource_slice("slow", [objects.device("d", taints=[taint])], driver=driver)
    )
    await api.create(objects.device_class(driver, driver=driver))
    toleration = {**taint, "operator": "Exists", "tolerationSeconds": 1}
    await api.create(
        objects.claim(rule, objects.claim_spec(device_class=driver, tolerations=[toleration]))
    )
    await api.create(objects.pod(rule, claims={"gpu": rule}))
    await waiting.in_phase(api, rule, "Running", timeout_s=30)
    await asyncio.sleep(4)
    assert (await api.get("pods", rule))["status"]["phase"] == "Running"


async def is_accepted_and_runs(api: Api, kubelet: Kubelet, rule: str) -> None:
    driver = "many-tolerations.example.com"
    await create_node(api, objects.node("many-tolerations"))
    await api.create(objects.resource_slice("many-tolerations", 1, driver=driver))
    await api.create(objects.device_class(driver, driver=driver))
    (request,) = CAUGHT["FTL031"][0].object["spec"]["devices"]["requests"]
    tolerations = request["exactly"]["tolerations"]
    spec = objects.claim_spec(device_class=driver, tolerations=tolerations)
    stored = await api.create(objects.claim(rule, spec))
    (request,) = stored["spec"]["devices"]["requests"]
    assert len(request["exactly"]["tolerations"]) == len(tolerations) > 16
    await api.create(objects.pod(rule, claims={"gpu": rule}))
    await waiting.in_phase(api, rule, "Running", timeout_s=30)


async def is_not_tolerated(api: Api, kubelet: Kubelet, rule: str) -> None:
    taint = {"key": "example.com/kept", "effect": "NoSchedule"}
    await create_node(api, objects.node("kept", labels={"kept": "yes"}, taints=[taint]))
    typo = {"key": "example.com/kep", "operator": "Exists", "effect": "NoSchedule"}
    made = objects.pod(rule)
    made["spec"] |= {"nodeSelector": {"kept": "yes"}, "tolerations": [typo]}
    await api.create(made)
    assert "untolerated taint" in await waiting.refused(api, rule, timeout_s=30)


Show = Callable[[Api, Kubelet, str], Coroutine[Any, Any, None]]
SHOWN: dict[str, Show] = {
    "ftl028": evicted_again,
    "ftl033": runs_without_devices,
    "ftl034": beta_is_not_served,
    "ftl035": runs_in_silence,
    "ftl036": runs_in_silence,
    "ftl037": pending_without_a_word,
    "ftl038": no_claim_is_made,
    "ftl039": the_257th_cannot_be_reserved,
    "ftl040": runs_on_one_node,
    "ftl041": gets_twice_the_devices,
    "ftl042": the_newest_class_wins,
    "ftl043": is_not_evicted,
    "ftl044": never_allocated,
    "ftl027": seconds_are_ignored,
    "ftl031": is_accepted_and_runs,
    "ftl054": is_not_tolerated,
    "ftl055": no_claim_fits_the_quota,
    "ftl056": is_reserved_once,
    "ftl063": takes_room_among_devices,
    "ftl113": evicts_from_the_whole_driver,
}
