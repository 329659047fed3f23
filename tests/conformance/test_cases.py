"""Public reports, rebuilt as small clusters: what people were told by a Fettle as they start it.

`FETTLE_CASES` names the folder; by default it is `shared/cases` beside the repository. Each case
has the report that it is from in its README.
"""

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.controlplane.processes import free_port
from tests.fettle.serve.runtimes import until_open
from tests.test_documents import ROOT

TOKEN = "of-the-tests"
FOLDER = Path(os.environ.get("FETTLE_CASES") or ROOT.parent / "shared" / "cases")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no cases in {FOLDER}"),
]
RECORDED = datetime(2026, 11, 25, 5, tzinfo=UTC)
"""The time that is "now" in the cases."""
PROBE = "ml/probe"
"""The pod to be placed, with the policy `training`."""


class Told:
    """What a process says of a cluster."""

    def __init__(self, devices: dict[str, Any], explained: dict[str, Any]) -> None:
        self.devices = devices
        self.probe = explained
        self._nodes = {one["node"]: one for one in devices["nodes"]}

    def parts(self, node: str) -> Iterator[dict[str, Any]]:
        """The health of the node itself, and of each unit and device of it."""
        whole = self._nodes[node]
        yield whole
        yield from (unit for each in whole["resources"] for unit in each["units"])
        yield from whole["devices"]

    def score(self, node: str) -> float:
        """Of the worst part."""
        return min(float(one["score"]) for one in self.parts(node))

    def states(self, node: str) -> set[str]:
        return {one["state"] for one in self.parts(node)}

    def device(self, name: str) -> dict[str, Any]:
        parts = (one for node in self._nodes for one in self.parts(node))
        return next(one for one in parts if one.get("device", one.get("unit")) == name)

    def fits(self, node: str) -> bool:
        answer = self.probe["nodes"][node]
        return bool(answer["fits"]) and not answer["rejected"]

    def words(self, node: str) -> str:
        """All that is said of the node and of what the probe would get there."""
        answer = self.probe["nodes"].get(node, {})
        about = ("refusals", "rejected", "undecided", "notes")
        said = [text for what in about for text in answer.get(what, ())]
        said += [one["text"] for part in self.parts(node) for one in part["evidence"]]
        return "\n".join(said)


def retimed(case: str, into: Path) -> Path:
    """A copy in which the case happens now."""
    later = datetime.now(UTC).replace(microsecond=0) - RECORDED

    def moved(found: re.Match[str]) -> str:
        at = datetime.fromisoformat(found[0])
        return f"{at + later:%Y-%m-%dT%H:%M:%SZ}"

    copied = Path(shutil.copytree(FOLDER / case, into / case))
    for file in copied.rglob("*.yaml"):
        text = file.read_text()
        file.write_text(re.sub(r"2026-\d\d-\d\dT\d\d:\d\d:\d\dZ", moved, text))
    return copied


class Serving:
    """A process that is asked while its snapshot changes."""

    def __init__(self, folder: Path, port: int, session: aiohttp.ClientSession) -> None:
        self.folder = folder
        self._url = f"http://127.0.0.1:{port}"
        self._session = session

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while True:
                async with self._session.get(f"{self._url}/readyz") as response:
                    if response.status == 200:
                        return
                await asyncio.sleep(0.05)

    async def ask(self, probe: str = PROBE) -> Told:
        return Told(await self._get("/devices"), await self._get(f"/explain?pod={probe}"))

    async def until(self, seen: Callable[[Told], bool]) -> Told:
        async with asyncio.timeout(20):
            while not seen(told := await self.ask()):
                await asyncio.sleep(0.1)
        return told

    def replace(self, file: str) -> None:
        """What came after takes the place of a file, whole at once."""
        half = self.folder / ".half"
        shutil.copy(self.folder / "after" / file, half)
        half.rename(self.folder / "snapshot" / file)

    async def explain(self, query: str) -> dict[str, Any]:
        return await self._get(f"/explain?{query}")

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._session.get(self._url + path) as response:
            told = await response.json()
        assert response.status == 200, told
        return dict(told)


def serving(case: str, tmp_path: Path) -> contextlib.AbstractAsyncContextManager[Serving]:
    return serving_from(retimed(case, tmp_path))


@contextlib.asynccontextmanager
async def serving_from(folder: Path) -> AsyncIterator[Serving]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fettle", "serve", "extender"),
        *("--snapshot", str(folder / "snapshot")),
        *("--extender-listen", f"127.0.0.1:{free_port()}"),
        *("--browse-listen", f"127.0.0.1:{port}"),
        env=os.environ | {"PYTHONPATH": str(ROOT), "FETTLE_TOKEN": TOKEN},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60):
            await until_open(port)
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {TOKEN}"}, timeout=aiohttp.ClientTimeout(total=60)
        ) as session:
            served = Serving(folder, port, session)
            await served.ready()
            yield served
    finally:
        process.terminate()
        await process.wait()


