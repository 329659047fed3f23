"""Pods that come back for ever: their controller is told why, once and with a count, and a Job is
suspended where its policy says so."""

from __future__ import annotations

from pathlib import Path

from fettle.steward.hopeless import REASON, WAITED_S
from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes
from tests.controlplane.installed import install
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.objects import policy

RIGHTS = shipped.DEPLOY / "rbac" / "optional" / "suspend-jobs.yaml"
NUMA = "Resources cannot be allocated with Topology locality"
ATTRIBUTES = f'device.attributes["{objects.DRIVER}"]'
IMPOSSIBLE = f'device.driver == "{objects.DRIVER}" && {ATTRIBUTES}.nosuch == "x"'


async def comebacks(api: Api) -> list[Object]:
    return [event for event in await api.list("events", "default") if event["reason"] == REASON]


async def told(api: Api, owner: str, kind: str) -> str:
    """What the one Event on a controller says."""

    async def look() -> list[Object]:
        return [
            event
            for event in await comebacks(api)
            if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, owner)
        ]

    (event,) = await waiting.wait_until(look, what=f"{kind} {owner} is told", timeout_s=120)
    return str(event["message"])


async def suspended(api: Api, job: str) -> bool:
    return bool((await api.get("jobs", job))["spec"].get("suspend"))


async def acts(fettle: FettleProcess) -> list[tuple[str, str]]:
    """Which Jobs were suspended, or would have been."""
    _, answer = await fettle.browse("/decisions")
    return [(one["key"], one["decided"]) for one in answer["decisions"] if one["verb"] == "steward"]


async def test_a_controller_whose_pods_no_node_or_device_suits_is_told_and_a_job_is_suspended(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await define_policies(api)
    await api.create(policy("ending", {"failure": {"suspendHopelessJobs": True}}))
    await api.create(
        policy("watched", {"mode": "observe", "failure": {"suspendHopelessJobs": True}})
    )
    await create_gpu_nodes(api, "a", "b")
    await create_dra_node(api, "n", 4)
    for node in "ab":
        kubelet.refuse_pods_on(node, NUMA, reason="TopologyAffinityError")
    guarded = objects.claim_spec(selectors=[IMPOSSIBLE])
    await api.create(objects.claim_template("impossible", guarded))
    busy = objects.claim_spec(count=4)
    await api.create(objects.claim_template("all", busy))
    await control_plane.start_controller_manager()
    clock = Clock(tmp_path)
    fettle = await install(control_plane, api, start_fettle, env=clock.env)

    ending: Object = {"annotations": {"fettle.dev/policy": "ending"}, "cpu": "1"}
    many: Object = {"completions": 6, "parallelism": 6, "gpus": 1, "backoff_limit": 100}
    await api.create(objects.job("refused", **many, **ending))
    await api.create(objects.job("kept", **many, cpu="1"))
    await api.create(objects.job("observed", **many, annotations={"fettle.dev/policy": "watched"}))
    waits: Object = {"templates": {"gpu": "impossible"}}
    await api.create(objects.job("waits", completions=2, parallelism=2, **waits, **ending))
    await api.create(
        objects.job("queues", completions=2, parallelism=2, templates={"gpu": "all"}, **ending)
    )

    # So long its two pods have waited then; those that are refused go on coming back meanwhile.
    await waiting.wait_until(
        lambda: api.list("pods", "default", labels="job-name=waits"),
        lambda found: len(found) == 2,
        what="both pods of the Job are there",
    )
    assert not await comebacks(api)
    clock.jump(WAITED_S)
    said = await told(api, "waits", "Job")
    assert "(FTL" in said
    pod = (await api.list("pods", "default", labels="job-name=waits"))[0]["metadata"]["name"]
    _, explained = await fettle.browse("/explain", pod=f"default/{pod}")
    assert said in explained["notes"]
    notes_by_code = {note["code"]: note for note in explained["reasons"]["notes"]}
    why = notes_by_code["PodsFitNowhere"]
    assert (why["claim"], why["pods"]) == ("ResourceClaimTemplate default/impossible", 2)
    said = await told(api, "refused", "Job")
    assert said.startswith("the kubelets of 2 nodes (a, b) refused each of its last ")
    assert NUMA in said
    assert not await suspended(api, "refused")

    async def notes() -> str:
        _, said = await fettle.browse("/readyz", verbose="1")
        return str(said)

    await waiting.wait_until(
        notes,
        lambda said: "suspend-jobs.yaml grants the rights" in said,
        what="the missing right is named",
    )
    await shipped.apply(api, shipped.manifests(RIGHTS))
    for job in ("waits", "refused"):
        await waiting.wait_until(
            lambda job=job: suspended(api, job),  # type: ignore[misc]
            what=f"{job} is suspended",
            timeout_s=60,
        )
    made = await api.get("jobs", "refused")
    assert "refused each of its last" in made["metadata"]["annotations"]["fettle.dev/suspended"]
    await told(api, "kept", "Job")
    assert not await suspended(api, "kept")
    assert not await suspended(api, "observed")
    assert not await suspended(api, "queues")
    await waiting.wait_until(
        lambda: acts(fettle),
        lambda found: (
            sorted(found)
            == [
                ("default/observed", "wouldWrite"),
                ("default/refused", "wrote"),
                ("default/waits", "wrote"),
            ]
        ),
        what="what was done is recorded",
    )

    await api.patch("jobs", "waits", {"spec": {"suspend": False}})
    await fettle.stop()
    fettle.start()
    await fettle.ready()
    await told(api, "waits", "Job")
    on = {event["involvedObject"]["name"] for event in await comebacks(api)}
    assert on == {"refused", "kept", "waits"}
    assert not await suspended(api, "waits")
