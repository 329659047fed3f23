"""`fettle hold`, `release` and `holds` against a stand-in for the API server; who obeys a hold is
tested on the control plane."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fettle.cli import holding
from fettle.model import BadInput
from tests.fettle.client.fake_api import FakeApi, fake_api

NOW = 1_790_000_000.0
OURS = {"key": "fettle.dev/hold", "value": "annotated", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("4h", 14_400), ("1d12h", 129_600), ("2026-09-21T15:00:00Z", 2800)],
)
def test_a_hold_ends_after_a_duration_or_at_a_time(text: str, seconds: float) -> None:
    assert holding.read_until(text, NOW) == NOW + seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("soon", "neither a duration such as 4h"),
        ("", "neither a duration"),
        ("4 h", "neither a duration"),
        ("999999999999999d", "neither a duration"),
        ("2020-01-01T00:00Z", "is 2020-01-01T00:00:00Z, which is past"),
        ("0s", "neither a duration"),
    ],
)
def test_a_time_that_is_none_or_past_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        holding.read_until(text, NOW)


class Caller:
    """Calls what the commands call, on the loop of the test."""

    def __init__(self, api: FakeApi, kubeconfig: Path) -> None:
        self.api = api
        self.kubeconfig = kubeconfig

    async def hold(self, where: str, until: float = math.inf) -> list[str]:
        return await holding.begin_hold(where, "fan", until, self.kubeconfig)

    async def release(self, where: str, by: str | None = None, *, all_: bool = False) -> list[str]:
        return await holding.end_holds(where, by, all_, self.kubeconfig)

    async def held(self) -> list[str]:
        found = await holding.find_holds(None, self.kubeconfig)
        return sorted(holding.where_held(one.node, one.hold.subject) for one in found)

    @property
    def node(self) -> Any:
        return self.api.objects["nodes"]["n"]


@pytest.fixture
async def caller(tmp_path: Path) -> AsyncIterator[Caller]:
    async with fake_api() as api:
        api.unserved.add("selfsubjectreviews")
        api.put(
            "nodes",
            {
                "metadata": {"name": "n", "annotations": {"fettle.dev/hold": "by hand"}},
                "spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]},
                "status": {"capacity": {"cpu": "8", "nvidia.com/gpu": "8"}},
            },
        )
        yield Caller(api, api.kubeconfig(tmp_path))


async def test_a_hold_names_the_kubeconfigs_user_where_the_server_does_not_say_who_asks(
    caller: Caller,
) -> None:
    said = await caller.hold("n", NOW * 2)
    assert said[0].startswith("n is held by fake until 2083-06-12T")
    key = next(
        k for k in caller.node["metadata"]["annotations"] if k.startswith("fettle.dev/hold-")
    )
    written = json.loads(caller.node["metadata"]["annotations"][key])
    assert written["by"] == "fake"
    assert written["since"][:4] == time.strftime("%Y")
    assert caller.node["spec"]["taints"] == [{"key": "other", "effect": "NoSchedule"}, OURS]


async def test_release_takes_away_what_is_ours_and_what_names_nobody(caller: Caller) -> None:
    annotations = caller.node["metadata"]["annotations"]
    annotations["fettle.dev/hold-x"] = '{"by": "bob", "reason": "riser"}'
    await caller.hold("n")
    said = await caller.release("n")
    assert "n is still held by bob: riser" in said
    assert list(caller.node["metadata"]["annotations"]) == ["fettle.dev/hold-x"]
    assert OURS in caller.node["spec"]["taints"]
    with pytest.raises(BadInput, match="not held by fake, but by bob: pass --by NAME"):
        await caller.release("n")
    await caller.release("n", all_=True)
    assert caller.node["metadata"]["annotations"] == {}
    assert OURS not in caller.node["spec"]["taints"]
    with pytest.raises(BadInput, match="n is not held"):
        await caller.release("n")


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ("3", "nvidia.com/gpu index:3"),
        ("index:3", "nvidia.com/gpu index:3"),
        ("nvidia.com/gpu/3", "nvidia.com/gpu index:3"),
        ("nvidia.com/gpu index:3", "nvidia.com/gpu index:3"),
        ("GPU-1a2b3c4d-0000", "nvidia.com/gpu GPU-1a2b3c4d-0000"),
        ("pci:0000:C4:00.0", "nvidia.com/gpu pci:0000:c4:00.0"),
    ],
)
async def test_a_unit_has_the_names_that_fettle_prints(
    caller: Caller, given: str, held: str
) -> None:
    said = await caller.hold(f"n/{given}")
    assert "a unit of a device plugin cannot be tainted" in said[1]
    assert await caller.held() == ["n", f"n/{held}"]
    await caller.release(f"n/{held}")
    assert await caller.held() == ["n"]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("m", "there is no node m"),
        ("", "write NODE or NODE/DEVICE"),
        ("nn", "there is no node nn; near: n"),
        ("n/gpu-3", "node n has no device 'gpu-3'; it has units of nvidia.com/gpu, such as"),
        ("n/8", "nvidia.com/gpu has 8 units on n: index:0 to index:7"),
        ("n/amd.com/gpu/1", "node n has no device 'amd.com/gpu/1'"),
    ],
)
async def test_what_is_not_there_is_refused_with_what_is(
    caller: Caller, where: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        await caller.hold(where)
    assert list(caller.node["metadata"]["annotations"]) == ["fettle.dev/hold"]


async def test_a_device_of_several_drivers_must_be_named_in_full(caller: Caller) -> None:
    for driver in ("a.com", "b.com"):
        spec = {"driver": driver, "nodeName": "n", "pool": {"name": "n"}}
        spec["devices"] = [{"name": "dev-0"}]  # type: ignore[assignment]
        caller.api.put("resourceslices", {"metadata": {"name": driver}, "spec": spec})
    with pytest.raises(BadInput, match=r"write one of a\.com/n/dev-0, b\.com/n/dev-0"):
        await caller.hold("n/dev-0")
    said = await caller.hold("n/a.com/n/dev-0")
    assert "Only Fettle obeys it" in said[1]
    assert await caller.held() == ["n", "n/a.com/n/dev-0"]
    await caller.release("n/dev-0")
    assert await caller.held() == ["n"]


async def test_holds_that_are_over_go_with_the_next_change(caller: Caller) -> None:
    annotations = caller.node["metadata"]["annotations"]
    annotations["fettle.dev/hold-x"] = '{"until": "2020-01-01T00:00:00Z"}'
    await caller.hold("n/3")
    assert "fettle.dev/hold-x" not in caller.node["metadata"]["annotations"]
    assert "fettle.dev/hold" in caller.node["metadata"]["annotations"]


async def test_operators_at_once_lose_nothing_of_each_other(caller: Caller) -> None:
    await asyncio.gather(*(caller.hold(f"n/{number}") for number in range(4)))
    assert len(await caller.held()) == 5
