"""Incidents of fleets, from what is reported to what Fettle says and where pods go: eleven hours of
one cluster and of its Prometheus, in a minute. Fettle's clock jumps from look to look, and
Prometheus evaluates at that time what it was loaded with. INCIDENTS says what Fettle must have
said, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.clocks import Clock
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import register_extender, start_registered
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.memory import define, stored
from tests.prometheus import incidents
from tests.prometheus.fleets import slice_of, uuid
from tests.prometheus.server import (
    Recording,
    at_another_time,
    every,
    load,
    needs_prometheus,
    running,
)

pytestmark = [needs_prometheus, pytest.mark.prometheus]
MINUTE, HOUR = 60.0, 3600.0
SCRAPE_S = 60.0
HOSTNAME = "kubernetes.io/hostname"
STRICT = {"fettle.dev/policy": "training"}


COMES, LEAVES, RETURNS = "comes", "goes to the neighbour", "comes if there is no other node"


class Said(NamedTuple):
    """Of a device at so many minutes: its state, a score of at least `low` and at most `high`, and
    words of its evidence; and where a pod goes that wants a whole node."""

    minute: float
    state: str
    low: float
    high: float
    words: str = ""
    pod: str = ""


def healthy(minute: float, low: float = 1.0, high: float = 1.0, **more: Any) -> Said:
    return Said(minute, "Healthy", low, high, **more)


class Incident(NamedTuple):
    """On a node of this name; `device` is a GPU's number."""

    node: str
    series: incidents.Series
    device: int
    said: tuple[Said, ...]


REPLACED = 590.0
INCIDENTS = (
    Incident(
        "lost",
        incidents.lost("lost", replaced_s=REPLACED * MINUTE),
        6,
        (
            healthy(55, pod=COMES),
            Said(61, "Unhealthy", 0, 0, "XID 79: GPU has fallen off the bus", pod=LEAVES),
            Said(75, "Unhealthy", 0, 0, "no DCGM_FI_DEV_GPU_TEMP of it"),
            Said(545, "Unhealthy", 0, 0, "XID 79", pod=LEAVES),
            healthy(605, 0.8, 0.95, words="was until recently", pod=RETURNS),
        ),
    ),
    Incident(
        "hot",
        incidents.throttled("hot"),
        3,
        (
            healthy(128, pod=COMES),
            Said(165, "Degraded", 0.4, 0.8, "throttled by heat", pod=LEAVES),
            healthy(195, 0.8, 0.99, words="was until recently"),
            Said(225, "Degraded", 0.4, 0.8, "throttled by heat"),
            healthy(255, 0.8, 0.99),
            Said(285, "Degraded", 0.4, 0.8, "throttled by heat"),
            # From the third time on it is not believed to be over as soon as it is quiet.
            Said(315, "Degraded", 0.5, 0.9, "was until recently", pod=LEAVES),
            Said(465, "Degraded", 0.4, 0.8, "throttled by heat"),
            healthy(660, 0.6, 0.99, pod=RETURNS),
        ),
    ),
    Incident(
        "pending",
        incidents.row_pending("pending"),
        2,
        (
            healthy(55, pod=COMES),
            Said(61, "Degraded", 0.5, 0.5, "remapped at the next reset", pod=LEAVES),
            Said(285, "Degraded", 0.5, 0.5, "remapped at the next reset"),
            healthy(315, 0.8, 0.99, words="was until recently", pod=RETURNS),
        ),
    ),
    Incident(
        "storm",
        incidents.ecc_storm("storm"),
        5,
        (
            healthy(55),
            Said(165, "Degraded", 0.6, 0.9, "corrected memory errors in an hour"),
            Said(185, "Unhealthy", 0, 0, "an uncorrectable memory error", pod=LEAVES),
            Said(465, "Unhealthy", 0, 0, "an uncorrectable memory error"),
            Said(490, "Degraded", 0.6, 0.8, "was until recently: metrics: an uncorrectable"),
        ),
    ),
    Incident(
        "flaps",
        incidents.flapping_link("flaps"),
        1,
        (
            healthy(61),
            Said(128, "Degraded", 0.4, 0.8, "NVLink replays", pod=LEAVES),
            healthy(225, 0.8, 0.99),
            Said(245, "Degraded", 0.4, 0.8, "NVLink replays"),
            Said(365, "Degraded", 0.4, 0.8, "NVLink replays"),
            # It came back twice, so it is not believed to be over as soon as it is quiet.
            Said(380, "Degraded", 0.5, 0.9, "was until recently"),
            healthy(660, 0.8, 0.99),
        ),
    ),
    Incident(
        "away",
        incidents.exporter_away("away"),
        1,
        (
            healthy(55),
            Said(75, "Unknown", 0.75, 0.75, "no DCGM_FI_DEV_GPU_TEMP of it"),
            healthy(128),
        ),
    ),
    Incident(
        "away",
        {},
        0,
        (
            Said(55, "Degraded", 0.5, 0.5, "remapped at the next reset"),
            # A machine that stalls for three rounds lets it begin to fade: half in an hour.
            Said(75, "Degraded", 0.5, 0.51, "remapped at the next reset"),
            Said(128, "Degraded", 0.5, 0.5, "remapped at the next reset"),
        ),
    ),
)
HOLE, MUTE, SLOW, BAD = "hole", "mute", "slow", "bad"
"""Nodes: the kubelet refuses all, the DRA driver prepares nothing, a rank is slow, a row cannot be
remapped all the time."""
TEAMS = ("team-a", "team-b")
NVLINK_LOST = (
    "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = "
    "error getting list of preferred allocation devices: unable to get device link information: "
    "error getting NVLink for devices (0, 1): failed to get nvlink remote pci info: failed to get "
    "nvlink state: GPU is lost"
)
"""pytorch/ci-infra#1057, where one GPU took 554 runners in 1 h 46 min."""
PEERS = [f"peer-{i}" for i in range(4)]
"""Nodes with nothing on them."""
NAMES = list(dict.fromkeys(one.node for one in INCIDENTS))
WRONG = """\
  - name: too-hot
    exporter: dcgm
    query: max by ($device) (DCGM_FI_DEV_GPU_TEMP) > 30
    family: thermal
    weight: 0.9
    source: a slip
"""


