"""The steward taints devices by their health: the scheduler itself takes others then, also while it
decides faster than anybody can follow. Every taint goes when its reason ends."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.controlplane import objects, predictions, shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.components import RULES
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import REFUSED, register_extender, scores, start_registered
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.mutating import NAMED
from tests.controlplane.objects import policy
from tests.controlplane.taints import LOST, publish, times_logged

RIGHTS = shipped.DEPLOY / "rbac" / "optional" / "health-taints.yaml"
UNHEALTHY, DEGRADED = "fettle.dev/unhealthy", "fettle.dev/degraded"
SLOW_LINK = """
attributes:
  - {name: slow-link, driver: gpu.nvidia.com, attribute: link, value: slow, family: link,
     weight: 0.5, source: "of this test alone: Degraded, without a taint of the driver"}
"""
STRICT = {"fettle.dev/policy": "training"}
HEALS_WITHIN_S = 3.0


def settings(
    folder: Path, text: str = "unhealthy: NoSchedule, confirmSeconds: 2", more: str = ""
) -> Path:
    file = folder / "settings.yaml"
    file.write_text(f"deviceTaints: {{{text}}}\n{more}\n")
    return file


async def taints(api: Api) -> dict[str, tuple[str, str]]:
    """By node and device, the key and effect of the taint that a rule sets."""
    return {
        f"{spec['deviceSelector']['pool']}/{spec['deviceSelector']['device']}": (
            spec["taint"]["key"],
            spec["taint"]["effect"],
        )
        for spec in [rule["spec"] for rule in await api.list("devicetaintrules")]
    }


async def until_tainted(
    api: Api, wanted: dict[str, tuple[str, str]], timeout_s: float = waiting.PATIENCE_S
) -> None:
    await waiting.wait_until(
        lambda: taints(api),
        lambda found: found == wanted,
        what=f"taints are {wanted}",
        timeout_s=timeout_s,
    )


async def notes(fettle: FettleProcess) -> list[str]:
    """What /readyz says of these taints."""
    _, said = await fettle.browse("/readyz", verbose="true")
    return [line for line in str(said).splitlines() if "device taints: " in line]


async def until_noted(fettle: FettleProcess, what: str) -> None:
    await waiting.wait_until(
        lambda: notes(fettle), lambda said: what in str(said), what=f"/readyz says {what!r}"
    )


async def acts(fettle: FettleProcess) -> list[tuple[str, str, str]]:
    """What the steward wrote, or would have: what it decided, its code, and about which device."""
    _, found = await fettle.browse("/decisions")
    return [
        (one["decided"], *one["reasons"], one["key"])
        for one in found["decisions"]
        if one["verb"] == "steward"
    ]


async def gauges(fettle: FettleProcess) -> set[str]:
    _, metrics = await fettle.browse("/metrics")
    name = "fettle_steward_device_taints"
    return {line for line in str(metrics).splitlines() if line.startswith(f"{name}{{")}


async def test_a_burst_lands_on_no_failed_device_and_a_healed_one_is_used_within_seconds(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    lost, names = (13, 14, 15), [f"w{i}" for i in range(4)]
    for name in names:
        await create_dra_node(api, name, 16)
    await api.create(objects.claim_template("one-gpu"))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    await control_plane.start_controller_manager()
    fettle = await start_registered(api, start_fettle, settings=settings(tmp_path))
    await register_extender(control_plane, fettle)
    assert await taints(api) == {}

    for name in names:
        await publish(api, name, 16, lost)
    refused = {f"{name}/gpu-{i}" for name in names for i in lost}
    await until_tainted(api, dict.fromkeys(refused, (UNHEALTHY, "NoSchedule")))

    pods = [f"p{i}" for i in range(53)]  # there are 52 sound devices
    await asyncio.gather(
        *(
            api.create(objects.pod(name, templates={"gpu": "one-gpu"}, annotations=STRICT))
            for name in pods
        )
    )
    seen = await waiting.wait_until(
        lambda: api.list("pods", "default"),
        lambda found: sum(bool(waiting.node_of(pod)) for pod in found) == 52,
        what="52 pods are bound",
        timeout_s=90,
    )
    bound = [pod for pod in seen if waiting.node_of(pod)]
    claims = [c for pod in bound for c in await predictions.claims_of(api, pod)]
    got = {device.partition("/")[2] for _, device in predictions.got(claims)}
    assert len(got) == 52
    assert not got & refused

    (waits,) = [pod["metadata"]["name"] for pod in seen if not waiting.node_of(pod)]
    await waiting.refused(api, waits)
    verdict = (await scores(fettle, waits))["w2"]
    assert f"3 tainted ({UNHEALTHY})" in str(verdict["rejected"])
    within_s = []
    for healed in (1, 2, 3):  # others may have kept this machine busy
        healed_at = time.monotonic()
        await publish(api, "w2", 16, lost[healed:])
        assert await waiting.bound(api, waits) == "w2"
        within_s.append(time.monotonic() - healed_at)
        if within_s[-1] < HEALS_WITHIN_S:
            break
        waits = f"further-{healed}"
        await api.create(objects.pod(waits, templates={"gpu": "one-gpu"}, annotations=STRICT))
        await waiting.refused(api, waits)
    assert min(within_s) < HEALS_WITHIN_S, within_s
    left = refused - {f"w2/gpu-{i}" for i in lost[: len(within_s)]}
    await until_tainted(api, dict.fromkeys(left, (UNHEALTHY, "NoSchedule")))


async def test_sound_devices_of_a_node_come_first_and_degraded_ones_are_its_fallback(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    """And where the webhook gives no fallback any more, degraded devices are everybody's again."""
    devices = objects.gpu_devices(3)
    for device in devices[:2]:
        device["attributes"]["link"] = {"string": "slow"}
    await create_dra_node(api, "n", devices)
    rules = tmp_path / "rules.yaml"
    rules.write_text(SLOW_LINK)
    await define_policies(api)
    await api.create(policy("own", {"tolerations": {"degradedAsFallback": True}}))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    await control_plane.start_controller_manager()
    steering = "degraded: NoSchedule, confirmSeconds: 0"
    file = settings(tmp_path, steering, f"health: {{rulesFile: {rules}}}")
    fettle = await start_registered(api, start_fettle, settings=file)
    await register_extender(control_plane, fettle)
    slow = ("n/gpu-0", "n/gpu-1")
    await until_tainted(api, dict.fromkeys(slow, (DEGRADED, "NoSchedule")))

    await api.create(objects.claim_template("steered", annotations=NAMED))
    got: list[predictions.Taken] = []
    for name in ("first", "second", "third"):
        await api.create(objects.pod(name, templates={"gpu": "steered"}, annotations=NAMED))
        await waiting.bound(api, name)
        claims = await predictions.claims_of(api, await api.get("pods", name))
        got += predictions.got(claims)
    of_node = f"{objects.DRIVER}/n/gpu-"
    assert got[0] == ("gpu/gpu/sound", f"{of_node}2")
    assert sorted(got[1:]) == [("gpu/gpu/degraded", f"{of_node}{i}") for i in (0, 1)]

    await api.delete("mutatingwebhookconfigurations", "fettle")
    await until_tainted(api, dict.fromkeys(slow, (DEGRADED, "None")), timeout_s=60)
    await until_noted(fettle, "the webhook gave a claim of policy own no fallback")


