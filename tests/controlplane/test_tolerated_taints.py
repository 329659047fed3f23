"""What a claim tolerates is not held against a device: not by the allocator, and not by Fettle."""

from __future__ import annotations

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import install, scores

BURN_IN = "example.org/burn-in"
STRICT = {"fettle.dev/policy": "training"}


async def test_a_claim_that_tolerates_a_drivers_taint_gets_the_device_and_others_are_kept_off(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    tainted = objects.gpu_devices(2, taints={i: [objects.taint(BURN_IN)] for i in range(2)})
    await create_dra_node(api, "new", tainted, objects.node("new", cpu="512"))
    await create_dra_node(api, "good", 2, objects.node("good", cpu="16"))
    tolerating = objects.claim_spec(tolerations=[{"key": BURN_IN, "operator": "Exists"}])
    await api.create(objects.claim_template("tolerates", tolerating))
    await api.create(objects.claim_template("does-not"))
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)

    # The scheduler's own scores prefer the node with the most idle processors.
    pod = objects.pod("tester", templates={"gpu": "tolerates"}, cpu="4", annotations=STRICT)
    await api.create(pod)
    assert await waiting.bound(api, "tester") == "new"
    verdict = (await scores(fettle, "tester"))["new"]
    assert verdict["fits"]
    assert verdict["score"] == 10
    assert verdict["devices"][0]["tolerated"] == [f"{BURN_IN}:NoSchedule"]

    pod = objects.pod("other", templates={"gpu": "does-not"}, cpu="4", annotations=STRICT)
    await api.create(pod)
    assert await waiting.bound(api, "other") == "good"


async def test_a_toleration_without_an_effect_sends_no_pod_where_it_would_be_evicted_at_once(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    evicting = objects.gpu_devices(
        2, taints={i: [objects.taint(BURN_IN, "NoExecute")] for i in (0, 1)}
    )
    await create_dra_node(api, "new", evicting, objects.node("new", cpu="512"))
    await create_dra_node(api, "good", 2, objects.node("good", cpu="16"))
    for name, effect in (("lets-on", {}), ("stays", {"effect": "NoExecute"})):
        toleration = {"key": BURN_IN, "operator": "Exists", **effect}
        spec = objects.claim_spec(tolerations=[toleration])
        await api.create(objects.claim_template(name, spec))
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)

    # The scheduler's own scores prefer the node with the most idle processors.
    for name, node in (("lets-on", "good"), ("stays", "new")):
        pod = objects.pod(name, templates={"gpu": name}, cpu="4", annotations=STRICT)
        await api.create(pod)
        assert await waiting.bound(api, name) == node
    verdict = (await scores(fettle, "lets-on"))["new"]
    assert not verdict["fits"]
