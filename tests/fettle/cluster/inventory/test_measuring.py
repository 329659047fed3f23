"""What metrics show, folded in: of one replica that asks, and of one that follows it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fettle.api import DeviceHealth, Measured, Sample, kinds
from fettle.api.kinds import Kind
from fettle.cluster import EMPTY, Inventory
from fettle.config import HealthSettings, PrometheusSettings
from fettle.health import HealthBook, SignalRules, load_rules
from fettle.model import SOUND, Health, State
from fettle.pacing import run_within
from tests.prometheus.fleets import node, slice_of, uuid

RULES = load_rules()
NOW = 1_790_000_000.0
HEAT = "dcgm-thermal-violation"
LATCHED = "dcgm-row-remap-failed"


def sample(value: float, gpu: int = 1) -> Sample:
    return Sample({"UUID": f"GPU-{gpu}", "hostname": "n1", "gpu": str(gpu)}, value)


class Replica:
    """One process that knows the node n1 and its GPUs."""

    def __init__(self, *, asks: bool, rules: SignalRules = RULES) -> None:
        self.inventory = Inventory(
            HealthBook(HealthSettings(), rules),
            rules,
            prometheus=PrometheusSettings(url="http://prometheus"),
        )
        self.now = NOW
        node = {
            "metadata": {"name": "n1", "uid": "1"},
            "status": {
                "capacity": {"nvidia.com/gpu": "8"},
                "allocatable": {"nvidia.com/gpu": "8"},
            },
        }
        self.inventory.put(kinds.NODE, kinds.NODE.decode(msgspec.json.encode(node)), NOW)
        self.healths()
        if asks:
            self.inventory.measuring.begin(polls=True, now=NOW)

    def measure(self, found: Measured) -> None:
        self.inventory.measuring.measure(found, self.now)

    def healths(self) -> dict[str, Health]:
        list(self.inventory.refresh(self.now))
        view = self.inventory.view(EMPTY, synced=True, served={})
        assert view is not None
        units = view.nodes["n1"].plugins["nvidia.com/gpu"].units
        return {unit.unit: unit.health for unit in units}

    def health(self, gpu: int = 1) -> Health:
        return self.healths().get(f"GPU-{gpu}", SOUND)

    def stored(self, before: DeviceHealth | None = None) -> DeviceHealth:
        self.healths()
        made = self.inventory.recall("n1", before, self.now)
        assert made is not None
        decoded = kinds.DEVICE_HEALTH.decode(msgspec.json.encode(made))
        assert isinstance(decoded, DeviceHealth)
        return decoded

    def read(self, stored: DeviceHealth) -> None:
        self.inventory.put(kinds.DEVICE_HEALTH, stored, self.now)


def test_a_number_that_hardly_changes_is_not_said_anew() -> None:
    asking = Replica(asks=True)
    asking.measure(Measured(HEAT, (sample(0.35),)))
    said = asking.health()
    assert "35% of the time" in said.evidence[0].evidence.text
    asking.now += 60
    asking.measure(Measured(HEAT, (sample(0.38),)))
    assert asking.health() is said
    asking.measure(Measured(HEAT, (sample(0.6),)))
    assert "60% of the time" in asking.health().evidence[0].evidence.text


def test_of_what_is_no_number_the_evidence_stays_as_it_was() -> None:
    asking = Replica(asks=True)
    asking.measure(Measured(LATCHED, (sample(1),)))
    asking.measure(Measured(LATCHED, (), odd=(sample(float("nan")),), present=(sample(1),)))
    assert asking.health().state is State.UNHEALTHY
    asking.measure(Measured(LATCHED, (), present=(sample(0),)))
    assert asking.health().state is State.HEALTHY


def test_a_replica_that_does_not_ask_has_the_scores_of_the_one_that_does() -> None:
    asking, following = Replica(asks=True), Replica(asks=False)
    asking.measure(Measured(HEAT, (sample(0.6), sample(0.2, gpu=2))))
    first = asking.stored()
    following.read(first)
    assert {u: h.score for u, h in following.healths().items()} == {"GPU-1": 0.4, "GPU-2": 0.7}

    for each in (asking, following):
        each.now += 600
    asking.measure(Measured(HEAT, (sample(0.2, gpu=2),), present=(sample(0.0),)))
    second = asking.stored(first)
    following.read(second)
    assert following.health(2).score == 0.7
    assert following.health(1).score == asking.health(1).score > 0.85
    assert following.health(1).state is State.HEALTHY
    assert any("was until recently" in w.evidence.text for w in following.health(1).evidence)


@pytest.mark.parametrize("asks", [False, True])
def test_only_who_does_not_ask_ends_what_the_stored_object_does_not_have(*, asks: bool) -> None:
    replica = Replica(asks=True)
    replica.measure(Measured(LATCHED, (sample(1),)))
    stored = replica.stored()
    other = Replica(asks=False)
    other.read(stored)
    assert other.health().state is State.UNHEALTHY
    other.inventory.measuring.begin(polls=asks, now=NOW)
    empty = msgspec.structs.replace(
        stored.status, subjects=(), observed_time=datetime.fromtimestamp(NOW + 1, UTC)
    )
    empty = msgspec.structs.replace(empty, checksum=empty.true_checksum)
    other.read(msgspec.structs.replace(stored, status=empty))
    assert (other.health().state is State.UNHEALTHY) is asks


def test_the_next_leader_ends_what_it_took_over_by_its_first_complete_answer() -> None:
    first, second = Replica(asks=True), Replica(asks=False)
    first.measure(Measured(LATCHED, (sample(1),)))
    second.read(first.stored())
    second.inventory.measuring.begin(polls=True, now=NOW)
    assert second.inventory.measuring.ended(LATCHED, ()) != frozenset()
    second.measure(Measured(LATCHED, (), present=(), complete=True))
    assert second.health().state is State.UNHEALTHY  # it has no series now
    second.measure(Measured(LATCHED, (), present=(sample(0),), complete=True))
    assert second.health().state is State.HEALTHY


def test_of_what_began_while_nobody_asked_only_exporters_word_that_is_latched_counts() -> None:
    asking = Replica(asks=True)
    tenants = Sample({**sample(79, gpu=3).labels, "namespace": "tenant"}, 79)
    asking.measure(Measured("dcgm-xid", (), missed=(sample(79), sample(31, gpu=2), tenants)))
    healths = asking.healths()
    assert {unit: one.state for unit, one in healths.items()} == {"GPU-1": State.UNHEALTHY}
    assert "while metrics were not asked for" in str(healths["GPU-1"].evidence)


def test_the_next_leader_says_nothing_anew_of_what_is_known() -> None:
    first, second = Replica(asks=True), Replica(asks=False)
    first.measure(Measured("dcgm-xid", (sample(79),)))
    second.read(first.stored())
    before = second.health()
    second.inventory.measuring.begin(polls=True, now=NOW)
    second.measure(Measured("dcgm-xid", (), kept=(sample(79),), missed=(sample(79),), present=()))
    assert second.health().state is State.UNHEALTHY
    assert second.health().evidence == before.evidence


@pytest.mark.parametrize("kind", ["level", "latched"])
def test_what_a_rule_said_is_over_once_somebody_has_taken_it_back(
    tmp_path: Path, kind: str
) -> None:
    rows = tmp_path / "rules.yaml"
    rows.write_text(
        "metrics: [{name: too-hot, exporter: dcgm, family: thermal, weight: 0.9, source: a slip,"
        f" kind: {kind}, query: max by ($device) (DCGM_FI_DEV_GPU_TEMP) > 30}}]"
    )
    before = Replica(asks=True, rules=load_rules(rows))
    before.measure(Measured("too-hot", (sample(60),)))
    assert before.health().state is State.UNHEALTHY
    successor = Replica(asks=False)
    successor.read(before.stored())
    assert successor.health().state is State.UNHEALTHY
    successor.inventory.measuring.begin(polls=True, now=NOW)
    assert successor.health().state is State.HEALTHY


def test_a_process_that_starts_without_prometheus_lets_fade_what_was_stored_of_it() -> None:
    asking = Replica(asks=True)
    asking.measure(Measured(HEAT, (sample(0.6),)))
    stored = asking.stored()
    for url, fades in (("", True), ("http://prometheus", False)):
        started = Inventory(
            HealthBook(HealthSettings(), RULES), RULES, prometheus=PrometheusSettings(url=url)
        )
        started.put(kinds.DEVICE_HEALTH, stored, NOW)
        raw = {
            "metadata": {"name": "n1", "uid": "1"},
            "status": {k: {"nvidia.com/gpu": "8"} for k in ("capacity", "allocatable")},
        }
        started.put(kinds.NODE, kinds.NODE.decode(msgspec.json.encode(raw)), NOW)
        list(started.refresh(NOW))
        view = started.view(EMPTY, synced=True, served={})
        assert view is not None
        (unit,) = view.nodes["n1"].plugins["nvidia.com/gpu"].units
        assert unit.health.score == 0.4
        assert ("no longer reported" in unit.health.evidence[0].evidence.text) is fades


@pytest.mark.parametrize(
    "named",
    [
        {"UUID": "GPU-dra-2", "hostname": "dra"},
        {"UUID": "GPU-dra-2", "hostname": "the exporter's pod"},
        {"pci_bus_id": "00000000:12:00.0", "hostname": "dra"},
        {"gpu": "2", "hostname": "dra"},
        {"gpu": "2", "instance": "10.1.2.3:9400"},
        {"UUID": "GPU-dra-2", "hostname": "dra", "GPU_I_ID": "3", "GPU_I_PROFILE": "1g.10gb"},
    ],
    ids=str,
)
def test_a_series_finds_its_dra_device_by_whatever_names_it(named: dict[str, str]) -> None:
    replica = Replica(asks=True)
    assert scores_after(replica, named) == {"gpu-0": 1.0, "gpu-1": 1.0, "gpu-2": 0.4, "gpu-3": 1.0}
    assert replica.inventory.measuring.notes(alerts=False) == []


@pytest.mark.parametrize(
    ("named", "counts"),
    [
        ({"gpu": "2", "instance": "10.1.2.3:9400"}, False),
        ({"UUID": "GPU-dra-2", "hostname": "the exporter's pod"}, False),
        ({"UUID": "GPU-dra-2", "hostname": "dra"}, True),
        ({"gpu": "2", "hostname": "dra"}, True),
    ],
    ids=str,
)
def test_a_host_that_two_nodes_claim_is_nobodys(named: dict[str, str], *, counts: bool) -> None:
    """Addresses and UUIDs are each kubelet's word; a Node's own name is its alone."""
    replica = Replica(asks=True)
    put_node(replica, "evil", labels={"kubernetes.io/hostname": "dra"})
    twin = slice_of("dra", 4)
    twin["metadata"]["name"] = "twin"
    twin["spec"] |= {"nodeName": "evil", "pool": twin["spec"]["pool"] | {"name": "evil"}}
    replica.inventory.put(kinds.SLICE, kinds.SLICE.decode(msgspec.json.encode(twin)), NOW)
    assert scores_after(replica, named)["gpu-2"] == (0.4 if counts else 1.0)


def put_node(replica: Replica, name: str, labels: dict[str, str] | None = None) -> None:
    raw = {
        "metadata": {"name": name, "uid": name, "labels": labels or {}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.1.2.3"}]},
    }
    replica.inventory.put(kinds.NODE, kinds.NODE.decode(msgspec.json.encode(raw)), NOW)


def scores_after(replica: Replica, named: dict[str, str], name: str = "dra") -> dict[str, float]:
    """Of the four devices of a node, after a series says something of one."""
    put_node(replica, name)
    published = msgspec.json.encode(slice_of(name, 4))
    replica.inventory.put(kinds.SLICE, kinds.SLICE.decode(published), NOW)
    replica.measure(Measured(HEAT, (Sample(named, 0.6),)))
    list(replica.inventory.refresh(NOW))
    view = replica.inventory.view(EMPTY, synced=True, served={})
    assert view is not None
    (pool,) = view.nodes[name].pools
    return {one.id.device: one.health.score for one in pool.devices}


def test_a_uuid_in_other_case_names_the_same_device_also_without_its_node() -> None:
    named = {"UUID": "gpu-DECADE00-2", "hostname": "the exporter's pod"}
    scores = scores_after(Replica(asks=True), named, name="decade00")
    assert scores == {"gpu-0": 1.0, "gpu-1": 1.0, "gpu-2": 0.4, "gpu-3": 1.0}


@pytest.mark.parametrize("blank", [2147483632.0, 140737488355328.0, -79.0, 79.5, 0.5])
def test_what_can_be_no_xid_says_nothing(blank: float) -> None:
    asking = Replica(asks=True)
    asking.measure(Measured("dcgm-xid", (sample(blank),)))
    assert asking.health() is SOUND
    asking.measure(Measured("dcgm-xid", (sample(79.0),)))
    assert asking.health().score == 0.0


def test_labels_that_no_gpu_can_have_name_none() -> None:
    asking = Replica(asks=True)
    odd = {"UUID": "G" * 20_000, "hostname": "n1", "gpu": "6\u001b[31m\u202e"}
    asking.measure(Measured(HEAT, (Sample(odd, 0.9),)))
    assert not any(len(name) > 100 or "\u001b" in name for name in asking.healths())


@pytest.mark.usefixtures("turns_at_each_pause")
async def test_rules_that_are_looked_at_together_each_find_all_their_devices() -> None:
    """By UUID alone, which takes a look at all that is published, with a rest at each pause."""
    asking = Replica(asks=True)
    names = [f"n{number}" for number in range(40)]
    for name in names:
        put(asking, kinds.NODE, node(name))
        put(asking, kinds.SLICE, slice_of(name, 4))
    series = tuple(Sample({"UUID": uuid(name, 0)}, 79.0) for name in names)
    measuring = asking.inventory.measuring

    async def measure(rule: str) -> None:
        await run_within(lambda: measuring.measure(Measured(rule, series), NOW))

    await asyncio.gather(*map(measure, (HEAT, LATCHED, "dcgm-xid")))
    assert not any("no device that is known" in note for note in measuring.notes(alerts=False))


def put(replica: Replica, kind: Kind, raw: dict[str, Any]) -> None:
    replica.inventory.put(kind, kind.decode(msgspec.json.encode(raw)), NOW)
