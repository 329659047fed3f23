"""Alertmanager's webhook as evidence: one message after the other."""

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from fettle.api import Alerted, Finding, Measured, Sample, Unmeasured, kinds
from fettle.cluster import EMPTY, Inventory
from fettle.cluster.feeds import Alerts
from fettle.config import AlertmanagerSettings, HealthSettings, PrometheusSettings
from fettle.explain.recoveries import all_clear_of
from fettle.health import Awaited, HealthBook, load_rules, metrics
from fettle.model import BadInput, Health, SettingsError, State
from fettle.observing import AlertMetrics

ROWS = """
alerts:
  - name: gpu-burns
    alert: GPU*Hot
    exporter: dcgm
    family: thermal
    weight: 0.5
    source: our alerting rules
"""
LABELS = {
    "alertname": "GPUTooHot",
    "UUID": "GPU-1",
    "hostname": "n1",
    "gpu": "1",
    "namespace": "gpu-operator",
}
NOW = 1_790_000_000.0
NONE = {"placed": 0, "unplaced": 0, "unknown": 0, "malformed": 0}
PLACED = NONE | {"placed": 1}


class Desk:
    """A node with GPUs, and the process that takes alerts about it."""

    def __init__(
        self,
        folder: Path,
        *,
        ours: bool = True,
        token: str = "",
        polled: str = "",
        rules: str = ROWS,
    ) -> None:
        rows = folder / "rules.yaml"
        rows.write_text(rules)
        self.rules = load_rules(rows)
        book = HealthBook(HealthSettings(), self.rules)
        self.inventory = Inventory(
            book, self.rules, prometheus=PrometheusSettings(url=polled), alerts=True
        )
        self.now = 0.0
        self.put_node("1")
        settings = AlertmanagerSettings(listen="127.0.0.1:0", bearer_token_file=token)

        async def is_ours() -> bool:
            return ours

        self.counted = AlertMetrics(CollectorRegistry())
        self.alerts = Alerts(
            settings,
            self.rules,
            self.hear,
            self.inventory.measuring,
            is_ours,
            self.counted,
            lambda: self.now,
        )

    def put_node(self, uid: str, boot: str = "a", name: str = "n1", conditions: Any = ()) -> None:
        node = {
            "metadata": {"name": name, "uid": uid},
            "status": {
                "nodeInfo": {"bootID": boot},
                "conditions": conditions,
                "capacity": {"nvidia.com/gpu": "8"},
                "allocatable": {"nvidia.com/gpu": "8"},
            },
        }
        raw = msgspec.json.encode(node)
        self.inventory.put(kinds.NODE, kinds.NODE.decode(raw), NOW + self.now)

    async def hear(self, found: Finding) -> None:
        measuring, now = self.inventory.measuring, NOW + self.now
        match found:
            case Measured():
                measuring.measure(found, now)
            case Alerted(alerts):
                measuring.report_alerts(alerts, now)
            case Unmeasured(rule, one):
                measuring.unmeasure(rule, one, now)

    def say(self, *alerts: dict[str, Any]) -> dict[str, int]:
        return asyncio.run(self.alerts.handle(json.dumps(message(*alerts)).encode()))

    def states(self, node: str = "n1") -> dict[str, State]:
        self.health()
        view = self.inventory.view(EMPTY, synced=True, served={})
        assert view is not None
        units = view.nodes[node].plugins["nvidia.com/gpu"].units
        return {unit.unit: unit.health.state for unit in units}

    def health(self) -> Health | None:
        list(self.inventory.refresh(NOW + self.now))
        view = self.inventory.view(EMPTY, synced=True, served={})
        assert view is not None
        units = view.nodes["n1"].plugins["nvidia.com/gpu"].units
        return units[0].health if units else None


def alert(status: str = "firing", **labels: str) -> dict[str, Any]:
    return {
        "status": status,
        "labels": {**LABELS, **labels},
        "annotations": {"summary": "the GPU is at 99 degrees"},
        "startsAt": "2026-09-01T10:00:00Z",
        "fingerprint": f"{zlib.crc32(repr(sorted(labels.items())).encode()):016x}",
    }


def message(*alerts: dict[str, Any], version: str = "4") -> dict[str, Any]:
    return {"version": version, "status": "firing", "receiver": "fettle", "alerts": alerts}


