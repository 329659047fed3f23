"""What the chart has for Prometheus and Grafana asks for metrics that Fettle has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import promql_parser
import pytest
import yaml

from tests.deploy import charting, rendering
from tests.deploy.charting import objects

FILES = charting.CHART / "files"
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
PANELS = DASHBOARD["panels"]
MONITORING = (rendering.DEPLOY.parent / "docs" / "monitoring.md").read_text()
KNOWN = {
    name
    for row in re.findall(r"^\| (`fettle_.*?) \|", MONITORING, re.M)
    for name in re.findall(r"`(fettle_[a-z_]+)`", row)
}
COLUMNS = 24


def queries() -> Iterator[tuple[str, str]]:
    """Of the dashboard and the alerts, with what asks."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")
    for group in yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("asks", "query"), [*queries()])
def test_each_query_is_promql_about_metrics_that_exist(asks: str, query: str) -> None:
    promql_parser.parse(query)
    named = {re.sub(r"_(bucket|sum|count)$", "", n) for n in re.findall(r"fettle_\w+", query)}
    assert named, asks
    assert named <= KNOWN, asks


def test_the_dashboard_is_one_that_grafana_loads() -> None:
    """The rules of its model that matter to what we use of it. The whole file was held against the
    JSON schema of Grafana's foundation SDK when it was written."""
    assert DASHBOARD["uid"] == "fettle"
    assert DASHBOARD["schemaVersion"] >= 39
    (variable,) = DASHBOARD["templating"]["list"]
    assert (variable["type"], variable["query"]) == ("datasource", "prometheus")
    source = {"type": "prometheus", "uid": f"${{{variable['name']}}}"}
    assert [panel["id"] for panel in PANELS] == list(range(1, len(PANELS) + 1))
    for panel in PANELS:
        assert panel["type"] in ("stat", "timeseries")
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) > 0


def test_panels_neither_overlap_nor_stick_out() -> None:
    cells = {panel["title"]: covered(panel["gridPos"]) for panel in PANELS}
    assert len(cells) == len(PANELS)
    assert all(x < COLUMNS for found in cells.values() for x, _ in found)
    assert not [pair for pair in combinations(cells, 2) if cells[pair[0]] & cells[pair[1]]]


def covered(position: dict[str, int]) -> set[tuple[int, int]]:
    columns = range(position["x"], position["x"] + position["w"])
    rows = range(position["y"], position["y"] + position["h"])
    return {(x, y) for x in columns for y in rows}


def test_the_dashboard_shows_what_an_operator_asks_first() -> None:
    asked = " ".join(query for _, query in queries())
    for metric in (
        "fettle_ready",
        "fettle_devices",
        "fettle_decision_reasons_total",
        "fettle_pods_at_risk",
        "fettle_breaker_open",
        "fettle_extender_request_seconds_bucket",
        "fettle_webhook_review_seconds_bucket",
    ):
        assert metric in asked


@pytest.mark.helm
@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_a_monitor_finds_every_pod_of_fettles_by_a_port_that_it_has(kind: str) -> None:
    for extender in ("DaemonSet", "Deployment"):
        found = objects({"monitoring": {"monitor": kind}, "extender": {"type": extender}})
        (monitor,) = (o for o in found if o["kind"] == kind)
        spaces = monitor["spec"]["namespaceSelector"]["matchNames"]
        selector = monitor["spec"]["selector"]["matchLabels"]
        if kind == "ServiceMonitor":
            services = [o for o in found if o["kind"] == "Service" and has(o["metadata"], selector)]
            assert [one["metadata"]["namespace"] for one in services] == spaces
            assert all(one["spec"]["ports"][0]["name"] == "browse" for one in services)
            selector = services[0]["spec"]["selector"]
        for workload in (o for o in found if o["kind"] in ("Deployment", "DaemonSet")):
            template = workload["spec"]["template"]
            (container,) = template["spec"]["containers"]
            assert workload["metadata"]["namespace"] in spaces
            assert has(template["metadata"], selector)
            assert "browse" in {port["name"] for port in container["ports"]}
            (listen,) = (a for a in container["args"] if a.startswith("--browse-listen="))
            assert listen.startswith("--browse-listen=:"), "Prometheus is on no loopback of ours"


def has(metadata: Any, labels: dict[str, str]) -> bool:
    found: dict[str, str] = metadata.get("labels", {})
    return labels.items() <= found.items()


@pytest.mark.helm
@pytest.mark.usefixtures("helm")
def test_the_rules_are_those_that_deploy_has_and_the_dashboard_is_what_sidecars_find() -> None:
    found = objects({"monitoring": {"rules": True, "dashboard": True, "labels": {"release": "p"}}})
    (rules,) = (o for o in found if o["kind"] == "PrometheusRule")
    shipped = yaml.safe_load((rendering.DEPLOY / rendering.ALERTS).read_text())
    assert rules["spec"] == shipped
    assert rules["metadata"]["labels"] == {"release": "p"}
    (config_map,) = (o for o in found if o["metadata"]["name"] == "fettle-dashboard")
    assert json.loads(config_map["data"]["fettle.json"]) == DASHBOARD
    assert config_map["metadata"]["labels"] == {"grafana_dashboard": "1"}