async def told_of(case: str, tmp_path: Path) -> Told:
    async with serving(case, tmp_path) as served:
        return await served.ask()


async def test_a_gpu_that_the_driver_gave_up_and_a_kubelet_still_counts_is_named_with_its_holder(
    tmp_path: Path,
) -> None:
    told = await told_of("unhealthy-unit-held", tmp_path)
    assert not told.fits("a1")
    assert "is still held by ml/holder" in told.words("a1")
    assert told.fits("a2")


async def test_what_a_pod_that_has_ended_is_refused_counts_against_nobody(tmp_path: Path) -> None:
    async with serving("completed-pod-refused-again", tmp_path) as served:
        assert (await served.ask()).score("y1") == 1.0
        served.replace("pods.yaml")
        await asyncio.sleep(2)
        assert (await served.ask()).score("y1") == 1.0


async def test_mig_devices_of_a_lost_gpu_are_lost_and_others_are_not(tmp_path: Path) -> None:
    told = await told_of("dra-mig-of-tainted-parent", tmp_path)
    bad = {one["device"] for one in told.parts("m1") if one["state"] != "Healthy"}
    assert {one.rpartition("/")[2].split("-mig-")[0] for one in bad} == {"gpu-0"}
    assert len(bad) == 3
    assert not told.fits("m1")
    assert "acceptable devices exist" in told.words("m1")
    assert told.fits("m2")


async def test_a_node_whose_driver_prepares_nothing_is_worth_less(tmp_path: Path) -> None:
    told = await told_of("dra-prepare-never", tmp_path)
    assert told.score("p1") < told.score("p2") == 1.0


async def test_a_driver_that_taints_for_an_xid_of_an_application_says_that_it_needs_recovery(
    tmp_path: Path,
) -> None:
    told = await told_of("dra-xid-noschedule-app", tmp_path)
    assert told.device("gpu.nvidia.com/d1/gpu-0")["state"] in ("Unhealthy", "Degraded")


async def test_all_xids_of_an_aggregated_condition_count(tmp_path: Path) -> None:
    told = await told_of("eks-aggregated-xids", tmp_path)
    assert [told.score(node) for node in ("e1", "e3")] == [0.0, 0.0]
    assert told.score("e2") == 0.9


async def test_a_code_of_dcgm_weighs_what_it_means(tmp_path: Path) -> None:
    told = await told_of("eks-dcgm-code-122", tmp_path)
    assert [told.fits(node) for node in ("c1", "c2", "c3", "c4", "c5", "c6")] == [
        *(True, True, True),
        *(False, False, True),
    ]
    assert told.states("c4") == {"Degraded"}


async def test_a_fatal_finding_that_no_row_knows_is_unknown(tmp_path: Path) -> None:
    told = await told_of("eks-row-remap-failure", tmp_path)
    assert not told.fits("m1")
    assert told.states("m2") == {"Unknown"}
    assert told.fits("m3")


async def test_warnings_of_eks_are_heard_in_the_form_that_the_agent_writes(tmp_path: Path) -> None:
    told = await told_of("eks-warning-events", tmp_path)
    scores = [told.score(node) for node in ("t1", "t2", "t3", "t4", "t5")]
    assert scores == [0.7, 0.7, 0.9, 1.0, 1.0]
    assert all("Event AcceleratedHardwareReady" in told.words(node) for node in ("t1", "t3", "t4"))
    assert all(told.fits(node) for node in ("t1", "t2", "t3", "t4", "t5"))


async def test_gkes_condition_counts_by_its_xids(tmp_path: Path) -> None:
    told = await told_of("gke-xid-condition", tmp_path)
    assert [told.fits(node) for node in ("g1", "g2", "g3", "g4")] == [False, False, True, True]
    assert told.score("g3") == 0.9


async def test_neurons_condition_is_bad_if_it_is_true(tmp_path: Path) -> None:
    told = await told_of("neuron-health", tmp_path)
    assert told.states("n1") == told.states("n2") == {"Unhealthy"}
    assert told.score("n3") == 1.0


async def test_a_driver_upgrade_keeps_pods_away_once_it_is_under_way(tmp_path: Path) -> None:
    told = await told_of("driver-upgrade-states", tmp_path)
    assert [told.score(node) for node in ("u1", "u5")] == [1.0, 1.0]
    assert [told.fits(f"u{n}") for n in range(1, 6)] == [True, False, False, False, True]
    assert "gpu-driver-upgrade-state=pod-deletion-required" in told.words("u2")
    assert "upgrade-failed" in told.words("u4")


