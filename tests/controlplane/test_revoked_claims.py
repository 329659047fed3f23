"""Claims that are allocated and used by nobody, as one is left where binding a pod failed: when the
scheduler revokes the allocation, and Fettle's word on it before.

The claim holds a device that the driver reports lost, so Fettle refuses its node.
"""

from __future__ import annotations

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import REFUSED, register_extender
from tests.controlplane.objects import DRIVER

LOST = [objects.taint("gpu.nvidia.com/xid", "None", "79")]
STRICT = {"fettle.dev/policy": "training"}
GATE = [{"name": "example.com/wait-for-prediction"}]


@pytest.fixture
async def fettle(control_plane: ControlPlane, api: Api, start_fettle: StartFettle) -> FettleProcess:
    """A node whose first device is lost and whose second one is not; no controller-manager, which
    would tidy claims up."""
    await create_dra_node(api, "n", objects.gpu_devices(2, taints={0: LOST}), objects.node("n"))
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    return fettle


async def allocated(api: Api, *, reserved: str = "", pool: str = "n") -> None:
    """Claim `c` holds the lost device of a pool, reserved for a pod of this UID or for none."""
    await api.create(objects.claim("c"))
    here = {"key": "metadata.name", "operator": "In", "values": ["n"]}
    result = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": "gpu-0"}
    allocation: Object = {
        "allocationTimestamp": objects.now(),
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
    }
    if pool != "n":
        del allocation["nodeSelector"]
    pods = [{"resource": "pods", "name": "p", "uid": reserved}] if reserved else []
    status = {"allocation": allocation, "reservedFor": pods}
    await api.patch_status("resourceclaims", "c", status)


async def told(api: Api, fettle: FettleProcess) -> list[Object]:
    """What Fettle notes about the pod `p` with the claim, which is then left to the scheduler."""

    async def notes() -> list[Object] | None:
        status, answer = await fettle.browse("/explain", pod="default/p")
        assert isinstance(answer, dict)
        known = status == 200 and len(answer["nodes"]) == 2 and answer["demand"]["allocated"]
        refused = known and not answer["nodes"]["n"]["allowed"]
        about = answer["reasons"]["notes"]
        return [n for n in about if n["code"] != "PodGated"] if refused else None

    found = await waiting.wait_until(notes, lambda n: n is not None, what="Fettle knows the claim")
    await api.patch("pods", "p", {"spec": {"schedulingGates": None}})
    return found or []


async def gated(api: Api) -> Object:
    pod = objects.pod("p", claims={"gpu": "c"}, annotations=STRICT)
    (container,) = pod["spec"]["containers"]
    container["resources"]["limits"] = {"fettle.dev/claims": "0"}  # else nobody asks Fettle
    pod["spec"]["schedulingGates"] = GATE
    return await api.create(pod)


async def stays(api: Api) -> None:
    """The pod waits, and its claim holds what it held."""
    await waiting.refused(api, "p")
    await waiting.stays_pending(api, "p", for_s=2.0)
    claim = await api.get("resourceclaims", "c")
    assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"


@pytest.mark.parametrize("own", [False, True], ids=["nobody's", "its own"])
async def test_where_another_node_is_looked_at_the_claim_is_freed_and_allocated_there(
    api: Api, fettle: FettleProcess, own: bool
) -> None:
    await create_dra_node(api, "m", 1, objects.node("m"))
    pod = await gated(api)
    await allocated(api, reserved=pod["metadata"]["uid"] if own else "")
    (note,) = await told(api, fettle)
    assert (note["code"], note["claim"]) == ("ClaimWillBeReallocated", "gpu")
    assert await waiting.bound(api, "p", timeout_s=30) == "m"


async def test_where_no_other_node_is_looked_at_the_claim_stays_as_it_is(
    api: Api, fettle: FettleProcess
) -> None:
    """A node that is cordoned is not looked at, until it is not."""
    await create_dra_node(api, "m", 1, objects.node("m"))
    taint = objects.taint("node.kubernetes.io/unschedulable")
    await api.patch("nodes", "m", {"spec": {"unschedulable": True, "taints": [taint]}})

    async def cordoned() -> bool:
        node = await fettle.browse("/explain", pod="default/p")
        return "cordoned" in str(node)

    await gated(api)
    await allocated(api)
    await waiting.wait_until(cordoned, what="Fettle knows of the cordon")
    (note,) = await told(api, fettle)
    assert (note["code"], note["resourceClaim"]) == ("ClaimStaysAllocated", "default/c")
    await stays(api)
    assert REFUSED in await waiting.refused(api, "p")
    await api.patch("nodes", "m", {"spec": {"unschedulable": None, "taints": None}})
    assert await waiting.bound(api, "p", timeout_s=30) == "m"


async def test_where_no_other_node_can_run_the_pod_anyway_the_claim_stays_as_it_is(
    api: Api, fettle: FettleProcess
) -> None:
    """Fettle does not look at processors: that is what the note says beside it."""
    await create_dra_node(api, "m", 1, objects.node("m", cpu="10m"))
    await allocated(api)
    await gated(api)
    (note,) = await told(api, fettle)
    assert note["code"] == "ClaimWillBeReallocated"
    await stays(api)


async def test_a_claim_that_can_be_used_on_every_node_stays_as_it_is(
    api: Api, fettle: FettleProcess
) -> None:
    await create_dra_node(api, "m", 1, objects.node("m"))
    lost = objects.gpu_devices(1, taints={0: LOST})
    network = objects.resource_slice("", lost, pool="net", name="net")
    del network["spec"]["nodeName"]
    await api.create({**network, "spec": {**network["spec"], "allNodes": True}})
    await allocated(api, pool="net")
    await gated(api)
    (note,) = await told(api, fettle)
    assert note["code"] == "ClaimStaysAllocated"
    await stays(api)


async def test_a_claim_that_another_pod_uses_stays_as_it_is(
    api: Api, fettle: FettleProcess
) -> None:
    await create_dra_node(api, "m", 1, objects.node("m"))
    await allocated(api, reserved="another")
    await gated(api)
    assert await told(api, fettle) == []
    await stays(api)
