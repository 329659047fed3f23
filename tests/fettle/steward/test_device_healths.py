"""What the leader stores of health, and how much it writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fettle.api import DeviceHealth
from fettle.api.meta import ObjectMeta
from fettle.api.own_group import NOTHING_KNOWN, StoredSubject
from fettle.config import Settings
from fettle.model import State
from fettle.serve.serving import Runtime
from fettle.steward.device_healths import SHOWN_WITHIN_S, PendingWrites, is_as_good
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.serve.runtimes import serve_options
from tests.waiting import until

GPU = "nvidia.com/gpu"
LOST = {
    "type": "AcceleratedHardwareReady",
    "status": "False",
    "reason": "NvidiaXID79Error",
    "lastTransitionTime": "2026-09-21T14:00:00Z",
}


def node(name: str, *conditions: dict[str, Any]) -> dict[str, Any]:
    amounts = {"cpu": "8", GPU: "8"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": list(conditions)}
    return {"metadata": {"name": name, "uid": name}, "status": status}


@asynccontextmanager
async def stewarding(api: FakeApi, folder: Path, per_s: float = 20) -> AsyncIterator[None]:
    settings = {"steward": {"healthWritesPerSecond": per_s}}
    runtime = Runtime(
        serve_options(api.kubeconfig(folder), "steward"), msgspec.convert(settings, Settings)
    )
    try:
        await runtime.open()
        yield
    finally:
        await runtime.close()


def states(api: FakeApi) -> dict[str, str]:
    return {name: one["status"]["state"] for name, one in healths(api).items()}


def healths(api: FakeApi) -> dict[str, Any]:
    return api.objects.get("devicehealths", {})


def writes(api: FakeApi) -> list[str]:
    return [a.target.name or "new" for a in api.asked if is_write(a)]


def is_write(asked: Any) -> bool:
    return asked.target.plural == "devicehealths" and asked.verb not in ("list", "watch")


def health(score: float, state: State = State.DEGRADED) -> DeviceHealth:
    subject = StoredSubject(state=state, score=score)
    status = msgspec.structs.replace(NOTHING_KNOWN, node_name="n", subjects=(subject,))
    status = msgspec.structs.replace(status, checksum=status.true_checksum)
    return DeviceHealth(metadata=ObjectMeta(name="n"), status=status)


def test_a_score_that_moved_by_less_than_a_twentieth_is_not_written_again() -> None:
    stored = health(0.5)
    assert is_as_good(stored, health(0.54))
    assert not is_as_good(stored, health(0.56))
    assert not is_as_good(stored, health(0.5, State.UNHEALTHY))
    edited = msgspec.structs.replace(stored.status, checksum="edited")
    assert not is_as_good(msgspec.structs.replace(stored, status=edited), stored)


class Knows:
    """Of every node, that it is degraded."""

    def recall(self, name: str, before: DeviceHealth | None, now: float) -> DeviceHealth | None:
        return health(0.5)

    def recall_pools(
        self, before: Mapping[str, DeviceHealth], now: float
    ) -> Iterator[DeviceHealth]:
        return iter(())


def test_what_was_deleted_before_the_watch_showed_it_is_written_again() -> None:
    pending, view = PendingWrites(Knows()), b.view(b.node("n"))
    pending.look(view, None, 100.0)
    pending.written("n", pending.wanted("n"))
    pending.look(view, (), 101.0)
    pending.look(view, (), 101.0 + SHOWN_WITHIN_S)
    assert pending.most_urgent() == []
    pending.look(view, (), 102.0 + SHOWN_WITHIN_S)
    assert pending.most_urgent() == ["n"]


@pytest.mark.long
async def test_the_worst_is_written_first_and_the_rest_at_a_bounded_rate(
    api: FakeApi, tmp_path: Path
) -> None:
    for i in range(12):
        api.put("nodes", node(f"gpu-{i:02}"))
    api.put("nodes", node("gpu-90", LOST))
    async with stewarding(api, tmp_path, per_s=3):
        await until(lambda: healths(api))
        assert states(api) == {"gpu-90": "Unhealthy"} or len(healths(api)) > 1
        assert "gpu-90" in healths(api)
        began_s, before = time.monotonic(), len(healths(api))
        await until(lambda: len(healths(api)) == 13)
        assert time.monotonic() - began_s > (13 - before - 3) / 3


@pytest.mark.long
async def test_a_storm_becomes_one_write_for_each_node_and_rest_none(
    api: FakeApi, tmp_path: Path
) -> None:
    for i in range(40):
        api.put("nodes", node(f"gpu-{i}"))
    async with stewarding(api, tmp_path, per_s=1000):
        await until(lambda: len(healths(api)) == 40)
        before = len(writes(api))
        for i in range(40):
            api.put("nodes", node(f"gpu-{i}", LOST))
        await until(lambda: set(states(api).values()) == {"Unhealthy"})
        assert len(writes(api)) - before == 40
        await asyncio.sleep(2.5)
        assert len(writes(api)) - before == 40


@pytest.mark.long
async def test_what_is_malformed_or_deleted_is_written_again_and_what_is_gone_is_deleted(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("nodes", node("gpu-1"))
    api.put(
        "devicehealths", {"metadata": {"name": "gone"}, "status": {"state": "Healthy", "score": 1}}
    )
    bad = {"state": 7, "score": "x", "subjects": [{"evidence": 3}]}
    api.put("devicehealths", {"metadata": {"name": "gpu-1"}, "status": bad})
    async with stewarding(api, tmp_path):
        await until(lambda: states(api) == {"gpu-1": "Healthy"})
        await asyncio.sleep(1.5)  # the steward sees what it wrote
        api.remove("devicehealths", "gpu-1")
        await until(lambda: states(api) == {"gpu-1": "Healthy"})
        api.remove("nodes", "gpu-1")
        await until(lambda: not healths(api))


@pytest.mark.long
@pytest.mark.parametrize("verb", ["patch", "watch"])
async def test_without_a_right_the_steward_goes_on(api: FakeApi, tmp_path: Path, verb: str) -> None:
    api.forbidden |= {(verb, "devicehealths"), ("list", "devicehealths")}
    api.put("nodes", node("gpu-1"))
    async with stewarding(api, tmp_path):
        await until(lambda: "leases" in api.objects)
        await asyncio.sleep(1.5)
        assert not healths(api)