class Cluster:
    """A fleet, its Prometheus and Fettle, at a time that is set."""

    def __init__(self, api: Api, fettle: FettleProcess, clock: Clock, begin: float) -> None:
        self.api = api
        self.fettle = fettle
        self._clock = clock
        self._begin = begin

    async def be_at(self, minute: float) -> None:
        """Let so many minutes have passed, and Fettle have asked for metrics since. A rule whose
        query takes long is asked later; checks wait for what is to be said."""
        self._clock.set(self._begin + minute * MINUTE)
        before = await self._rounds()
        await waiting.wait_until(
            self._rounds, lambda n: n >= before + 2, what="metrics are asked for", every_s=0.02
        )

    async def _rounds(self) -> float:
        _, text = await self.fettle.browse("/metrics")
        found = re.findall(r'fettle_prometheus_rounds_total\{result="complete"\} (\S+)', text)
        return sum(map(float, found))

    async def of_gpu(self, node: str, number: int) -> Any:
        return await self._explained(f"{node}/{objects.GPU}/{uuid(node, number)}")

    async def of_device(self, node: str, number: int) -> Any:
        return await self._explained(f"{objects.DRIVER}/{node}/gpu-{number}")

    async def of_node(self, node: str) -> Any:
        status, answer = await self.fettle.browse("/explain", node=node)
        assert status == 200, answer
        return answer

    async def _explained(self, device: str) -> Any:
        """Nothing names a unit of which nothing was ever said."""
        status, answer = await self.fettle.browse("/explain", device=device)
        return answer if status == 200 else {"state": "Healthy", "score": 1.0, "evidence": []}

    async def place(self, name: str, **template: Any) -> str:
        """Where the scheduler puts a pod that is deleted then. Processors decide if nothing else
        does."""
        await self.api.create(objects.pod(name, cpu="4", annotations=STRICT, **template))
        node = await waiting.bound(self.api, name)
        await self.api.delete("pods", name, grace_s=0)
        return node


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


@pytest.fixture
def begin(clock: Clock) -> float:
    return clock.now() // MINUTE * MINUTE


