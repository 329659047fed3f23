"""What the scheduler makes of claims that are allocated already, and Fettle's word on it before."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.controlplane import objects, predictions, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.objects import DRIVER
from tests.controlplane.predictions import Foretold, foretold

HERE = {"key": "metadata.name", "operator": "In", "values": ["n"]}
HELD = [{"name": "example.com/wait-for-prediction"}]
"""Scheduling gates: nobody looks at the pod before it was explained."""


@pytest.fixture
async def fettle(control_plane: ControlPlane, api: Api, start_fettle: StartFettle) -> FettleProcess:
    """One node with two devices, and no controller-manager, which would tidy claims up."""
    await create_dra_node(api, "n", objects.gpu_devices(2), objects.node("n"))
    await control_plane.start_scheduler(objects.scheduler_configuration())
    return await start_fettle("extender")


async def allocated(api: Api, reserved: int = 0, name: str = "c", **more: Any) -> None:
    """A claim that holds gpu-0; `more` are fields of its one result, or `devices`, `seconds`: how
    long ago it was allocated, or None where it does not say when."""
    await api.create(objects.claim(name))
    seconds = more.pop("seconds", 0)
    at = datetime.now(UTC) - timedelta(seconds=seconds or 0)
    stamp = {} if seconds is None else {"allocationTimestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    devices = more.pop("devices", [])
    names = {"driver": DRIVER, "pool": "n", "device": more.pop("device", "gpu-0")}
    pods = [{"resource": "pods", "name": f"p{i}", "uid": f"u{i}"} for i in range(reserved)]
    status = {
        "allocation": {
            **stamp,
            "devices": {"results": [{"request": "gpu", **names, **more}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [HERE]}]},
        },
        "reservedFor": pods,
        "devices": [{**names, "conditions": devices}] if devices else [],
    }
    await api.patch_status("resourceclaims", name, status)


def condition(kind: str) -> Object:
    return {
        "type": kind,
        "status": "True",
        "reason": "Said",
        "message": "",
        "lastTransitionTime": objects.now(),
    }


async def barred(api: Api, fettle: FettleProcess, *entries: str) -> str:
    """Why no node is fit for a new pod with the claim, by one entry or these, which is then left
    to the scheduler."""
    pod = objects.pod("p", claims=dict.fromkeys(entries or ("gpu",), "c"))
    pod["spec"]["schedulingGates"] = HELD
    await api.create(pod)

    async def explained() -> tuple[str, bool]:
        status, answer = await fettle.browse("/explain", pod="default/p")
        assert isinstance(answer, dict)
        if status != 200:
            return "", False
        why = "; ".join(answer["nodes"]["n"]["rejected"])
        return why, bool(why or answer["demand"]["allocated"])

    why, _ = await waiting.wait_until(
        explained, lambda seen: seen[1], what="Fettle knows the pod and what its claim holds"
    )
    await api.patch("pods", "p", {"spec": {"schedulingGates": None}})
    return why


async def test_a_claim_that_is_reserved_for_256_pods_can_be_reserved_for_no_other(
    api: Api, fettle: FettleProcess
) -> None:
    await allocated(api, reserved=256)
    assert "reserved for 256 pods, the maximum" in await barred(api, fettle)
    await waiting.refused(api, "p", saying="must have at most 256 items")


async def test_a_claim_that_is_reserved_for_255_pods_can_be_reserved_for_one_more(
    api: Api, fettle: FettleProcess
) -> None:
    await allocated(api, reserved=255)
    assert await barred(api, fettle) == ""
    assert await waiting.bound(api, "p") == "n"


@pytest.mark.parametrize("reserved", [0, 1])
async def test_a_claim_that_does_not_say_when_it_was_allocated_can_be_reserved_for_no_pod(
    api: Api, fettle: FettleProcess, reserved: int
) -> None:
    await allocated(api, reserved, seconds=None)
    assert "was allocated without an allocationTimestamp" in await barred(api, fettle)
    await waiting.refused(api, "p", saying="status.allocation: Invalid value")


async def test_a_claim_that_a_pod_names_twice_cannot_be_reserved_for_it(
    api: Api, fettle: FettleProcess
) -> None:
    await api.create(objects.claim("c"))
    why = await barred(api, fettle, "gpu", "again")
    assert "claims gpu and again are one ResourceClaim, default/c" in why
    await waiting.refused(api, "p", saying="Duplicate value", timeout_s=30)
    claim = await api.get("resourceclaims", "c")
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 1


BINDS: dict[str, Any] = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"devices": [condition("Broken")]}, "condition Broken says that"),
        ({"seconds": 700}, "did not become true within 600 s"),
    ],
    ids=["failed", "timed out"],
)
async def test_an_allocation_whose_device_cannot_be_bound_is_taken_back(
    api: Api, fettle: FettleProcess, how: Any, said: str
) -> None:
    await allocated(api, **BINDS, **how)
    why = await barred(api, fettle)
    assert said in why
    assert "revokes the allocation" in why

    # It is given a device anew, here without conditions.
    assert await waiting.bound(api, "p", timeout_s=30) == "n"
    claims = await predictions.claims_of(api, await api.get("pods", "p"))
    results = claims[0][1]["status"]["allocation"]["devices"]["results"]
    assert "bindingConditions" not in results[0]


async def test_an_allocation_that_others_use_too_is_not_taken_back(
    api: Api, fettle: FettleProcess
) -> None:
    await allocated(api, reserved=1, devices=[condition("Broken")], **BINDS)
    assert "stays allocated, since" in await barred(api, fettle)
    await waiting.refused(api, "p", saying="0/1 nodes are available")
    claim = await api.get("resourceclaims", "c")
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"


async def test_an_allocation_that_waits_for_its_device_is_used(
    api: Api, fettle: FettleProcess
) -> None:
    await allocated(api, **BINDS, seconds=300)
    assert await barred(api, fettle) == ""
    await waiting.stays_pending(api, "p", for_s=1.0)
    await api.patch_status(
        "resourceclaims",
        "c",
        {
            "devices": [
                {
                    "driver": DRIVER,
                    "pool": "n",
                    "device": "gpu-0",
                    "conditions": [condition("Ready")],
                }
            ]
        },
    )
    assert await waiting.bound(api, "p", timeout_s=30) == "n"


async def test_a_claim_made_for_another_pod_keeps_a_pod_waiting_and_none_at_all_does_not(
    api: Api, fettle: FettleProcess
) -> None:
    """Nobody here makes claims of templates: which one was made, the pod's status is told."""
    await api.create(objects.claim("c"))
    await api.create(objects.claim_template("t"))
    pod = objects.pod("p", templates={"gpu": "t"})
    pod["spec"]["schedulingGates"] = HELD
    await api.create(pod)

    async def says(*, made: str | None) -> Object | None:
        """What Fettle says of the node `n` once it has seen what the pod's status says."""
        named = {"name": "gpu", "resourceClaimName": made}
        await api.patch_status("pods", "p", {"resourceClaimStatuses": [named]})

        async def explained() -> tuple[Object | None, bool]:
            status, answer = await fettle.browse("/explain", pod="default/p")
            assert isinstance(answer, dict)
            said = answer["nodes"].get("n") if status == 200 else None
            rejected = bool(said and said["rejected"])
            return said, rejected if made else status == 200 and not rejected

        said, _ = await waiting.wait_until(
            explained, lambda seen: seen[1], what="Fettle has seen the pod's status"
        )
        return said

    stolen = await says(made="c")
    assert stolen is not None
    assert "ResourceClaim default/c was not made for this pod" in stolen["rejected"][0]
    await api.patch("pods", "p", {"spec": {"schedulingGates": None}})
    await waiting.stays_pending(api, "p", for_s=1.0)

    await says(made=None)  # it may be bound by then, and fits where it is
    assert await waiting.bound(api, "p") == "n"
    assert not (await api.get("resourceclaims", "c")).get("status", {}).get("allocation")


