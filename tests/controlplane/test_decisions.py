"""What Fettle decided can be asked afterwards, also after a restart, and in mode observe too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import REPOSITORY, FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import REFUSED, register_extender, start_registered
from tests.controlplane.kubelet import Kubelet

LOST = [objects.taint("gpu.nvidia.com/xid", "None", "79")]


def dead() -> list[Object]:
    """Heard of now: a monitor that is silent for long has no say."""
    return [objects.node_condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error")]


def settings_in(folder: Path, **settings: Any) -> Path:
    (records := folder / "records").mkdir(exist_ok=True)
    file = folder / "settings.yaml"
    trusting = {"trustCallers": True}
    whole = {"records": {"directory": str(records)}, "webhook": trusting, **settings}
    file.write_text(json.dumps(whole))
    return file


async def decisions(fettle: FettleProcess, **query: str) -> list[dict[str, Any]]:
    status, answer = await fettle.browse("/decisions", **query)
    assert status == 200, answer
    found: list[dict[str, Any]] = answer["decisions"]
    return found


def fettle_cli(fettle: FettleProcess, *arguments: str) -> str:
    command = [sys.executable, "-m", "fettle", *arguments, "--server", fettle.server]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


async def test_what_was_refused_and_what_became_of_it_survives_a_restart(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await create_node(api, objects.node("dead", 8, conditions=dead()))
    fettle = await start_fettle("extender", "steward", settings=settings_in(tmp_path))
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("waits", gpus=1))
    await waiting.refused(api, "waits", saying=REFUSED)
    (refused,) = await decisions(fettle, pod="default/waits")
    assert (refused["verb"], refused["decided"], refused["nodes"]) == ("filter", "refused", 1)
    assert refused["reasons"]["NodeUnhealthy"] == 1

    await create_node(api, objects.node("good", 8))
    assert await waiting.bound(api, "waits") == "good"
    await waiting.in_phase(api, "waits", "Running")
    await waiting.wait_until(
        lambda: decisions(fettle, pod="default/waits"),
        lambda found: len(found) == 2 and found[0].get("became") == "running",
        what="the pod is known to run",
    )
    await fettle.stop()
    fettle.start()
    await fettle.ready()
    narrowed, first = await decisions(fettle, pod="default/waits")
    assert (narrowed["decided"], narrowed["placed"]["node"]) == ("narrowed", "good")
    assert first["id"] == refused["id"]

    await kubelet.exit_containers("waits", 3)
    await waiting.wait_until(
        lambda: decisions(fettle, pod="default/waits"),
        lambda found: found[0].get("became") == "failed",
        what="the pod is known to have failed",
    )
    shown = fettle_cli(fettle, "decisions", "--since", "1h", "--node", "dead")
    assert "refused 1 of 1" in " ".join(shown.split())
    assert "NodeUnhealthy" in shown
    assert "exit code 3" in shown
    assert "write a number and a unit" in fettle_cli(fettle, "decisions", "--since", "soon")


async def test_several_processes_give_one_answer(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await create_node(api, objects.node("dead", 8, conditions=dead()))
    await create_dra_node(api, "lost", objects.gpu_devices(1, taints={0: LOST}))
    await api.create(objects.claim_template("one-gpu"))
    settings = tmp_path / "settings.yaml"
    settings.write_text("{mode: observe, webhook: {trustCallers: true}}")
    await control_plane.start_controller_manager()
    asked = await start_fettle("extender", settings=settings)
    other = await start_fettle("extender", settings=settings)
    webhook = await start_registered(api, start_fettle, "webhook", settings=settings)
    await register_extender(control_plane, asked)
    await api.create(objects.pod("plain", gpus=2))
    await api.create(objects.pod("claims", templates={"gpu": "one-gpu"}))
    for pod in ("plain", "claims"):
        await waiting.bound(api, pod)
        await waiting.in_phase(api, pod, "Running")

    def of(command: str, *whom: FettleProcess) -> Any:
        servers = [text for one in whom for text in ("--server", one.server)]
        done = subprocess.run(
            [sys.executable, "-m", "fettle", command, "-o", "json", *servers],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    async def placing() -> list[tuple[str, str]]:
        found = of("decisions", asked, other, webhook)["decisions"]
        return sorted((d["key"], d["verb"]) for d in found if d["verb"] in ("filter", "seen"))

    wanted = [("default/claims", "seen"), ("default/plain", "filter")]
    await waiting.wait_until(placing, lambda found: found == wanted, what="each pod counts once")
    alone = {d["verb"] for d in of("decisions", other)["decisions"]}
    assert "filter" not in alone
    assert {d["verb"] for d in of("decisions", webhook)["decisions"]} >= {"mutate"}

    async def report() -> Any:
        return of("report", other, webhook, asked)

    whole = await waiting.wait_until(
        report, lambda found: len(found["landedOnRefused"]) == 2, what="both pods are reported"
    )
    assert whole["pods"] == 2
    assert whole["webhook"]
    await other.stop()
    notes = of("report", asked, other)["notes"]
    assert [note for note in notes if note.startswith("what it decided is not here: ")]


async def test_a_waiting_pods_explanation_shows_its_last_decisions(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("dead", 8, conditions=dead()))
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("waits", gpus=1))
    await waiting.refused(api, "waits", saying=REFUSED)
    shown = fettle_cli(fettle, "explain", "pod", "default/waits", "--evidence")
    assert "last decisions:" in shown
    assert "filter  refused 1 of 1 nodes" in shown
    await waiting.wait_until(
        lambda: fettle.browse("/metrics"),
        lambda answer: (
            'fettle_decision_reasons_total{policy="inference",reason="NodeUnhealthy"' in answer[1]
        ),
        what="the reason is counted",
    )


async def test_observing_reports_pods_on_what_would_have_been_refused(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    """The pod with a claim gets no marker, so its scheduler does not ask about it."""
    await create_node(api, objects.node("dead", 8, conditions=dead()))
    await create_dra_node(api, "lost", objects.gpu_devices(1, taints={0: LOST}))
    await api.create(objects.claim_template("one-gpu"))
    await control_plane.start_controller_manager()
    fettle = await start_registered(
        api, start_fettle, settings=settings_in(tmp_path, mode="observe")
    )
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("plain", gpus=2))
    await api.create(objects.pod("claims", templates={"gpu": "one-gpu"}))
    assert await waiting.bound(api, "plain") == "dead"
    assert await waiting.bound(api, "claims") == "lost"
    await waiting.in_phase(api, "plain", "Running")
    await waiting.in_phase(api, "claims", "Running")
    await kubelet.exit_containers("claims", 0)

    async def report() -> dict[str, Any]:
        answer = json.loads(fettle_cli(fettle, "report", "--since", "1h", "-o", "json"))
        return {row["pod"]: row for row in answer["landedOnRefused"]} | {"whole": answer}

    found = await waiting.wait_until(
        report,
        lambda rows: (
            rows.get("default/claims", {}).get("became") == "succeeded"
            and rows.get("default/plain", {}).get("devices")
        ),
        what="both pods are in the report",
    )
    assert found["default/claims"]["devices"] == ["gpu.nvidia.com/lost/gpu-0"]
    assert found["default/plain"]["reasons"][0] == "NodeUnhealthy"
    assert found["default/claims"]["ranWell"]
    waits = {row["pod"] for row in found["whole"]["waiting"]}
    assert waits == {"default/plain", "default/claims"}
    verbs = {one["key"]: one["verb"] for one in await decisions(fettle) if one.get("uid")}
    assert verbs == {"default/plain": "filter", "default/claims": "seen"}
    page = fettle_cli(fettle, "report", "-o", "html")
    assert "gpu.nvidia.com/lost/gpu-0" in page
    assert "http" not in page
    assert "Wrong: ran well on what Fettle refuses" in fettle_cli(fettle, "report")


async def test_the_report_lists_a_pod_that_failed_and_none_that_a_rollout_ended(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("good", 8))
    await control_plane.start_controller_manager()
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("crashes", gpus=1))
    await kubelet.exit_containers("crashes", 3)
    await api.create(objects.replica_set("serve", gpus=1))

    (pod,) = await waiting.wait_until(
        lambda: api.list("pods", labels="set=serve"), bool, what="the set has a pod"
    )
    await waiting.in_phase(api, first := pod["metadata"]["name"], "Running")
    await api.delete("pods", "crashes")
    await api.delete("pods", first)
    (deleted,) = await waiting.wait_until(
        lambda: decisions(fettle, pod=f"default/{first}"),
        lambda found: found[0].get("became") == "deleted",
        what="the pod is known to have been deleted",
    )
    assert "exit code 143" in deleted["end"]
    report = json.loads(fettle_cli(fettle, "report", "--since", "1h", "-o", "json"))
    assert [row["pod"] for row in report["wrong"]["failedUnseen"]] == ["default/crashes"]


async def test_describing_a_pod_that_is_refused_everywhere_says_why(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("dead", 8, conditions=dead()))
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("waits", gpus=1))
    await waiting.refused(api, "waits", saying=REFUSED)

    async def told() -> list[str]:
        events = await api.events_about("waits")
        return [e["message"] for e in events if e["reason"] == "RefusedByHealth"]

    (note,) = await waiting.wait_until(told, bool, what="an Event says why")
    assert note.startswith("Fettle refuses 1 of 1 nodes: ")
    assert "NodeUnhealthy ×1" in note
    await api.patch("nodes", "dead", {"metadata": {"annotations": {"fettle.dev/hold": "hands"}}})
    notes = await waiting.wait_until(
        told, lambda found: len(found) == 2, what="another Event as the reason changes"
    )
    assert any("NodeHeld ×1" in note for note in notes)


async def test_what_the_webhook_denies_and_injects_is_recorded(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    fettle = await start_registered(api, start_fettle, "webhook", settings=settings_in(tmp_path))
    await api.create(objects.device_class())
    with pytest.raises(ApiError, match="FTL010"):
        await api.create(objects.claim("gpus", objects.claim_spec(40)))
    training = {"fettle.dev/policy": "training"}
    await api.create(objects.job("train", gpus=1, annotations=training))
    found = {(one["verb"], one["decided"]): one for one in await decisions(fettle)}
    denied = found["validate", "denied"]
    assert (denied["kind"], denied["key"]) == ("ResourceClaim", "default/gpus")
    assert denied["reasons"] == {"FTL010": 1}
    assert "FTL010" in denied["why"]
    injected = found["mutate", "injected"]
    assert (injected["kind"], injected["key"]) == ("Job", "default/train")
    assert injected["policy"] == "training"
    assert "podFailurePolicy" in injected["why"]
    assert "Job default/train" in fettle_cli(fettle, "decisions")
