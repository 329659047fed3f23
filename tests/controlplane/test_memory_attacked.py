"""What is remembered of devices, where somebody or something is against it: hands, versions, a
leader that is killed, a clock that jumps."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec

from fettle.api.own_group import DeviceHealthStatus
from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_gpu_nodes, create_node
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.memory import ROLES, define, healthy, one_of, shown, stored

LOST = ("AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost")
WELL = ("AcceleratedHardwareReady", "True", "Ready", "")


def with_checksum(status: dict[str, Any]) -> dict[str, Any]:
    """As somebody writes it who knows how Fettle does."""
    read = msgspec.convert({**status, "checksum": ""}, DeviceHealthStatus)
    return {**status, "checksum": read.true_checksum}


async def overwrite(api: Api, name: str, status: dict[str, Any]) -> None:
    found = await api.get("devicehealths", name)
    absent = dict.fromkeys(found["status"].keys() - status.keys())
    await api.patch("devicehealths", name, {"status": absent | status})


async def leads(fettle: FettleProcess) -> bool:
    _, text = await fettle.browse("/metrics")
    return bool(re.search(r"^fettle_steward_leader 1", text, re.M))


async def healths(fettle: FettleProcess) -> dict[str, tuple[str, float]]:
    """State and score of each node, as this replica has them."""
    _, answer = await fettle.browse("/devices")
    return {n["node"]: (n["state"], round(n["score"], 2)) for n in answer["nodes"]}


async def test_garbage_with_a_right_checksum_and_times_to_come_harms_nothing(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    """Who may write these objects may lie. What is there now ends the lie, and nothing crashes."""
    await define(api)
    await create_gpu_nodes(api, "gpu-1", "gpu-2")
    fettle = await start_fettle(*ROLES)
    good = (await stored(api, "gpu-1", state="Healthy"))["status"]
    far, odd = "2999-01-01T00:00:00Z", "0001-01-01T00:00:00Z"
    evidence = [
        {
            "source": f"s{i}",
            "family": "bus",
            "kind": kind,
            "weight": 1.0,
            "firstSeen": seen,
            "lastSeen": seen,
            "message": "\u202e" + "x" * 200,
            "reports": [{"by": f"Pod nobody/p{n}"} for n in range(16)],
            "count": -5,
        }
        for i, (kind, seen) in enumerate([("level", far), ("decaying", far), ("level", odd)] * 20)
    ]
    faults = [far, odd, *(f"2026-01-0{day}T00:00:00Z" for day in range(1, 6))]
    episode = {"state": "Unhealthy", "start": far, "end": odd, "score": 0.0}
    subject = {
        "state": "Unhealthy",
        "score": 0.0,
        "since": far,
        "evidence": evidence,
        "faults": faults,
        "episodes": [episode] * 16,
    }
    units = [
        {**subject, "evidence": evidence[:2], "unit": {"resource": "nvidia.com/gpu", "id": f"G{i}"}}
        for i in range(100)
    ]
    lie = with_checksum({**good, "state": "Unhealthy", "score": 0.0, "subjects": [subject, *units]})
    for running in (True, False):
        if not running:
            await fettle.stop()
        await overwrite(api, "gpu-1", lie)
        if not running:
            fettle.start()
            await fettle.ready()
        assert healthy(await stored(api, "gpu-1", state="Healthy", score=1)) == "True"
        assert (await shown(fettle, "gpu-1"))["score"] == 1.0
        assert (await shown(fettle, "gpu-2"))["score"] == 1.0
    assert "Traceback" not in fettle.process.tail(20_000)


async def test_all_that_is_deleted_while_running_comes_back_as_it_was(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await define(api)
    await create_gpu_nodes(api, "gpu-1", "gpu-2", "gpu-3")
    fettle = await start_fettle(*ROLES)
    await kubelet.set_node_condition("gpu-1", *LOST)
    await stored(api, "gpu-1", state="Unhealthy")
    await kubelet.set_node_condition("gpu-2", *LOST)
    await stored(api, "gpu-2", state="Unhealthy")
    await kubelet.set_node_condition("gpu-2", *WELL)
    before = (await stored(api, "gpu-2", state="Healthy"))["status"]
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        await stored(api, node)
        await api.delete("devicehealths", node)
    assert healthy(await stored(api, "gpu-1", state="Unhealthy")) == "False"
    again = (await stored(api, "gpu-2", state="Healthy"))["status"]
    (was,), (now_,) = before["subjects"], again["subjects"]
    assert [e["source"] for e in now_["evidence"]] == [e["source"] for e in was["evidence"]]
    assert now_["since"] == was["since"]
    await stored(api, "gpu-3", state="Healthy")
    assert (await shown(fettle, "gpu-1"))["state"] == "Unhealthy"


async def test_what_an_older_version_stored_is_believed_and_a_newer_ones_is_written_again(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    await define(api)
    await create_gpu_nodes(api, "gpu-1")
    fettle = await start_fettle(*ROLES)
    await kubelet.set_node_condition("gpu-1", *LOST)
    await stored(api, "gpu-1", state="Unhealthy")
    await kubelet.set_node_condition("gpu-1", *WELL)
    now_ = (await stored(api, "gpu-1", state="Healthy"))["status"]
    await fettle.stop()
    (subject,) = now_["subjects"]
    old_evidence = [{k: v for k, v in e.items() if k != "began"} for e in subject["evidence"]]
    kept = {k: v for k, v in subject.items() if k not in ("faults", "evidence")}
    old = {k: v for k, v in now_.items() if k not in ("rebooted", "remediation", "checksum")}
    old["subjects"] = [{**kept, "evidence": old_evidence}]
    await overwrite(api, "gpu-1", with_checksum(old))
    fettle.start()
    await fettle.ready()
    found = await shown(fettle, "gpu-1")
    assert found["state"] == "Healthy"
    assert 0.85 < found["score"] < 0.95  # the trace is remembered
    assert found["since"]
    newer = {**with_checksum(old), "checksum": "0123456789abcdef"}
    await overwrite(api, "gpu-1", newer)
    await waiting.wait_until(
        lambda: one_of(api, "gpu-1"),
        lambda one: one["status"]["checksum"] != "0123456789abcdef",
        what="it is written again",
    )


async def test_a_definition_that_is_too_old_is_named_and_not_written_to_all_the_time(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    """The API server drops what it does not know, so nobody could tell who wrote the rest."""
    await define(api)
    await create_gpu_nodes(api, "gpu-1")
    definition = await api.get("customresourcedefinitions", "devicehealths.fettle.dev")
    versions = definition["spec"]["versions"]
    status = versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    del status["properties"]["nodeUID"]
    await api.patch(
        "customresourcedefinitions", "devicehealths.fettle.dev", {"spec": {"versions": versions}}
    )
    fettle = await start_fettle(*ROLES)

    async def notes() -> str:
        return str((await fettle.browse("/readyz", verbose=""))[1])

    said = await waiting.wait_until(
        notes, lambda text: "drops fields" in text, what="that fields are dropped"
    )
    assert "memory: health cannot be stored: the API server drops fields" in said
    assert "apply deploy/crds/ of this version" in said

    async def rests() -> bool:
        before = await one_of(api, "gpu-1")
        await asyncio.sleep(5)
        after = await one_of(api, "gpu-1")
        return bool(after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"])

    await waiting.wait_until(rests, what="it is tried ever more rarely")


async def test_two_replicas_agree_and_one_goes_on_where_the_leader_was_killed_between_writes(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await define(api)
    nodes = [f"gpu-{i:02}" for i in range(24)]
    await create_gpu_nodes(api, *nodes)
    settings = tmp_path / "settings.yaml"
    settings.write_text("steward: {healthWritesPerSecond: 4}\n")
    first = await start_fettle(*ROLES, settings=settings)
    second = await start_fettle(*ROLES, settings=settings)
    both = (first, second)
    await waiting.wait_until(
        lambda: api.list("devicehealths"), lambda f: len(f) == 24, what="24 stored", timeout_s=30
    )
    leader, follower = both if await leads(first) else both[::-1]
    assert await leads(leader)
    assert not await leads(follower)

    for node in nodes:
        await kubelet.set_node_condition(node, *LOST)

    async def written() -> int:
        found = await api.list("devicehealths")
        return sum(one["status"]["state"] == "Unhealthy" for one in found)

    await waiting.wait_until(written, lambda n: n >= 4, what="some are written", timeout_s=30)
    leader.kill()
    left = await written()
    assert left < 24, "the leader was done before it was killed"
    for node in nodes[:12]:
        await kubelet.set_node_condition(node, *WELL)

    expected = dict.fromkeys(nodes[:12], ("Healthy", 0.88))
    expected |= dict.fromkeys(nodes[12:], ("Unhealthy", 0.0))
    await waiting.wait_until(
        lambda: healths(follower), lambda h: h == expected, what="it follows by itself"
    )
    await waiting.wait_until(
        lambda: leads(follower), lambda yes: yes, what="the other one leads", timeout_s=60
    )
    for node, (state, _) in expected.items():
        await stored(api, node, state=state, timeout_s=30)
    leader.start()
    await leader.ready()
    await waiting.wait_until(
        lambda: healths(leader), lambda h: h == expected, what="it agrees when it is back"
    )
    assert await leads(follower)
    assert not await leads(leader)


async def test_a_clock_that_jumps_an_hour_forward_and_back_changes_nothing_that_lasts(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await define(api)
    await create_node(api, objects.node("gpu-1", 8))
    await create_node(api, objects.node("gpu-2", 8))
    await create_node(api, objects.node("gpu-3", 8))
    clock = Clock(tmp_path)
    fettle = await start_fettle(*ROLES, env=clock.env)
    await kubelet.set_node_condition("gpu-1", *LOST)
    await kubelet.set_node_condition("gpu-2", *LOST)
    await stored(api, "gpu-2", state="Unhealthy")
    await kubelet.set_node_condition("gpu-2", *WELL)
    await stored(api, "gpu-2", state="Healthy", score=0.88)

    clock.jump(3600)
    await waiting.wait_until(
        lambda: shown(fettle, "gpu-2"), lambda h: h["score"] > 0.92, what="the clock is ahead"
    )
    assert (await shown(fettle, "gpu-1"))["state"] == "Unhealthy"
    await kubelet.set_node_condition("gpu-3", *LOST)
    ahead = await stored(api, "gpu-3", state="Unhealthy")
    clock.jump(0)
    await waiting.wait_until(
        lambda: shown(fettle, "gpu-2"), lambda h: h["score"] < 0.9, what="it is set back"
    )
    again = await waiting.wait_until(
        lambda: one_of(api, "gpu-3"),
        lambda one: one["status"]["observedTime"] < ahead["status"]["observedTime"],
        what="what was stored with a time to come is stored again",
    )
    assert again["status"]["state"] == "Unhealthy"
    await kubelet.set_node_condition("gpu-1", *WELL)
    await kubelet.set_node_condition("gpu-3", *WELL)
    for node in ("gpu-1", "gpu-3"):
        await waiting.wait_until(
            lambda node=node: shown(fettle, node),  # type: ignore[misc]
            lambda h: h["state"] == "Healthy",
            what="an all-clear frees at once",
        )
    right = await start_fettle("extender")
    for node in ("gpu-1", "gpu-2", "gpu-3"):
        one, other = await shown(right, node), await shown(fettle, node)
        assert one["state"] == other["state"] == "Healthy"
        assert abs(one["score"] - other["score"]) < 0.02