async def test_a_device_that_becomes_free_can_end_an_attempt_that_was_to_succeed(
    api: Api, fettle: FettleProcess
) -> None:
    """Nobody looks at a device in use. Once it is free, a selector that fails on it ends the
    attempt, and whoever was told before knew nothing of that."""
    plain, marked = objects.device("a"), objects.device("b", {"mark": "x"})
    await api.delete("resourceslices", (await api.list("resourceslices"))[0]["metadata"]["name"])
    await api.create(objects.resource_slice("n", [plain, marked]))
    await allocated(api, reserved=1, device="a")
    selecting = objects.claim_spec(selectors=[f'device.attributes["{DRIVER}"].mark == "x"'])
    await api.create(objects.claim("d", selecting))
    pod = objects.pod("p", claims={"gpu": "d"})
    pod["spec"]["schedulingGates"] = HELD
    await api.create(pod)

    async def said() -> Foretold | None:
        status, answer = await fettle.browse("/explain", pod="default/p")
        assert isinstance(answer, dict)
        return foretold(answer).get("n") if status == 200 else None

    before = await waiting.wait_until(
        said, lambda s: bool(s and s.devices), what="Fettle knows that a is in use"
    )
    assert before is not None
    assert before.devices == (("gpu/gpu", f"{DRIVER}/n/b"),)
    await api.delete("resourceclaims", "c")
    after = await waiting.wait_until(
        said, lambda s: bool(s and not s.devices), what="Fettle knows that a is free"
    )
    assert after is not None
    assert after.aborts
    await api.patch("pods", "p", {"spec": {"schedulingGates": None}})
    await waiting.refused(api, "p", saying="no such key: mark")


