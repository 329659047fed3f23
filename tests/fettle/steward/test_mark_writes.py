"""What the steward writes on Nodes, against an API server: whoever dies in between, and while the
API server is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fettle.api import kinds
from fettle.client import Session
from fettle.config import Settings
from fettle.observing import DecisionMetrics, StewardMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.steward import NodeMarking
from tests.bench import fleets, inventories, storms
from tests.controlplane.objects import DRIVER
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.scheduling.clusters import kept
from tests.waiting import until

A, B, C = (fleets.name_of(number) for number in range(3))
HEALTHY, ILL = ("healthy", "True", False), ("degraded", "False", True)
WRITES = 6
"""A node that heals and one that falls ill: a label, a condition and a cordon each."""


@pytest.fixture
def api(api: FakeApi) -> FakeApi:
    for name in (A, B, C):
        api.put("nodes", {"metadata": {"name": name}, "spec": {}, "status": {"conditions": []}})
    return api


class Fleet(storms.StormyFleet):
    """Three nodes, as the API server has them."""

    def __init__(self, api: FakeApi, session: Session, hold_s: float = 0, **more: Any) -> None:
        marks = {"label": True, "condition": True, "cordon": "AnyDevice", "confirmSeconds": 0}
        limits = {"writesPerSecond": 1000, "holdSeconds": hold_s, "maxCordonedShare": 1}
        self._settings = msgspec.convert({"nodeMarks": marks | limits, **more}, Settings)
        super().__init__(3, self._settings)
        self._api = api
        self._session = session
        self.at = inventories.NOW
        metrics = DecisionMetrics(CollectorRegistry())
        self._log = DecisionLog(100, 2**20)
        self._recorder = Recorder(self.answers, self._log, Journal(None, 2**20), metrics)

    def show(self, *ill: str, after_s: float = 1000) -> None:
        """The nodes with an ill device, and what is on all of them."""
        self.at += after_s
        for number, name in enumerate((A, B, C)):
            devices = inventories.alike(number)
            if name in ill:
                fault = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "None"}
                devices[0]["taints"] = [fault]
            self.put(kinds.SLICE, inventories.slice_of(name, devices), self.at)
        self.follow()

    def follow(self) -> None:
        for raw in self._api.objects["nodes"].values():
            self.put(kinds.NODE, raw, self.at)
        self.look(self.at)

    @asynccontextmanager
    async def led(self) -> AsyncIterator[NodeMarking]:
        made = NodeMarking(
            self._session,
            self.answers,
            self._settings,
            StewardMetrics(CollectorRegistry()),
            self._recorder,
            clock=lambda: self.at,
            look_s=0.01,
            longest_pause_s=0.05,
        )
        async with kept(made.keep()):
            yield made

    async def until(self, **wanted: tuple[str, str, bool]) -> None:
        def is_so() -> bool:
            self.follow()
            return self.marks() == wanted

        await until(is_so)

    def told(self) -> list[str]:
        """What is recorded that would be written."""
        assert {str(one.decided) for one in self._log} <= {"wouldWrite"}
        return [f"{' '.join(one.reasons)} {one.key}" for one in self._log]

    def marks(self) -> dict[str, tuple[str, str, bool]]:
        return {name: _marks(raw) for name, raw in self._api.objects["nodes"].items()}


def _marks(raw: dict[str, Any]) -> tuple[str, str, bool]:
    """The label, the condition, and whether it is cordoned by us."""
    labels, annotations = (raw["metadata"].get(key, {}) for key in ("labels", "annotations"))
    cordoned = "fettle.dev/cordoned" in annotations
    assert raw["spec"].get("unschedulable", False) == cordoned
    status = [c["status"] for c in raw["status"]["conditions"] if c["type"] == "FettleDevicesSound"]
    return labels.get("fettle.dev/health", ""), "".join(status), cordoned


async def test_labels_of_units_come_and_go(api: FakeApi, session: Session) -> None:
    gpus = {"nvidia.com/gpu": "8"}
    api.objects["nodes"][A]["status"] |= {"capacity": gpus, "allocatable": gpus}

    def labels() -> dict[str, str]:
        found: dict[str, str] = api.objects["nodes"][A]["metadata"].get("labels", {})
        return {key: value for key, value in found.items() if key.startswith("fettle.dev/")}

    all_of_them = dict.fromkeys(
        ("fettle.dev/health", "fettle.dev/health.node", "fettle.dev/health.nvidia.com_gpu"),
        "healthy",
    )
    fleet = Fleet(api, session)
    fleet.show()
    async with fleet.led():
        await until(lambda: labels() == all_of_them)
    off = Fleet(api, session, mode="observe")
    off.show()
    async with off.led():
        await until(lambda: labels() == {})


@pytest.mark.parametrize("lacking", [(A,), (A, B, C)])
async def test_where_many_nodes_lack_devices_that_is_said_and_none_is_marked_for_it(
    api: FakeApi, session: Session, lacking: tuple[str, ...]
) -> None:
    for name in lacking:
        metadata = api.objects["nodes"][name]["metadata"]
        metadata["annotations"] = {"fettle.dev/expected-devices": f"{DRIVER}=9"}
    fleet = Fleet(api, session)
    fleet.show()
    fleet.show()
    note = f"3 of 3 nodes lack {DRIVER}, more than breaker.maxExcludedShare"
    async with fleet.led() as marking:
        if len(lacking) == 1:
            await fleet.until(**{A: ("healthy", "False", True), B: HEALTHY, C: HEALTHY})
        else:
            await until(lambda: note in str(marking.notes()))
            await fleet.until(**dict.fromkeys((A, B, C), HEALTHY))
        assert (note in str(marking.notes())) == (len(lacking) > 1)


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("dies_after", range(WRITES + 1))
async def test_a_leader_that_dies_between_any_two_writes_leaves_the_rest_to_the_next_one(
    api: FakeApi, session: Session, dies_after: int, *, answered: bool
) -> None:
    """Whether it still learned that its last write was done, or not."""
    fleet = Fleet(api, session)
    fleet.show(A)
    async with fleet.led():
        await fleet.until(**{A: ILL, B: HEALTHY, C: HEALTHY})

    api.written, api.dies_after, api.loses_last = 0, dies_after, not answered
    fleet.show(B)
    async with fleet.led():
        await until(lambda: api.written == dies_after)
        await asyncio.sleep(0.03)
    assert api.written == dies_after
    after = {A: HEALTHY, B: ILL, C: HEALTHY}
    assert (fleet.marks() == after) == (dies_after == WRITES)

    api.dies_after = None
    fleet.follow()
    async with fleet.led():
        await fleet.until(**after)
        await asyncio.sleep(0.05)
    assert api.written == WRITES


async def test_while_the_api_server_is_away_it_is_tried_ever_more_rarely_and_then_written_once(
    api: FakeApi, session: Session
) -> None:
    fleet = Fleet(api, session)
    fleet.show()
    async with fleet.led() as marking:
        await fleet.until(**dict.fromkeys((A, B, C), HEALTHY))
        api.written = 0
        await api.stop()
        fleet.show(A, B)
        await until(lambda: "label cannot be written" in str(marking.notes()))
        await asyncio.sleep(0.3)
        await api.start()
        await fleet.until(**{A: ILL, B: ILL, C: HEALTHY})
        await asyncio.sleep(0.05)
    assert api.written == WRITES


async def test_a_dry_run_records_what_would_be_written_and_holds_it_back_as_that_would_be(
    api: FakeApi, session: Session
) -> None:
    fleet = Fleet(api, session, hold_s=60, steward={"dryRun": True})
    fleet.show(A)
    all_of_a = [f"{what} {A}" for what in ("CordonNode", "LabelNode", "SetNodeCondition")]
    async with fleet.led():
        await until(lambda: sorted(fleet.told()) == all_of_a)
        for _ in range(3):  # it comes and goes
            fleet.show(after_s=5)
            await asyncio.sleep(0.05)
            fleet.show(A, after_s=5)
            await asyncio.sleep(0.05)
        assert sorted(fleet.told()) == all_of_a
        async with asyncio.timeout(10):
            while f"UncordonNode {A}" not in fleet.told():  # each time a newer view
                api.objects["nodes"][C]["metadata"]["labels"] = {"seen": str(fleet.at)}
                fleet.show()
                await asyncio.sleep(0.05)
    assert api.written == 0
