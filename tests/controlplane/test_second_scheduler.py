"""A second kube-scheduler, which asks Fettle, beside one that cannot be configured: pods whose
policy says so go by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from tests.controlplane import building, objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import start_registered
from tests.controlplane.mutating import NAMED
from tests.controlplane.objects import policy
from tests.controlplane.processes import free_port
from tests.controlplane.taints import publish
from tests.controlplane.test_affinity import GPUS, devices, owned, placed

OURS = "fettle-scheduler"
SHIPPED = shipped.DEPLOY / "second-scheduler"
BY_OURS: Object = {"placement": {"degraded": "Refuse", "scheduler": OURS}}


def configuration(extender_url: str) -> Object:
    """The shipped one, for a Fettle that enforces."""
    (config_map,) = (
        one for one in shipped.manifests(SHIPPED / "scheduler.yaml") if one["kind"] == "ConfigMap"
    )
    found: Object = yaml.safe_load(config_map["data"]["kube-scheduler-config.yaml"])
    for entry in found["extenders"]:
        entry |= {"urlPrefix": extender_url, "ignorable": False}
    return found


async def start(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, folder: Path
) -> None:
    """The webhook as shipped, and the second scheduler with its extender under their account."""
    await define_policies(api)
    await api.create(policy("own", BY_OURS))
    await shipped.apply_rbac(api)
    await shipped.apply(api, shipped.manifests(SHIPPED / "rights.yaml"))
    file = folder / "settings.yaml"
    file.write_text(f"mode: enforce\nscheduler: {{names: [{OURS}]}}\n")
    webhook = await start_registered(api, start_fettle, "webhook", settings=file)
    account = await control_plane.kubeconfig_for_service_account(OURS, shipped.NAMESPACE)
    extender = await start_fettle("extender", kubeconfig=account, settings=file)
    await control_plane.start_second_scheduler(OURS, configuration(extender.extender_url), account)
    await waiting.wait_until(
        lambda: webhook.browse("/policy", name="own"),
        lambda answer: answer[0] == 200,
        what="the policy is known",
    )


@pytest.mark.usefixtures("kubelet")
async def test_pods_of_a_policy_that_names_it_go_by_a_second_scheduler_and_no_others(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await devices(api)
    await publish(api, "bad", 8, tuple(range(8)))
    await start(control_plane, api, start_fettle, tmp_path)

    assert await placed(api, "plain") == "bad"
    assert (await api.get("pods", "plain"))["spec"]["schedulerName"] == "default-scheduler"
    assert await placed(api, "ours", annotations=NAMED) == "good"
    assert (await api.get("pods", "ours"))["spec"]["schedulerName"] == OURS
    assert await api.find("leases", OURS, shipped.NAMESPACE), "two replicas elect a leader by it"
    async with await control_plane.api_as_service_account(OURS, shipped.NAMESPACE) as account:
        assert await account.find("leases", "fettle-steward", shipped.NAMESPACE) is None

    wanted = objects.deployment("many", replicas=2, templates=GPUS, cpu="1")
    wanted["metadata"]["annotations"] = dict(NAMED)
    made = await api.create(wanted)
    assert made["spec"]["template"]["spec"]["schedulerName"] == OURS
    pods = await waiting.wait_until(
        lambda: owned(api),
        lambda pods: len(pods) == 2 and all(map(waiting.node_of, pods)),
        what="the Deployment's pods are bound",
    )
    assert {waiting.node_of(pod) for pod in pods} == {"good"}


class Pausing:
    """An extender that refuses nothing, but waits with its answer until it is told to go on."""

    def __init__(self) -> None:
        self.asked, self.go_on = asyncio.Event(), asyncio.Event()
        self.url = f"http://127.0.0.1:{free_port()}"

    async def filter(self, request: web.Request) -> web.Response:
        self.asked.set()
        await self.go_on.wait()
        return web.json_response({"NodeNames": (await request.json())["NodeNames"]})


@pytest.fixture
async def pausing() -> AsyncIterator[Pausing]:
    extender = Pausing()
    app = web.Application()
    app.router.add_post("/filter", extender.filter)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(extender.url.rpartition(":")[2])).start()
    yield extender
    extender.go_on.set()
    await runner.cleanup()


async def allocated(api: Api, pod: str) -> Object:
    """The one device that the claim of a pod has."""
    (status,) = (await api.get("pods", pod))["status"]["resourceClaimStatuses"]
    claim = await api.get("resourceclaims", status["resourceClaimName"])
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return {key: result[key] for key in ("driver", "pool", "device")}


@pytest.mark.usefixtures("kubelet")
async def test_two_schedulers_may_give_one_device_to_two_claims_and_nothing_refuses_it(
    control_plane: ControlPlane, api: Api, pausing: Pausing
) -> None:
    """Each knows only what it has assumed itself until it sees what the other has written. Here the
    second one has chosen its device, and the first one takes it before that is written."""
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    entry = {
        "urlPrefix": pausing.url,
        "filterVerb": "filter",
        "nodeCacheCapable": True,
        "httpTimeout": "60s",
    }
    await control_plane.start_second_scheduler("second", {"extenders": [entry]})
    await create_dra_node(api, "only", 1)
    await api.create(objects.claim_template("gpus"))

    slower = objects.pod("slower", templates=GPUS)
    slower["spec"]["schedulerName"] = "second"
    await api.create(slower)
    async with asyncio.timeout(60):
        await pausing.asked.wait()
    assert await placed(api, "faster") == "only"
    pausing.go_on.set()
    assert await waiting.bound(api, "slower") == "only"
    assert await allocated(api, "slower") == await allocated(api, "faster")


@pytest.mark.usefixtures("kubelet")
async def test_the_second_scheduler_preempts_under_the_shipped_limits(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.priority_class("high", 1000))
    await create_node(api, objects.node("n", 8, cpu="2"))
    await start(control_plane, api, start_fettle, tmp_path)

    low = objects.pod("low", cpu="2", gpus=1)
    low["spec"] |= {"schedulerName": OURS, "terminationGracePeriodSeconds": 0}
    await api.create(low)
    await waiting.bound(api, "low")
    high = objects.pod("high", cpu="2", gpus=1)
    high["spec"] |= {"schedulerName": OURS, "priorityClassName": "high"}
    await api.create(high)
    assert await waiting.bound(api, "high") == "n"
    assert await api.find("pods", "low") is None


@pytest.mark.skipif(building.minor() < 36, reason="DRAExtendedResource is off by default")
@pytest.mark.usefixtures("kubelet")
async def test_the_second_scheduler_makes_claims_for_extended_resources_on_sound_devices(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    """Nobody asks for a claim: a class stands behind the resource, and the limits let the second
    scheduler make one."""
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.device_class(extended_resource=objects.GPU))
    await devices(api)
    await publish(api, "bad", 8, tuple(range(8)))
    await start(control_plane, api, start_fettle, tmp_path)

    for name, named, node in (("plain", {}, "bad"), ("ours", NAMED, "good")):
        await api.create(objects.pod(name, gpus=1, cpu="4", annotations=named))
        assert await waiting.bound(api, name) == node
    ours = await api.get("pods", "ours")
    assert ours["spec"]["schedulerName"] == OURS
    claim = ours["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    (given,) = (await api.get("resourceclaims", claim))["status"]["allocation"]["devices"][
        "results"
    ]
    assert given["pool"] == "good"