async def test_what_okes_checks_and_tests_say_counts(tmp_path: Path) -> None:
    async with serving("oke-npd", tmp_path) as served:
        told = await served.ask("ml/probe8")
    assert not any(told.fits(node) for node in ("o1", "o2", "o3", "o8"))
    assert told.score("o3") == 0.5
    assert (told.states("o4"), told.score("o4"), told.fits("o4")) == ({"Unknown"}, 0.75, True)
    assert told.score("o5") == told.score("o7") == 1.0
    assert told.score("o6") < told.score("o7")
    assert "79" in told.words("o8")


async def test_a_reboot_ends_an_xid_whose_monitor_does_not_come_back(tmp_path: Path) -> None:
    case = "npd-xid-before-reboot-live"
    async with serving(case, tmp_path) as served:
        assert not (await served.ask()).fits("r1")
        served.replace("nodes.yaml")
        told = await served.until(lambda told: told.fits("r1"))
        assert "Unknown" in told.states("r1")
        assert "Unhealthy" not in told.states("r1")
        assert "was until recently" in told.words("r1")


async def test_who_starts_after_the_reboot_finds_the_node_unknown(tmp_path: Path) -> None:
    folder = retimed("npd-xid-before-reboot-live", tmp_path / "copy")
    shutil.copy(folder / "after" / "nodes.yaml", folder / "snapshot" / "nodes.yaml")
    async with serving_from(folder) as served:
        told = await served.ask()
    assert (told.states("r1"), told.score("r1"), told.fits("r1")) == ({"Unknown"}, 0.75, True)


async def test_a_replaced_gpu_does_not_inherit_the_fault_of_its_slot(tmp_path: Path) -> None:
    told = await told_of("nvsentinel-gpu-replaced", tmp_path)
    assert told.device("gpu.nvidia.com/r1/gpu-0")["score"] == 1.0
    assert "a GPU that is no longer there" in told.words("r1")
    assert told.device("gpu.nvidia.com/r2/gpu-0")["state"] == "Degraded"
    assert told.fits("r1")


async def test_an_xid_in_a_watch_of_dcgm_weighs_what_the_xid_does(tmp_path: Path) -> None:
    told = await told_of("nvsentinel-memwatch-xid31", tmp_path)
    assert [told.score(node) for node in ("x1", "x2", "x3", "x4")] == [1.0, 0.0, 0.9, 1.0]
    assert told.fits("x1")


async def test_pods_that_were_put_on_a_node_without_gpus_lower_its_score_within_bounds(
    tmp_path: Path,
) -> None:
    told = await told_of("outof-gpu", tmp_path)
    assert told.score("j1") == 0.65
    assert told.fits("j1")


async def test_what_another_schedulers_plugin_refuses_says_nothing_of_gpus(tmp_path: Path) -> None:
    told = await told_of("refusal-unknown-text", tmp_path)
    assert told.score("y1") >= 0.65
    assert told.fits("y1")


async def test_a_node_that_has_fewer_units_than_pods_hold_says_so(tmp_path: Path) -> None:
    told = await told_of("sriov-capacity-shrinks", tmp_path)
    assert (told.score("i1"), told.fits("i1"), told.fits("i2")) == (1.0, False, True)
    assert "pods hold 6, more than the 2 that it has now" in told.words("i1")


async def test_refusals_of_a_full_node_say_nothing_of_its_gpus(tmp_path: Path) -> None:
    told = await told_of("two-schedulers-race", tmp_path)
    assert told.score("u1") >= 0.65


async def test_the_newest_xids_weigh_what_nvidia_says(tmp_path: Path) -> None:
    told = await told_of("xids-162-to-173", tmp_path)
    assert told.score("w1") == told.score("w8") == 1.0
    assert [told.score(f"w{n}") for n in range(2, 8)] == [0.0] * 6


def test_a_manifest_that_is_right_is_not_denied() -> None:
    case = FOLDER / "lint-mps-multiuser" / "manifest.yaml"
    command = [sys.executable, "-m", "fettle", "lint", str(case)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "FTL019" not in done.stdout
    assert " to deny" not in done.stderr or " 0 to deny" in done.stderr


LATER = (
    "devicetaintrule-empty-selector",
    "lint-v1-without-exactly",
)
"""What is not yet right."""


def test_every_case_is_looked_at() -> None:
    text = Path(__file__).read_text()
    cases = {one.name for one in FOLDER.iterdir() if one.is_dir()}
    assert {one for one in cases if f'"{one}"' not in text} == set()