@pytest.fixture
def prometheus(tmp_path: Path, clock: Clock, begin: float) -> Iterator[str]:
    """With twelve hours of the fleet in it."""
    made = Recording()
    end = begin + 11.5 * HOUR
    times = every(SCRAPE_S, begin - HOUR, end)
    for one in INCIDENTS:
        incidents.record(made, one.series, begin, times)
    for name in (*PEERS, BAD):
        incidents.record(made, incidents.alive(name), begin, times)
    failed = {(BAD, 0, "DCGM_FI_DEV_ROW_REMAP_FAILURE"): incidents.steady(1)}
    incidents.record(made, failed, begin, times)
    incidents.record_steps(made, "team-a", {"rank-3"}, times)
    incidents.record_steps(made, "team-b", {"rank-3"}, every(SCRAPE_S, begin + 1.5 * HOUR, end))
    load(made, tmp_path / "prometheus")
    with (
        running(tmp_path / "prometheus") as url,
        at_another_time(url, clock.now) as other_url,
    ):
        yield other_url


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text(incidents.STEPS)
    return file


@pytest.fixture
def settings(tmp_path: Path, prometheus: str, rules: Path) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text(
        f"prometheus: {{url: '{prometheus}', intervalSeconds: 1}}\nhealth: {{rulesFile: {rules}}}\n"
    )
    return file


async def make_fleet(control_plane: ControlPlane, api: Api) -> None:
    for name in NAMES:
        here = {"incident": name}
        await create_node(api, objects.node(name, 8, cpu="512", labels=here))
        await create_node(api, objects.node(f"{name}-sound", 8, cpu="16", labels=here))
    for name in (*PEERS, BAD):
        await create_node(api, objects.node(name, 8))
    here = {"incident": HOLE}
    await create_node(api, objects.node(HOLE, 8, cpu="512", labels=here))
    await create_node(api, objects.node(f"{HOLE}-sound", 64, cpu="128", labels=here))
    here = {"incident": MUTE}
    for name, cpu in ((MUTE, "512"), (f"{MUTE}-sound", "16")):
        await create_dra_node(api, name, 8, objects.node(name, cpu=cpu, labels=here))
    await create_node(api, objects.node(SLOW))
    await api.create(slice_of(SLOW))
    for team in TEAMS:
        await control_plane.create_namespace(team)
        for i in range(8):
            await hold(api, team, f"rank-{i}", f"gpu-{i}")


async def hold(api: Api, team: str, rank: str, device: str) -> None:
    """A rank of a team's job runs on a device of the node SLOW."""
    await api.create(objects.claim(rank, namespace=team))
    result = {"request": "gpu", "driver": objects.DRIVER, "pool": SLOW, "device": device}
    allocation = {"allocation": {"devices": {"results": [result]}}}
    await api.patch_status("resourceclaims", rank, allocation, team)
    await api.create(objects.pod(rank, namespace=team, claims={"gpu": rank}, node=SLOW))


async def swallowed(api: Api, prefix: str, count: int) -> int:
    """One runner after the other is created; how many of them are refused by a kubelet."""
    lost = 0
    for i in range(count):
        name = f"{prefix}-{i}"
        await api.create(objects.pod(name, gpus=1, cpu="2", node_selector={"incident": HOLE}))
        ended = await waiting.wait_until(
            lambda name=name: api.get("pods", name),  # type: ignore[misc]
            lambda pod: pod["status"]["phase"] != "Pending",
            what=f"{name} is taken or refused",
        )
        lost += ended["status"]["phase"] == "Failed"
    return lost


async def check(cluster: Cluster, one: Incident, said: Said) -> None:
    found = await waiting.wait_until(
        lambda: cluster.of_gpu(one.node, one.device),
        lambda h: (
            h["state"] == said.state
            and said.low <= h["score"] <= said.high
            and said.words in " | ".join(e["text"] for e in h["evidence"])
        ),
        what=f"{said} of GPU {one.device} of {one.node}",
    )
    print(
        f"{said.minute // 60:02.0f}:{said.minute % 60:02.0f} {one.node} GPU {one.device}: "
        f"{found['state']} {found['score']:.2f}",
        *(e["text"] for e in found["evidence"]),
        sep=" | ",
    )
    if said.pod:
        only = {HOSTNAME: one.node} if said.pod == RETURNS else {"incident": one.node}
        name = f"train-{one.node}-{said.minute:.0f}"
        node = await cluster.place(name, gpus=8, node_selector=only)
        assert node == (f"{one.node}-sound" if said.pod == LEAVES else one.node), said