async def bound_after(api: Api, fettle: FettleProcess, pod: Object, device: str) -> None:
    """Leave a new pod to the scheduler once this device of `n` is foretold for it."""
    name = pod["metadata"]["name"]
    pod["spec"]["schedulingGates"] = HELD
    await api.create(pod)

    async def said() -> list[str]:
        status, answer = await fettle.browse("/explain", pod=f"default/{name}")
        return [d for _, d in foretold(answer)["n"].devices] if status == 200 else []

    await waiting.wait_until(
        said, lambda devices: devices == [f"{DRIVER}/n/{device}"], what=f"Fettle foretells {device}"
    )
    await api.patch("pods", name, {"spec": {"schedulingGates": None}})
    assert await waiting.bound(api, name) == "n"


async def test_a_device_that_two_claims_hold_is_free_to_the_scheduler_once_one_of_them_goes(
    api: Api, fettle: FettleProcess
) -> None:
    """Until it is restarted: it remembers which devices are taken, and not by how many."""
    for name in ("x", "y"):
        await allocated(api, name=name)
    await in_use(fettle, {f"{DRIVER}/n/gpu-0"})
    await api.delete("resourceclaims", "x")
    await api.create(objects.claim("c"))
    await bound_after(api, fettle, objects.pod("p", claims={"gpu": "c"}), "gpu-1")
    claims = await predictions.claims_of(api, await api.get("pods", "p"))
    assert predictions.got(claims) == (("gpu/gpu", f"{DRIVER}/n/gpu-0"),)


async def in_use(fettle: FettleProcess, devices: set[str]) -> None:
    await waiting.wait_until(
        lambda: fettle.browse("/devices"),
        lambda answered: predictions.in_use(answered) == devices,
        what=f"Fettle knows that {devices} are in use",
    )


def giving(resource: str, name: str, index: int) -> Object:
    """A class that gives the device with this index for the resource."""
    this = f'device.attributes["{DRIVER}"].index == {index}'
    return objects.device_class(name, extended_resource=resource, selectors=[this])


async def test_of_two_classes_made_in_one_second_the_first_by_name_is_foretold(
    api: Api, fettle: FettleProcess
) -> None:
    for number in itertools.count():
        resource = f"example.com/both-{number}"
        pair = (f"{number}-ext-b", 0), (f"{number}-ext", 1)
        made = [await api.create(giving(resource, *each)) for each in pair]
        if len({each["metadata"]["creationTimestamp"] for each in made}) == 1:
            break
    await bound_after(api, fettle, objects.pod("p", gpus=1, resource=resource), "gpu-1")
    (claim,) = await api.list("resourceclaims", "default")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["device"] == "gpu-1"