async def test_a_wrong_rule_taints_nothing_and_what_is_really_bad_only_up_to_the_share(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    """A rule that condemns more than half of the devices is set aside."""
    names = [f"n{i:02}" for i in range(12)]
    rules = tmp_path / "rules.yaml"
    rules.write_text(SLOW_LINK.replace("0.5", "1.0").replace("Degraded", "Unhealthy"))
    for i, name in enumerate(names):
        lost = {0: [LOST]} if i >= 9 else {}
        devices = objects.gpu_devices(8, taints=lost)
        for device in devices if i < 7 else ():
            device["attributes"]["link"] = {"string": "slow"}
        await create_dra_node(api, name, devices)
    await shipped.apply(api, shipped.manifests(RIGHTS))
    two_of_96 = "unhealthy: NoSchedule, confirmSeconds: 0, maxShare: 0.021"
    file = settings(tmp_path, two_of_96, f"health: {{rulesFile: {rules}}}")
    fettle = await start_fettle("steward", settings=file)
    await until_noted(fettle, f"{objects.DRIVER} is bad than deviceTaints.maxShare allows: 1 get")
    written = await waiting.wait_until(
        lambda: taints(api), lambda found: len(found) == 2, what="two devices are tainted"
    )
    assert written.keys() < {"n09/gpu-0", "n10/gpu-0", "n11/gpu-0"}
    _, ready = await fettle.browse("/readyz", verbose="")
    assert "breaker: attribute link is set aside" in ready

    healed, (kept,) = sorted(written)[0], sorted(written)[1:]
    await publish(api, healed.partition("/")[0], 8)
    third = {"n09/gpu-0", "n10/gpu-0", "n11/gpu-0"} - written.keys()
    await until_tainted(api, dict.fromkeys({kept, *third}, (UNHEALTHY, "NoSchedule")))


async def test_an_operator_who_asks_for_no_execute_ends_pods_that_a_disruption_budget_protects(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    """At first the taint only informs."""
    driver = "gpu.intel.com"

    def slice_(health: str) -> Object:
        device = objects.device("gpu-0", {"health": health})
        return objects.resource_slice("n", [device], driver=driver)

    await create_node(api, objects.node("n"))
    await api.create(objects.device_class(driver, driver=driver))
    await api.create(slice_("Healthy"))
    await api.create(objects.claim("c", objects.claim_spec(device_class=driver)))
    await api.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
        }
    )
    await shipped.apply(api, shipped.manifests(RIGHTS))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(objects.pod("p", claims={"gpu": "c"}, labels={"app": "p"}))
    await waiting.in_phase(api, "p", "Running")
    file = settings(tmp_path, "unhealthy: NoExecute, confirmSeconds: 8")
    fettle = await start_fettle("steward", settings=file)

    async def warned() -> int:
        return times_logged(fettle, "no PodDisruptionBudget protects them")

    await waiting.wait_until(warned, lambda times: times == 1, what="it is said once")

    await api.apply(slice_("Unhealthy"))
    await until_tainted(api, {"n/gpu-0": (UNHEALTHY, "None")})
    (informs,) = await api.list("devicetaintrules")
    _, said = await waiting.wait_until(
        lambda: fettle.browse("/explain", device="n/gpu-0"),
        lambda answer: answer[1]["taint"]["rule"] == informs["metadata"]["name"],
        what="the rule is named",
    )
    assert (said["taint"]["there"], said["taint"]["confirmedEffect"]) == ("None", "NoExecute")
    assert said["taint"]["confirmedAt"] - time.time() < 8
    assert not [one for one in await api.events_about("n") if one["reason"] == "DeviceTainted"]
    with pytest.raises(ApiError, match="disruption budget"):
        await api.evict("p")
    await until_tainted(api, {"n/gpu-0": (UNHEALTHY, "NoExecute")})
    (ends,) = await api.list("devicetaintrules")
    assert ends["metadata"]["uid"] == informs["metadata"]["uid"]
    await waiting.gone(api, "pods", "p")

    device = f"{driver}/n/gpu-0"
    assert await acts(fettle) == [
        ("wrote", "ChangeTaint", device),
        ("wrote", "TaintDevice", device),
    ]
    told = await waiting.wait_until(
        lambda: api.events_about("n"),
        lambda events: "DeviceTainted" in str(events),
        what="the node's Events say it",
    )
    assert f"device {device} is Unhealthy" in str(told)
    name = f'fettle_steward_device_taints{{driver="{driver}",effect="NoExecute"'
    both = {f'{name},status="{status}"}} 1.0' for status in ("wanted", "written")}
    await waiting.wait_until(
        lambda: gauges(fettle), lambda seen: seen == both, what="the gauge is right"
    )

    await api.apply(slice_("Healthy"))
    await until_tainted(api, {})


