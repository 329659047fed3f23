"""DeviceHealth objects that the last version wrote, before evidence was stored as values.

`written_before.json` is what it stored, what was in the cluster then, and what it said of that once
it had started again.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from fettle.api import DeviceHealth, kinds
from fettle.config import HealthSettings, PrometheusSettings
from fettle.explain.pods import plain_health
from fettle.health import HealthBook, load_rules
from tests.fettle.cluster.inventory.fleets import Fleet
from tests.fettle.cluster.inventory.test_device_healths import stored

BEFORE = json.loads((Path(__file__).parent / "written_before.json").read_text())
ROWS = """
alerts:
  - {name: gpu-burns, alert: GPU*Hot, exporter: dcgm, family: thermal, weight: 0.5, source: ours}
"""
KINDS = {"NODE": kinds.NODE, "SLICE": kinds.SLICE, "CLAIM": kinds.CLAIM, "POD": kinds.POD}
KINDS |= {"TAINT_RULE": kinds.TAINT_RULE}


@pytest.fixture
def written() -> DeviceHealth:
    decoded = kinds.DEVICE_HEALTH.decode(json.dumps(BEFORE["stored"]).encode())
    assert isinstance(decoded, DeviceHealth)
    return decoded


def started_with(health: DeviceHealth, folder: Path) -> Fleet:
    """A process that starts, and would hear metrics and alerts from another one."""
    rows = folder / "rules.yaml"
    rows.write_text(ROWS)
    rules = load_rules(rows)
    book = HealthBook(HealthSettings(), rules)
    fleet = Fleet(book, rules=rules, prometheus=PrometheusSettings(url="http://p"), alerts=True)
    fleet.now = BEFORE["at"]
    fleet.inventory.put(kinds.DEVICE_HEALTH, health, fleet.now)
    for one in BEFORE["objects"]:
        fleet.put(KINDS[one["kind"]], one["object"])
    fleet.look()
    return fleet


def said(fleet: Fleet) -> list[dict[str, Any]]:
    """All evidence, in words."""
    node = fleet.view.nodes["n"]
    healths = [node.health, *(unit.health for one in node.plugins.values() for unit in one.units)]
    healths += [device.health for pool in node.pools for device in pool.devices]
    kept = BEFORE["said"][0].keys()
    found = (each for health in healths for each in plain_health(health)["evidence"])
    distinct = {tuple(each[name] for name in kept) for each in found}
    return [dict(zip(kept, each, strict=True)) for each in sorted(distinct)]


def test_what_the_last_version_stored_is_believed_and_reads_the_same(
    written: DeviceHealth, tmp_path: Path
) -> None:
    assert written.is_ours
    assert said(started_with(written, tmp_path)) == BEFORE["said"]


def test_it_reads_the_same_once_it_is_stored_anew(written: DeviceHealth, tmp_path: Path) -> None:
    anew = stored(started_with(written, tmp_path), before=written)
    assert anew != written
    assert said(started_with(anew, tmp_path)) == BEFORE["said"]
