"""Claims with injected tolerations and fallbacks, under the real scheduler and controllers."""

from __future__ import annotations

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.installed import register_extender
from tests.controlplane.mutating import (
    DEGRADED,
    EVERYTHING,
    KEPT,
    NAMED,
    TOLERATION,
    installed,
    reviewed,
)


async def test_claims_made_from_templates_carry_the_tolerations_of_their_pods_policy(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    """A tainted device: nobody gets it but who tolerates that. A key of ours says nothing about the
    device's health, so Fettle itself does not refuse it."""
    tainted = objects.gpu_devices(1, taints={0: [objects.taint(KEPT)]})
    await create_dra_node(api, "w0", tainted)
    await control_plane.start_controller_manager()
    spec = {"tolerations": {"devices": [{"key": KEPT}]}}
    fettle = await installed(api, start_fettle, spec, control_plane)
    await api.create(objects.claim_template("one-gpu"))
    await api.create(objects.pod("other", templates={"gpu": "one-gpu"}))
    await waiting.refused(api, "other")
    before = await reviewed(fettle)
    await api.create(objects.pod("tolerant", templates={"gpu": "one-gpu"}, annotations=NAMED))
    assert await waiting.bound(api, "tolerant") == "w0"
    (claim,) = [
        claim
        for claim in await api.list("resourceclaims", "default")
        if claim["metadata"]["ownerReferences"][0]["name"] == "tolerant"
    ]
    tolerations = claim["spec"]["devices"]["requests"][0]["exactly"]["tolerations"]
    assert [(t["key"], t["effect"]) for t in tolerations] == [
        (KEPT, "NoSchedule"),
        (KEPT, "NoExecute"),
    ]
    allocated = claim["status"]["allocation"]["devices"]["results"][0]
    assert len(allocated["tolerations"]) == 2
    assert await reviewed(fettle) - before == 2  # the pod and its claim, and no update of either


async def test_degraded_devices_are_taken_when_the_sound_ones_are_gone(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "w0", 2)
    await create_dra_node(api, "w1", 2)
    for number, (node, device) in enumerate((("w0", "gpu-0"), ("w0", "gpu-1"), ("w1", "gpu-0"))):
        rule = objects.device_taint_rule(
            f"degraded-{number}", DEGRADED, driver=objects.DRIVER, pool=node, device=device
        )
        await api.create(rule)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.claim_template("plain"))
    for name in ("before-0", "before-1"):
        await api.create(objects.pod(name, templates={"gpu": "plain"}))
    bound = await waiting.wait_until(
        lambda: api.list("pods", "default"),
        lambda pods: any(map(waiting.node_of, pods)),
        what="one pod gets the sound device",
    )
    (waits,) = [p["metadata"]["name"] for p in bound if not waiting.node_of(p)]
    await waiting.refused(api, waits)  # without the rewriting, degraded devices are nobody's
    for name in ("before-0", "before-1"):
        await api.delete("pods", name, grace_s=0)
        await waiting.gone(api, "pods", name)
    await waiting.wait_until(
        lambda: api.list("resourceclaims", "default"), lambda left: left == [], what="claims gone"
    )

    spec = {"tolerations": {"degradedAsFallback": True}}
    await installed(api, start_fettle, spec, control_plane)
    await api.create(objects.claim_template("steered", annotations=NAMED))
    chosen = []
    for number in range(4):
        name = f"p{number}"
        await api.create(objects.pod(name, templates={"gpu": "steered"}))
        node = await waiting.bound(api, name)
        (claim,) = [
            claim
            for claim in await api.list("resourceclaims", "default")
            if claim["metadata"]["ownerReferences"][0]["name"] == name
        ]
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        chosen.append((node, result["device"], result["request"]))
    assert chosen[0] == ("w1", "gpu-1", "gpu/sound")
    assert {request for _, _, request in chosen[1:]} == {"gpu/degraded"}
    assert len({(node, device) for node, device, _ in chosen}) == 4


async def test_a_claim_that_the_scheduler_makes_and_its_updates_are_never_sent(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "w0", 1)
    await api.apply(objects.device_class(extended_resource="example.com/gpu"))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    fettle = await installed(api, start_fettle, EVERYTHING)
    await api.patch("namespaces", "default", {"metadata": {"labels": NAMED}})
    before = await reviewed(fettle)
    await api.create(objects.pod("p", gpus=1, resource="example.com/gpu"))
    assert await waiting.bound(api, "p") == "w0"
    (claim,) = await waiting.wait_until(
        lambda: api.list("resourceclaims", "default"), what="the scheduler made a claim"
    )
    assert "fettle.dev/injected" not in claim["metadata"]["annotations"]
    assert await reviewed(fettle) - before == 1  # the pod


async def test_where_the_cluster_drops_tolerations_none_are_injected(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await control_plane.stop_api_server(kill=True)
    off = "--feature-gates=DRADeviceTaints=false,DRADeviceTaintRules=false"
    await control_plane.start_api_server(off)
    dropped = await api.create(objects.claim("own", objects.claim_spec(tolerations=[TOLERATION])))
    assert "tolerations" not in dropped["spec"]["devices"]["requests"][0]["exactly"]
    await installed(api, start_fettle, EVERYTHING)
    made = await api.create(objects.claim("c", annotations=NAMED))
    assert "fettle.dev/injected" not in made["metadata"]["annotations"]
    assert "drops device tolerations" in " ".join(api.warnings)
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


async def calls_that_hung(api: Api) -> float:
    """How many calls of webhooks the API server has given up, and gone on without."""
    metrics = await api.request_text("GET", "/metrics")
    name = "apiserver_admission_webhook_fail_open_count{"
    return sum(float(x.rpartition(" ")[2]) for x in metrics.splitlines() if x.startswith(name))


async def test_while_the_webhook_hangs_the_life_of_claims_goes_on(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "w0", 1)
    await control_plane.start_controller_manager()
    webhook = await installed(api, start_fettle, EVERYTHING)
    await register_extender(control_plane, await start_fettle("extender"))
    await api.patch("namespaces", "default", {"metadata": {"labels": NAMED}})
    await api.create(objects.claim_template("one-gpu"))
    await api.patch("nodes", "w0", {"spec": {"unschedulable": True}})
    await api.create(objects.pod("p", templates={"gpu": "one-gpu"}, annotations=NAMED))
    await waiting.refused(api, "p")
    (claim,) = await api.list("resourceclaims", "default")
    assert "firstAvailable" in claim["spec"]["devices"]["requests"][0]
    hung = await calls_that_hung(api)
    webhook.freeze()
    try:
        await api.patch("nodes", "w0", {"spec": {"unschedulable": None}})
        await waiting.bound(api, "p")
        await api.delete("pods", "p", grace_s=0)
        await waiting.gone(api, "resourceclaims", claim["metadata"]["name"])
        assert await calls_that_hung(api) == hung
        await api.create(objects.claim("new", annotations=NAMED))
        assert await calls_that_hung(api) > hung
    finally:
        webhook.thaw()
