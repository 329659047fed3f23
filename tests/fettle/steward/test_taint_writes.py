"""What the steward writes to taint devices, against an API server: whoever dies in between, and
what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fettle.api.resource import DeviceTaintRule
from fettle.cel import SelectorEngine
from fettle.client import EventRecorder, Session
from fettle.config import Settings
from fettle.model import DeviceId
from fettle.observing import DecisionMetrics, StewardMetrics
from fettle.records import DecisionLog, Journal, Recorder
from fettle.scheduling import Answers
from fettle.steward.health_taints import HealthTaints, TaintNews
from fettle.steward.taint_rules import rule_name
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.scheduling.clusters import Cluster
from tests.fettle.scheduling.plans.builders import fault, healthy_by
from tests.waiting import until

RULES = "devicetaintrules"
UNHEALTHY = "fettle.dev/unhealthy"
LONG_AGO, JUST_NOW, NOW = 1000.0, 1990.0, 2000.0


@pytest.fixture
def api(api: FakeApi) -> FakeApi:
    resource = {"name": RULES, "kind": "DeviceTaintRule"}
    api.discovered = {"resource.k8s.io/v1": [resource]}
    return api


class Fleet:
    """One node of ten devices, as the views show it: its devices' health, and the rules that the
    API server has. `keeping`: while a steward leads."""

    def __init__(self, api: FakeApi, session: Session, **settings: Any) -> None:
        self.api = api
        self.session = session
        device_taints = {"unhealthy": "NoSchedule", "writesPerSecond": 1000, "confirmSeconds": 60}
        self.settings = msgspec.convert({"deviceTaints": device_taints, **settings}, Settings)
        self.cluster = Cluster()
        answers = Answers(self.cluster.publisher, SelectorEngine(), self.settings)
        self.answers = answers
        self.registry = CollectorRegistry()
        self.metrics = StewardMetrics(self.registry)
        self.log = DecisionLog(100, 2**20)
        decisions = DecisionMetrics(CollectorRegistry())
        self.recorder = Recorder(answers, self.log, Journal(None, 0), decisions)
        self.events = EventRecorder(session, "fettle.dev/steward", "one")
        self._since: dict[str, float] = {}

    def show(self, since: dict[str, float] | None = None) -> None:
        """The devices that are Unhealthy, and since when; as before if nothing is said."""
        self._since = self._since if since is None else since
        devices = []
        for name in "abcdefghij":
            device = b.device(name)
            if name in self._since:
                health = healthy_by(fault(name, 1.0), since=self._since[name])
                device = msgspec.structs.replace(device, health=health)
            devices.append(device)
        rules = {
            name: msgspec.convert(rule, DeviceTaintRule)
            for name, rule in self.api.objects.get(RULES, {}).items()
        }
        node = b.node("n", pools=(b.pool(*devices),))
        served = {"DeviceTaintRule": True}
        self.cluster.show({"n": node}, taint_rules=rules, served=served)

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[HealthTaints]:
        news = TaintNews(self.recorder, self.events, self.settings.mode)
        made = HealthTaints(
            self.session,
            self.answers,
            self.settings,
            self.metrics,
            news,
            clock=lambda: NOW,
            look_s=0.01,
        )
        task = asyncio.create_task(made.keep())
        try:
            yield made
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def until(self, **effects: str) -> None:
        """Views follow the API server until it has these rules."""

        def is_so() -> bool:
            self.show()
            return self.rules() == effects

        await until(is_so)

    def rules(self) -> dict[str, str]:
        """By device, the effect of its rule."""
        specs = [rule["spec"] for rule in self.api.objects.get(RULES, {}).values()]
        return {one["deviceSelector"]["device"]: one["taint"]["effect"] for one in specs}

    def told(self) -> list[tuple[str, str, str]]:
        return [(next(iter(one.reasons)), one.key[-1], str(one.decided)) for one in self.log]

    def counts(self) -> set[str]:
        lines = generate_latest(self.registry).decode().splitlines()
        return {one for one in lines if one.startswith("fettle_steward_device_taints{")}


BEFORE = {"a": LONG_AGO, "b": LONG_AGO, "c": JUST_NOW, "d": JUST_NOW}
AFTER = {"c": LONG_AGO, "d": LONG_AGO, "e": JUST_NOW, "f": LONG_AGO}
WRITTEN_BEFORE = {"a": "NoSchedule", "b": "NoSchedule", "c": "None", "d": "None"}
WRITTEN_AFTER = {"c": "NoSchedule", "d": "NoSchedule", "e": "None", "f": "NoSchedule"}
WRITES = 6  # two rules removed, two changed, two new


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("dies_after", range(WRITES + 1))
async def test_a_leader_that_dies_between_any_two_writes_leaves_the_rest_to_the_next_one(
    api: FakeApi, session: Session, dies_after: int, *, answered: bool
) -> None:
    """Whether it still learned that its last write was done, or not."""
    fleet = Fleet(api, session)
    fleet.show(BEFORE)
    async with fleet.keeping():
        await fleet.until(**WRITTEN_BEFORE)
    kept = {name: rule["metadata"] for name, rule in api.objects[RULES].items()}

    api.written, api.dies_after, api.loses_last = 0, dies_after, not answered
    fleet.show(AFTER)
    async with fleet.keeping():
        await until(lambda: api.written == dies_after)
        await asyncio.sleep(0.03)
    assert api.written == dies_after
    half = fleet.rules()

    api.dies_after = None
    fleet.show()
    async with fleet.keeping():
        await fleet.until(**WRITTEN_AFTER)
        await asyncio.sleep(0.05)
    assert api.written == WRITES
    assert (half == WRITTEN_AFTER) == (dies_after == WRITES)
    names = {rule_name("fettle-health-", DeviceId(b.DRIVER, "n", name)) for name in WRITTEN_AFTER}
    assert api.objects[RULES].keys() == names
    assert sum(name in kept for name in names) == 2


async def test_each_write_is_recorded_and_the_node_is_told_once_when_pods_are_kept_off(
    api: FakeApi, session: Session
) -> None:
    fleet = Fleet(api, session)
    fleet.show({"a": JUST_NOW, "b": LONG_AGO})
    for _ in range(2):  # the next leader tells nothing again
        async with fleet.keeping():
            await fleet.until(a="None", b="NoSchedule")
            await until(lambda: len(fleet.counts()) == 4)
            await until(lambda: len(fleet.told()) == 2)
            assert fleet.counts() == {
                f'fettle_steward_device_taints{{driver="{b.DRIVER}",effect="{effect}",'
                f'status="{status}"}} 1.0'
                for effect in ("None", "NoSchedule")
                for status in ("wanted", "written")
            }
        assert fleet.counts() == set()
    await fleet.events.write()
    fleet.show({"a": LONG_AGO})
    async with fleet.keeping():
        await fleet.until(a="NoSchedule")
        await until(lambda: len(fleet.told()) == 4)
    await fleet.events.write()
    assert sorted(fleet.told()) == [
        ("ChangeTaint", "a", "wrote"),
        ("TaintDevice", "a", "wrote"),
        ("TaintDevice", "b", "wrote"),
        ("UntaintDevice", "b", "wrote"),
    ]
    first, second = api.objects["events"].values()
    assert first["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}
    assert first["reason"] == "DeviceTainted"
    assert f"device {b.DRIVER}/n/b is Unhealthy: a fault; DeviceTaintRule" in first["note"]
    assert f"taints it {UNHEALTHY}:NoSchedule" in first["note"]
    assert f"{b.DRIVER}/n/a" in second["note"]
    again = EventRecorder(session, "fettle.dev/steward", "two")
    fleet.events = again
    fleet.show({})
    async with fleet.keeping():
        await fleet.until()
        fleet.show({"a": LONG_AGO})
        await fleet.until(a="NoSchedule")
    await again.write()
    assert len(api.objects["events"]) == 2


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"mode": "observe"}, "in mode observe none is written"),
        ({"mode": "steer"}, "in mode steer none is written"),
        ({"steward": {"dryRun": True}}, "with steward.dryRun none is written"),
    ],
)
async def test_where_nothing_may_be_written_what_would_be_is_recorded_once_and_what_was_is_removed(
    api: FakeApi, session: Session, settings: dict[str, Any], why: str
) -> None:
    before = Fleet(api, session)
    before.show({"a": LONG_AGO})
    async with before.keeping():
        await before.until(a="NoSchedule")
    api.written = 0
    fleet = Fleet(api, session, **settings)
    fleet.show({"a": LONG_AGO, "b": JUST_NOW})
    async with fleet.keeping() as taints:
        await fleet.until()
        await until(lambda: len(fleet.told()) == 3)
        assert taints.notes() == [f"device taints: {why}: `fettle devices` lists them"]
        fleet.show({"a": LONG_AGO, "b": LONG_AGO})
        await until(lambda: len(fleet.told()) == 4)
        fleet.show({"b": LONG_AGO})
        await until(lambda: len(fleet.told()) == 5)
        await asyncio.sleep(0.05)
    assert fleet.told()[0] == ("UntaintDevice", "a", "wrote")
    assert sorted(fleet.told()[1:3]) == [
        ("TaintDevice", "a", "wouldWrite"),
        ("TaintDevice", "b", "wouldWrite"),
    ]
    assert fleet.told()[3:] == [
        ("ChangeTaint", "b", "wouldWrite"),
        ("UntaintDevice", "a", "wouldWrite"),
    ]
    assert api.written == 1
    assert "events" not in api.objects


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha3"])
async def test_rules_are_written_in_the_newest_version_that_is_served(
    api: FakeApi, session: Session, version: str
) -> None:
    """As by Kubernetes 1.37, 1.36, and older versions."""
    resource = {"name": RULES, "kind": "DeviceTaintRule"}
    slices = {"name": "resourceslices", "kind": "ResourceSlice"}
    api.discovered = {"resource.k8s.io/v1": [slices], f"resource.k8s.io/{version}": [resource]}
    fleet = Fleet(api, session)
    fleet.show({"a": LONG_AGO})
    async with fleet.keeping():
        await fleet.until(a="NoSchedule")
    (rule,) = api.objects[RULES].values()
    assert rule["apiVersion"] == f"resource.k8s.io/{version}"
    (asked,) = [one for one in api.asked if one.verb == "create"]
    assert asked.target.version == version