async def check_stragglers(cluster: Cluster, low: float, high: float) -> None:
    """Software, for all that anybody knows: others' scores are bounded, and nobody is refused."""
    slow = await waiting.wait_until(
        lambda: cluster.of_device(SLOW, 3),
        lambda h: low <= h["score"] <= high,
        what=f"a rank is slow: {low} to {high}",
    )
    assert slow["proven"] == 1.0
    assert slow["state"] == ("Degraded" if slow["suspected"] else "Healthy")
    assert "a rank of job team-a-job computes 49% longer" in str(slow["evidence"])
    assert (await cluster.of_device(SLOW, 2))["score"] == 1.0


async def check_the_driver_that_prepares_nothing(cluster: Cluster) -> None:
    """Two teams' pods wait on it; the third team's pod goes elsewhere, though nothing is proven."""
    api = cluster.api
    for team in TEAMS:
        await api.create(objects.claim("waits", namespace=team))
        here: Object = {"claims": {"gpu": "waits"}, "node_selector": {HOSTNAME: MUTE}}
        await api.create(objects.pod("waits", namespace=team, **here))
        assert await waiting.bound(api, "waits", namespace=team) == MUTE
    node = await waiting.wait_until(
        lambda: cluster.of_node(MUTE), lambda h: h["score"] <= 0.5, what="both are heard"
    )
    assert (node["state"], node["suspected"], node["proven"]) == ("Degraded", 2, 1.0)
    assert "DRA driver gpu.nvidia.com is not registered" in str(node["evidence"])
    await api.create(objects.claim("starts"))
    here = {"claims": {"gpu": "starts"}, "node_selector": {"incident": MUTE}}
    placed = await cluster.place("starts", **here)
    assert placed == f"{MUTE}-sound"


async def check_the_wrong_rule(cluster: Cluster, rules: Path) -> None:
    """Somebody pushes a threshold that every GPU exceeds, and takes it back."""
    api, fettle = cluster.api, cluster.fettle
    rules.write_text(incidents.STEPS + WRONG)
    await fettle.reload()

    async def ready() -> str:
        return str((await fettle.browse("/readyz", verbose=""))[1])

    said = "breaker: metric too-hot is set aside in nvidia.com/gpu"
    await waiting.wait_until(ready, lambda text: said in text, what="the wrong rule is named")
    hot = await cluster.of_gpu(PEERS[0], 0)
    assert hot["score"] < 0.2
    chosen: Object = {"gpus": 8, "annotations": STRICT}
    for name in PEERS:
        at = {HOSTNAME: name}
        await api.create(objects.pod(f"on-{name}", node_selector=at, **chosen))
    for name in PEERS:
        assert await waiting.bound(api, f"on-{name}") == name
    # What another rule says of a GPU is still believed.
    await api.create(objects.pod("on-bad", node_selector={HOSTNAME: BAD}, **chosen))
    await waiting.refused(api, "on-bad", saying="no sound devices")

    rules.write_text(incidents.STEPS)
    await fettle.reload()
    await waiting.wait_until(ready, lambda text: said not in text, what="it is taken back")
    await waiting.wait_until(
        lambda: cluster.of_gpu(PEERS[0], 0), lambda h: h["score"] > 0.5, what="it is over"
    )


async def test_eleven_hours_of_incidents(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    settings: Path,
    rules: Path,
    clock: Clock,
    begin: float,
) -> None:
    await define(api)
    await make_fleet(control_plane, api)
    kubelet.refuse_pods_on(HOLE, NVLINK_LOST)
    kubelet.prepare_nothing_on(MUTE, "DRA driver gpu.nvidia.com is not registered")
    await control_plane.start_scheduler()
    assert await swallowed(api, "before", 6) == 6
    for i in range(6):
        await api.delete("pods", f"before-{i}", grace_s=0)

    fettle = await start_registered(api, start_fettle, settings=settings, env=clock.env)
    await register_extender(control_plane, fettle)
    cluster = Cluster(api, fettle, clock, begin)
    lost = await swallowed(api, "runner", 20)
    print(f"of 20 runners, the node whose kubelet refuses all took {lost}")
    assert lost <= 2
    await check_the_driver_that_prepares_nothing(cluster)
    for minute in sorted({said.minute for one in INCIDENTS for said in one.said}):
        await cluster.be_at(minute)
        for one in INCIDENTS:
            for said in one.said:
                if said.minute == minute:
                    await check(cluster, one, said)
        if minute == 75:
            await check_stragglers(cluster, 0.65, 0.65)
        if minute == 165:
            await check_stragglers(cluster, 0.4, 0.5)
    await stored(api, BAD, state="Unhealthy")
    await check_the_wrong_rule(cluster, rules)