def test_an_alert_is_evidence_until_it_is_resolved(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.say(alert()) == PLACED
    hot = desk.health()
    assert hot is not None
    assert (hot.score, hot.state) == (0.5, State.DEGRADED)
    assert "alert GPUTooHot: the GPU is at 99 degrees" in hot.evidence[0].evidence.text
    desk.say(alert())
    assert desk.health() == hot
    desk.say(alert("resolved"))
    cool = desk.health()
    assert cool is not None
    assert (cool.state, cool.score > 0.85) == (State.HEALTHY, True)


def test_an_alert_about_one_gpu_ends_no_alert_about_another(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.say(alert())
    desk.say(alert(UUID="GPU-2", gpu="2"))
    desk.say(alert("resolved", UUID="GPU-2", gpu="2"))
    still = desk.health()
    assert still is not None
    assert still.score == 0.5
    assert not any("no longer reported" in w.evidence.text for w in still.evidence)


def test_of_two_alerts_about_one_gpu_each_stands_until_it_is_resolved_itself(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    desk.say(alert())
    desk.say(alert(severity="page"))
    desk.say(alert("resolved"))
    still = desk.health()
    assert still is not None
    assert still.score == 0.5
    assert not [w for w in still.evidence if w.weight == 0.5 and "recently" in w.evidence.text]
    desk.say(alert("resolved", severity="page"))
    cool = desk.health()
    assert cool is not None
    assert cool.state is State.HEALTHY


def test_an_alert_of_a_shipped_rule_stands_whatever_prometheus_answers(tmp_path: Path) -> None:
    desk = Desk(tmp_path, polled="http://p")
    rule = "dcgm-thermal-violation"
    hot = alert(fettleRule=rule)
    hot["annotations"]["value"] = "0.6"
    desk.say(hot)
    asyncio.run(desk.hear(Measured(rule, (), present=(Sample(LABELS, 0.0),))))
    found = desk.health()
    assert found is not None
    assert found.score == 0.4
    asyncio.run(desk.hear(Measured(rule, (Sample(LABELS, 0.6),))))
    desk.say(hot | {"status": "resolved"})
    found = desk.health()
    assert found is not None
    assert found.score == 0.4
    asyncio.run(desk.hear(Measured(rule, (), present=(Sample(LABELS, 0.0),))))
    found = desk.health()
    assert found is not None
    assert found.state is State.HEALTHY


def test_that_an_alert_is_resolved_does_not_say_that_what_needs_a_reset_was_repaired(
    tmp_path: Path,
) -> None:
    """The series of a GPU that fell off the bus end, and so does the alert."""
    desk = Desk(tmp_path)
    lost = alert(alertname="FettleDcgmXid", fettleRule="dcgm-xid")
    lost["annotations"]["value"] = "79"
    desk.say(lost)
    desk.say(lost | {"status": "resolved"})
    assert desk.states() == {"GPU-1": State.UNHEALTHY}
    desk.now = 60.0
    desk.put_node("1", boot="b")
    assert desk.states() == {"GPU-1": State.HEALTHY}


def test_an_alert_about_a_device_that_is_not_known_is_counted_listed_and_tried_again(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    early = alert(hostname="n2")
    assert desk.say(early) == NONE | {"unplaced": 1}
    (note,) = desk.alerts.notes()
    assert "alerts: 1 alerts of rule gpu-burns name no device that is known here, such as" in note
    assert 'hostname="n2"' in note
    desk.put_node("2", name="n2")
    desk.now = 31.0
    asyncio.run(desk.alerts.look())
    assert desk.states("n2") == {"GPU-1": State.DEGRADED}
    assert desk.alerts.notes() == []
    desk.say(early | {"status": "resolved"})
    assert desk.states("n2") == {"GPU-1": State.HEALTHY}


def test_the_next_leader_knows_each_alert_that_still_fires(tmp_path: Path) -> None:
    first, second = Desk(tmp_path), Desk(tmp_path)
    first.say(alert())
    first.say(alert(severity="page"))
    first.health()
    stored = first.inventory.recall("n1", None, NOW)
    raw = msgspec.json.encode(stored)
    second.inventory.put(kinds.DEVICE_HEALTH, kinds.DEVICE_HEALTH.decode(raw), NOW)
    asyncio.run(second.alerts.look())
    second.say(alert("resolved"))
    assert second.states() == {"GPU-1": State.DEGRADED}
    second.say(alert("resolved", severity="page"))
    assert second.states() == {"GPU-1": State.HEALTHY}


def test_what_an_alert_says_of_a_gpu_joins_what_the_node_says_of_its_index(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    bad = {
        "type": "GpuMemWatch",
        "status": "True",
        "message": "ErrorCode:DCGM_FR_X GPU:1 bad Recommended Action=NONE;",
    }
    desk.put_node("1", conditions=[bad])
    assert desk.states() == {"index:1": State.UNHEALTHY}
    desk.say(alert())
    assert desk.states() == {"GPU-1": State.UNHEALTHY}
    desk.say(alert("resolved"))
    assert desk.states()["index:1"] is State.UNHEALTHY


def test_people_read_that_an_alert_is_to_be_resolved(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.say(alert())
    found = desk.health()
    assert found is not None
    (heaviest, *_) = found.evidence
    assert str(heaviest.evidence.source) == "alert gpu-burns"
    words = all_clear_of(Awaited(heaviest.evidence, ""))
    assert words.startswith("the alert is resolved (Alertmanager gpu-burns ")
    assert words.endswith(" on n1)")


def test_an_alert_without_a_fingerprint_is_known_by_its_labels(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for status, severity in (("firing", "a"), ("firing", "b"), ("resolved", "a")):
        desk.say(alert(status, severity=severity) | {"fingerprint": ""})
    assert desk.states() == {"GPU-1": State.DEGRADED}


def test_an_alert_that_no_row_names_counts_for_nothing_and_is_listed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.say(alert(alertname="Watchdog")) == NONE | {"unknown": 1}
    assert desk.health() is None
    assert "Watchdog (1)" in desk.alerts.notes()[0]


def test_an_alert_of_a_tenants_namespace_refuses_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.say(alert(namespace="tenant"))
    found = desk.health()
    assert found is not None
    assert (found.proven, found.state) == (1.0, State.HEALTHY)


MERGED = """
metrics:
  - {name: warm, exporter: dcgm, query: max by (UUID) (x) > 1, family: thermal, weight: 0.9,
     source: us}
  - {name: kept, exporter: dcgm, query: max by ($device) (x) > 1, family: thermal, weight: 0.9,
     source: us}
"""


@pytest.mark.parametrize(
    ("rows", "labels", "state"),
    [
        (ROWS, {}, State.HEALTHY),
        (f"{ROWS}    tenant_caused: false\n", {}, State.DEGRADED),
        (MERGED, {"fettleRule": "warm"}, State.HEALTHY),
        (MERGED, {"fettleRule": "kept"}, State.UNHEALTHY),
    ],
)
def test_an_alert_without_a_namespace_counts_in_full_only_where_none_can_have_been_dropped(
    tmp_path: Path, rows: str, labels: dict[str, str], state: State
) -> None:
    desk = Desk(tmp_path, rules=rows)
    said = alert(**labels)
    del said["labels"]["namespace"]
    desk.say(said)
    found = desk.health()
    assert found is not None
    assert (found.state, found.proven == 1.0) == (state, state is State.HEALTHY)
    is_named = any("that name no namespace only lower" in note for note in desk.alerts.notes())
    assert is_named is (state is State.HEALTHY)


def test_a_rule_that_fettle_printed_counts_as_that_rule_with_its_value(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    printed = alert(alertname="FettleDcgmThermalViolation", fettleRule="dcgm-thermal-violation")
    printed["annotations"]["value"] = "0.6"
    desk.say(printed)
    found = desk.health()
    assert found is not None
    assert found.score == 0.4
    assert "throttled by heat 60% of the time" in found.evidence[0].evidence.text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "not a message of Alertmanager's webhook"),
        (b"{}", "version '' of Alertmanager's webhook is not known"),
        (json.dumps(message(version="5")).encode(), "version '5'"),
        (b'{"version":"4","alerts":[{"labels":7}]}', "Expected `object`"),
        (json.dumps(message(alert("weird"))).encode(), "status 'weird' is neither firing nor"),
        (json.dumps(message(alert(""))).encode(), "none of the 1 alerts can be read: status ''"),
    ],
)
def test_what_is_no_message_is_refused_with_a_reason(tmp_path: Path, body: bytes, why: str) -> None:
    with pytest.raises(BadInput) as raised:
        asyncio.run(Desk(tmp_path).alerts.handle(body))
    assert why in str(raised.value)


def test_alerts_that_cannot_be_read_are_counted_and_take_no_others_along(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.say(alert("weird"), {"labels": 7}, alert()) == PLACED | {"malformed": 2}
    assert desk.states() == {"GPU-1": State.DEGRADED}
    (note,) = desk.alerts.notes()
    assert note.startswith("alerts that cannot be read, so they count for nothing: status 'weird'")


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"summary": "hot", "description": "very"}, "alert GPUTooHot: hot"),
        ({"message": "hot"}, "alert GPUTooHot: hot"),
        ({}, "alert GPUTooHot: gpu-burns"),
    ],
)
def test_an_alert_says_something_whatever_annotations_it_has(
    tmp_path: Path, annotations: dict[str, str], text: str
) -> None:
    desk = Desk(tmp_path)
    desk.say(alert() | {"annotations": annotations})
    found = desk.health()
    assert found is not None
    assert found.evidence[0].evidence.text == text


def test_only_who_presents_the_token_may_tell_and_only_the_leader_takes_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")

    async def statuses(desk: Desk) -> list[int]:
        found = []
        async with TestClient(TestServer(desk.alerts.make_app())) as client:
            keeping = asyncio.create_task(desk.alerts.keep())
            await asyncio.sleep(0.05)
            for given in ("", "Bearer no", "Bearer \udcff\udcfe", "Bearer s3cret"):
                headers = {"Authorization": given} if given else {}
                reply = await client.post("/alerts", json=message(alert()), headers=headers)
                found.append(reply.status)
            keeping.cancel()
        return found

    leader, follower = (Desk(tmp_path, ours=ours, token=str(token)) for ours in (True, False))
    assert asyncio.run(statuses(leader)) == [401, 401, 401, 200]
    assert asyncio.run(statuses(follower)) == [401, 401, 401, 503]
    assert (leader.health() is None, follower.health() is None) == (False, True)


def test_an_alert_that_is_not_repeated_for_hours_fades(tmp_path: Path) -> None:
    desk = Desk(tmp_path)

    async def hours(number: int) -> None:
        for _ in range(number):
            desk.now += 3600
            await desk.alerts.look()

    asyncio.run(hours(1))
    desk.say(alert())
    asyncio.run(hours(5))
    assert (found := desk.health()) is not None
    assert found.score == 0.5
    asyncio.run(hours(3))
    assert (found := desk.health()) is not None
    assert found.score > 0.6
    assert "no longer reported" in found.evidence[0].evidence.text


def test_a_row_that_names_an_unknown_exporter_is_refused(tmp_path: Path) -> None:
    rows = tmp_path / "rules.yaml"
    rows.write_text(ROWS.replace("exporter: dcgm", "exporter: dgcm"))
    with pytest.raises(SettingsError, match="unknown exporter 'dgcm'; expected one of dcgm, amd"):
        load_rules(rows)


def test_every_rule_is_printed_as_an_alerting_rule(tmp_path: Path) -> None:
    rules = load_rules()
    text = yaml.safe_dump(metrics.alerting_rules(rules))
    (group,) = yaml.safe_load(text)["groups"]
    assert [r["labels"]["fettleRule"] for r in group["rules"]] == list(rules.metrics)
    assert {r["alert"] for r in group["rules"]} >= {"FettleDcgmXid", "FettleNodeTemperature"}


def test_another_node_of_the_same_name_inherits_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.say(alert(fettleRule="dcgm-row-remap-failed"))
    assert (found := desk.health()) is not None
    assert found.state is State.UNHEALTHY
    desk.now = 60.0
    desk.put_node("2")
    assert desk.health() is None


def test_a_reboot_ends_what_was_latched_of_a_gpu_that_metrics_do_not_show_any_more(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path, polled="http://p")
    for code in (79.0, 48.0):  # off the bus, which a reboot mends; a memory error, which it may not
        lost = Sample({**LABELS, "UUID": f"GPU-{code:.0f}", "gpu": f"{code:.0f}"}, code)
        asyncio.run(desk.hear(Measured("dcgm-xid", (lost,), complete=False)))
    asyncio.run(desk.hear(Measured("dcgm-xid", (), present=())))
    assert desk.states() == {"GPU-79": State.UNHEALTHY, "GPU-48": State.UNHEALTHY}
    desk.now = 60.0
    desk.put_node("1", boot="b")
    assert desk.states() == {"GPU-79": State.HEALTHY, "GPU-48": State.UNHEALTHY}


@pytest.mark.parametrize("value", ["", "NaN", "many"])
def test_an_alert_without_a_number_weighs_as_little_as_its_rule_allows(
    tmp_path: Path, value: str
) -> None:
    desk = Desk(tmp_path)
    hot = alert(fettleRule="dcgm-thermal-violation")
    hot["annotations"]["value"] = value
    assert desk.say(hot) == PLACED
    health = desk.health()
    assert health is not None
    assert health.score == 0.75
    assert "an unknown share" in health.evidence[0].evidence.text
