"""What Fettle remembers of devices' health over a restart, in DeviceHealth objects."""

from __future__ import annotations

import asyncio
import re

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.memory import ROLES, define, healthy, shown, stored


async def test_a_restart_keeps_what_was_seen_of_refused_pods(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    """A pod that had run is refused: 0.90. Only who saw it run can know that."""
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    fettle = await start_fettle(*ROLES)
    await register_extender(control_plane, fettle)
    assert healthy(await stored(api, "gpu-1", state="Healthy")) == "True"
    await api.create(objects.pod("training", gpus=1))
    await waiting.in_phase(api, "training", "Running")
    await waiting.wait_until(
        lambda: fettle.browse("/explain", pod="default/training"),
        lambda answer: "running" in str(answer),
        what="Fettle has seen it run",
    )
    await kubelet.fail_admission("training")
    await waiting.wait_until(
        lambda: shown(fettle, "gpu-1"), lambda h: h["score"] == 0.9, what="the refusal counts"
    )
    found = await stored(api, "gpu-1", score=0.9)
    (node,) = found["status"]["subjects"]
    assert [e["source"] for e in node["evidence"]] == [
        "kubelet refusals of pods that had run for nvidia.com"
    ]
    before = await shown(fettle, "gpu-1")
    await fettle.stop()
    fettle.start()
    await fettle.ready()
    after = await shown(fettle, "gpu-1")
    assert abs(after["score"] - before["score"]) < 0.01
    assert {e["source"] for e in after["evidence"]} == {e["source"] for e in before["evidence"]}


async def test_a_restart_and_an_extender_of_its_own_know_the_trace_of_a_fault_that_is_over(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    fettle = await start_fettle(*ROLES)
    lost = ("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost")
    await kubelet.set_node_condition("gpu-1", *lost)
    ill = await stored(api, "gpu-1", state="Unhealthy", score=0.0)
    assert healthy(ill) == "False"
    assert "XID 79" in ill["status"]["message"]
    await kubelet.set_node_condition("gpu-1", "AcceleratedHardwareReady", "True", "Ready", "")
    well = await stored(api, "gpu-1", state="Healthy", score=0.88)
    assert healthy(well) == "True"
    (node,) = well["status"]["subjects"]
    (episode,) = node["episodes"]
    assert (episode["state"], episode["score"]) == ("Unhealthy", 0.0)
    assert {"start", "end", "message"} <= episode.keys()
    before = await shown(fettle, "gpu-1")
    assert before["since"]

    other = await start_fettle("extender")
    await fettle.stop()
    fettle.start()
    await fettle.ready()
    for process in (other, fettle):
        after = await shown(process, "gpu-1")
        assert abs(after["score"] - before["score"]) < 0.01
        assert abs(after["since"] - before["since"]) < 0.001
    assert "memory:" not in (await other.browse("/readyz", verbose=""))[1]


async def test_what_somebody_edits_or_deletes_counts_for_nothing_and_is_written_again(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    fettle = await start_fettle(*ROLES)
    good = await stored(api, "gpu-1", state="Healthy")
    evidence = {
        "source": "condition AcceleratedHardwareReady",
        "family": "bus",
        "kind": "latched",
        "weight": 1.0,
        "firstSeen": good["status"]["observedTime"],
        "reports": [{"by": "Node gpu-1"}],
    }
    subject = {"state": "Unhealthy", "score": 0.0, "evidence": [evidence]}
    edit = {"status": {"state": "Unhealthy", "score": 0.0, "subjects": [subject]}}
    await fettle.stop()
    await api.patch("devicehealths", "gpu-1", edit)
    fettle.start()
    await fettle.ready()
    assert (await shown(fettle, "gpu-1"))["score"] == 1.0
    await stored(api, "gpu-1", state="Healthy", score=1)

    await api.patch("devicehealths", "gpu-1", edit)
    await stored(api, "gpu-1", state="Healthy", score=1)
    assert (await shown(fettle, "gpu-1"))["score"] == 1.0

    await api.delete("devicehealths", "gpu-1")
    assert healthy(await stored(api, "gpu-1", state="Healthy")) == "True"

    await api.create(
        {
            "apiVersion": "fettle.dev/v1alpha1",
            "kind": "DeviceHealth",
            "metadata": {"name": "nobody"},
            "status": {"state": "Unhealthy", "score": 0},
        }
    )
    await waiting.gone(api, "devicehealths", "nobody")
    await api.delete("nodes", "gpu-1")
    await waiting.gone(api, "devicehealths", "gpu-1")


async def test_a_replaced_node_inherits_nothing(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    fettle = await start_fettle(*ROLES)
    await kubelet.set_node_condition(
        "gpu-1", "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await stored(api, "gpu-1", state="Unhealthy")
    await fettle.stop()
    await api.delete("nodes", "gpu-1")
    await create_node(api, objects.node("gpu-1", 8))
    fettle.start()
    await fettle.ready()
    assert (await shown(fettle, "gpu-1"))["score"] == 1.0
    await stored(api, "gpu-1", state="Healthy", score=1)


async def test_without_the_definition_or_the_right_all_works_and_says_what_a_restart_forgets(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("gpu-1", 8))
    fettle = await start_fettle(*ROLES)
    _, ready = await fettle.browse("/readyz", verbose="")
    assert "memory: the cluster does not serve DeviceHealth" in ready
    assert "a restart forgets how long states have lasted" in ready
    await define(api)
    assert healthy(await stored(api, "gpu-1", timeout_s=60)) == "True"
    await api.delete("clusterrolebindings", "fettle-steward")
    await fettle.stop()
    rights = await api.get("clusterroles", "fettle")
    kept = [rule for rule in rights["rules"] if rule["resources"] != ["devicehealths"]]
    await api.patch("clusterroles", "fettle", {"rules": kept})
    fettle.start()
    await fettle.ready()
    _, ready = await fettle.browse("/readyz", verbose="")
    assert "memory: DeviceHealth cannot be read, so a restart forgets" in ready


async def test_a_fleet_at_rest_is_not_written_again(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await define(api)
    for i in range(30):
        await create_node(api, objects.node(f"gpu-{i}", 8))
    fettle = await start_fettle(*ROLES)
    await waiting.wait_until(
        lambda: api.list("devicehealths"), lambda f: len(f) == 30, what="30 objects"
    )
    await waiting.wait_until(lambda: written(fettle), lambda count: count >= 30, what="30 writes")
    before = {one["metadata"]["resourceVersion"] for one in await api.list("devicehealths")}
    for i in range(30):  # a heartbeat changes nothing
        await api.patch("nodes", f"gpu-{i}", {"metadata": {"labels": {"beat": "1"}}})
    await asyncio.sleep(4)
    assert await written(fettle) == 30
    after = {one["metadata"]["resourceVersion"] for one in await api.list("devicehealths")}
    assert after == before


async def written(fettle: FettleProcess) -> int:
    _, text = await fettle.browse("/metrics")
    found = re.search(r"^fettle_steward_health_writes_total (\S+)", text, re.M)
    return int(float(found[1])) if found else 0