async def test_who_leads_next_finishes_what_a_killed_leader_began_and_writes_nothing_twice(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_dra_node(api, "n", 8)
    await publish(api, "n", 8, range(4))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    slowly = "unhealthy: NoSchedule, confirmSeconds: 0, writesPerSecond: 1"
    file = settings(tmp_path, slowly, "steward: {leaseSeconds: 3}")
    first = await start_fettle("steward", settings=file)
    await waiting.wait_until(lambda: taints(api), what="the first rule is written")
    first.kill()
    begun = await api.list("devicetaintrules")
    assert 0 < len(begun) < 4
    await start_fettle("steward", settings=file)
    await until_tainted(api, {f"n/gpu-{i}": (UNHEALTHY, "NoSchedule") for i in range(4)})
    uids = {rule["metadata"]["uid"] for rule in await api.list("devicetaintrules")}
    assert {rule["metadata"]["uid"] for rule in begun} < uids

    await publish(api, "n", 7)
    await until_tainted(api, {})


async def test_while_the_api_server_is_away_nothing_is_lost_and_then_nothing_is_written_twice(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_dra_node(api, "n", 8)
    await publish(api, "n", 8, range(4))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    slowly = "unhealthy: NoSchedule, confirmSeconds: 0, writesPerSecond: 1"
    fettle = await start_fettle("steward", settings=settings(tmp_path, slowly))
    await waiting.wait_until(lambda: taints(api), what="the first rule is written")
    await control_plane.stop_api_server(kill=True)
    await asyncio.sleep(5)
    await control_plane.start_api_server()
    wanted = {f"n/gpu-{i}": (UNHEALTHY, "NoSchedule") for i in range(4)}
    await until_tainted(api, wanted, timeout_s=90)
    await asyncio.sleep(3)
    _, metrics = await fettle.browse("/metrics")
    assert "\nfettle_steward_taint_writes_total 4.0\n" in metrics


async def test_the_rules_go_with_the_right_to_write_them_and_that_is_said_once(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_dra_node(api, "n", 8)
    await publish(api, "n", 8, (0, 1))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    await control_plane.start_controller_manager()
    file = settings(tmp_path, "unhealthy: NoSchedule, confirmSeconds: 0")
    fettle = await start_fettle("steward", settings=file)
    both = {f"n/gpu-{i}": (UNHEALTHY, "NoSchedule") for i in (0, 1)}
    await until_tainted(api, both)
    assert await notes(fettle) == []

    await api.delete("clusterroles", "fettle-health-taints")
    await until_tainted(api, {})
    await until_noted(fettle, "health-taints.yaml grants the rights")
    await asyncio.sleep(4)
    assert times_logged(fettle, "health-taints.yaml grants the rights") == 1
    assert await taints(api) == {}

    await shipped.apply(api, shipped.manifests(RIGHTS))
    await until_tainted(api, both, timeout_s=60)
    await waiting.wait_until(lambda: notes(fettle), lambda said: said == [], what="all is well")


async def test_where_no_taint_rules_are_served_the_extender_alone_refuses_and_that_is_said_once(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await control_plane.stop_api_server(kill=True)
    await control_plane.start_api_server(f"--runtime-config={RULES}=false")
    await create_dra_node(api, "n", 1)
    await publish(api, "n", 1, (0,))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    await control_plane.start_controller_manager()
    fettle = await start_registered(api, start_fettle, settings=settings(tmp_path))
    await control_plane.start_scheduler(
        shipped.scheduler_configuration(fettle.extender_url),
        "--feature-gates=DRADeviceTaintRules=false",
    )
    await until_noted(fettle, "this cluster serves no DeviceTaintRules")
    await api.create(objects.claim_template("one-gpu"))
    await api.create(objects.pod("p", templates={"gpu": "one-gpu"}, annotations=STRICT))
    await waiting.refused(api, "p", saying=REFUSED)
    await publish(api, "n", 1)
    assert await waiting.bound(api, "p") == "n"
    assert times_logged(fettle, "this cluster serves no DeviceTaintRules") == 1


@pytest.mark.parametrize("mode", ["observe", "steer"])
async def test_in_a_mode_that_refuses_nothing_no_taint_is_set_and_those_that_would_be_are_told(
    api: Api, start_fettle: StartFettle, tmp_path: Path, mode: str
) -> None:
    await create_dra_node(api, "n", 8)
    await publish(api, "n", 8, (0,))
    await shipped.apply(api, shipped.manifests(RIGHTS))
    file = settings(tmp_path, "unhealthy: NoSchedule, confirmSeconds: 0")
    before = await start_fettle("steward", settings=file)
    await until_tainted(api, {"n/gpu-0": (UNHEALTHY, "NoSchedule")})
    await before.stop()

    file = settings(tmp_path, "unhealthy: NoSchedule, confirmSeconds: 0", f"mode: {mode}")
    fettle = await start_fettle("steward", settings=file)
    await until_tainted(api, {})
    await until_noted(fettle, f"in mode {mode} none is written")
    assert "taint of a device: not written" in fettle.process.log.read_text()
    _, devices = await waiting.wait_until(
        lambda: fettle.browse("/devices"),
        lambda answer: [one["there"] for one in answer[1]["taints"]] == [None],
        what="it is seen that the taint is gone",
    )
    (one,) = devices["taints"]
    assert one["device"] == f"{objects.DRIVER}/n/gpu-0"
    assert (one["key"], one["effect"]) == (UNHEALTHY, "NoSchedule")
    assert one["whyNot"] == f"mode {mode}"
    device = one["device"]
    would = [("wouldWrite", "TaintDevice", device), ("wrote", "UntaintDevice", device)]
    await waiting.wait_until(
        lambda: acts(fettle), lambda seen: seen == would, what="what would be written is recorded"
    )
