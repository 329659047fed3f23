"""The alerts about Fettle itself that are shipped: when a real Prometheus fires them."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.prometheus.server import PROMTOOL, needs_prometheus

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/metrics/fettle-alerts.yaml"
RULES: dict[str, Any] = {
    rule["alert"]: rule
    for group in yaml.safe_load(FILE.read_text())["groups"]
    for rule in group["rules"]
}
PARTS = 'fettle_part_errors_total{part="node marks", instance="a:8443", pod="fettle-1"}'
DAY = 24 * 3600

pytestmark = [pytest.mark.prometheus, needs_prometheus]


class Case(NamedTuple):
    """Samples every 30 s of series whose alert fires after `minutes`, and of such as fire none."""

    fires: Mapping[str, str]
    quiet: Mapping[str, str]
    minutes: int = 29


def rounds(complete: str, incomplete: str) -> Mapping[str, str]:
    name = "fettle_prometheus_rounds_total"
    return {f'{name}{{result="complete"}}': complete, f'{name}{{result="incomplete"}}': incomplete}


def answered_within(name: str, by: str, quick: str, all_of_them: str) -> Mapping[str, str]:
    """Of so many requests some within a tenth of a second, and all within two seconds."""
    les = {"0.1": quick, "1.0": quick, "2.0": all_of_them, "+Inf": all_of_them}
    return {f'{name}_bucket{{{by}, le="{le}"}}': counts for le, counts in les.items()}


FILTER = answered_within("fettle_extender_request_seconds", 'verb="filter"', "0x60", "0+9x60")
QUICK_FILTER = answered_within("fettle_extender_request_seconds", 'verb="filter"', *["0+9x60"] * 2)
REVIEW = answered_within("fettle_webhook_review_seconds", 'webhook="mutate"', "0x60", "0+9x60")
QUICK_REVIEW = answered_within("fettle_webhook_review_seconds", 'webhook="mutate"', *["0+9x60"] * 2)

CASES = {
    "FettleNotReady": Case({"fettle_ready": "0x60"}, {"fettle_ready": "1x50 0x5"}, 27),
    "FettleSettingsNotRead": Case(
        {"fettle_settings_last_reload_successful": "1x5 0x60"},
        {"fettle_settings_last_reload_successful": "1x60"},
    ),
    "FettleCrashed": Case(
        {"fettle_serving_process_restarts_total": "0x40 1x20"},
        {"fettle_serving_process_restarts_total": "1x60"},
    ),
    "FettleSlow": Case(FILTER, QUICK_FILTER),
    "FettleExtenderErrors": Case(
        {'fettle_extender_decisions_total{verb="filter", result="error"}': "1+1x60"},
        {'fettle_extender_decisions_total{verb="filter", result="passed"}': "1+1x60"},
    ),
    "FettleWebhookErrors": Case(
        {'fettle_webhook_reviews_total{webhook="mutate", result="failed"}': "1+1x60"},
        {'fettle_webhook_reviews_total{webhook="mutate", result="denied"}': "1+1x60"},
    ),
    "FettleWebhookSlow": Case(REVIEW, QUICK_REVIEW),
    "FettleBreakerOpen": Case(
        {'fettle_breaker_open{policy="p", pool="gpu", rule="r"}': "1x60"},
        {'fettle_breaker_open{policy="p", pool="gpu", rule="r"}': "0x50 1x4"},
        26,
    ),
    "FettleDevicesMissing": Case(
        {'fettle_devices_missing{kind="gpu"}': "2x60"},
        {'fettle_devices_missing{kind="gpu"}': "0x20 1x3 0x40"},
    ),
    "FettlePodsAtRisk": Case(
        {'fettle_pods_at_risk{policy="p", use="certain"}': "3x200"},
        {'fettle_pods_at_risk{policy="p", use="possible"}': "3x200"},
        90,
    ),
    "FettleIsNotAsked": Case(
        {'fettle_overlooked_resources{scheduler="s", resource="r"}': "1x60"},
        {'fettle_overlooked_resources{scheduler="s", resource="r"}': "1x10 _x50"},
    ),
    "FettleRequirementIgnored": Case(
        {"fettle_ignored_requirements": "1x60"}, {"fettle_ignored_requirements": "0x60"}
    ),
    "FettleObjectsNotRead": Case(
        {"fettle_quarantined_objects": "2x200"}, {"fettle_quarantined_objects": "0x120 2x60"}, 90
    ),
    "FettleHasNoSteward": Case(
        {f'fettle_steward_leader{{pod="{one}"}}': "0x60" for one in "ab"},
        {'fettle_steward_leader{pod="a"}': "1x60", 'fettle_steward_leader{pod="b"}': "0x60"},
    ),
    "FettleCertificateExpires": Case(
        {'fettle_certificate_expiration_timestamp_seconds{listener="webhook"}': f"{DAY}x60"},
        {'fettle_certificate_expiration_timestamp_seconds{listener="webhook"}': f"{3 * DAY}x60"},
    ),
    "FettleClientCaExpires": Case(
        {'fettle_client_ca_expiration_timestamp_seconds{listener="extender"}': f"{20 * DAY}x60"},
        {'fettle_client_ca_expiration_timestamp_seconds{listener="extender"}': f"{40 * DAY}x60"},
    ),
    "FettleHasNoMetrics": Case(rounds("5x60", "0+1x60"), rounds("0+1x60", "0+1x60")),
}


def fired(folder: Path, alert: str, series: Mapping[str, str], minutes: int) -> list[str]:
    """What promtool says is there, where it was told to expect nothing: the labels."""
    expected = {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": []}
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "30s", "input_series": given, "alert_rule_test": [expected]}
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FILE)], "tests": [test]}))
    result = promtool(file)
    said = result.stdout + result.stderr
    assert result.returncode == 0 or "got:[" in said, said
    return re.findall(r"Labels:\{(.+?)\}", said)


def promtool(file: Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    command = [PROMTOOL, "test", "rules", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_each_alert_is_tried() -> None:
    assert {*CASES, "FettlePartFails"} == set(RULES)


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_for_what_it_is_about_and_not_for_what_is_near(
    tmp_path: Path, alert: str
) -> None:
    case = CASES[alert]
    found = fired(tmp_path, alert, case.fires, case.minutes)
    assert [one for one in found if f'alertname="{alert}"' in one]
    assert fired(tmp_path, alert, case.quiet, case.minutes) == []


@pytest.mark.parametrize(
    ("counts", "fires"),
    [
        ("0x60", False),
        ("0x30 1x30", False),  # once, and it went on
        ("0+1x60", True),  # twice a minute, as one that fails for good
        ("7+0x60", False),  # long ago
        ("0+1x20 20x40", False),  # it is over
    ],
)
def test_a_part_that_goes_on_failing_is_told(tmp_path: Path, counts: str, fires: bool) -> None:
    found = fired(tmp_path, "FettlePartFails", {PARTS: counts}, 29)
    assert bool(found) is fires
    assert all('part="node marks"' in one and 'instance="a:8443"' in one for one in found)


@pytest.mark.parametrize("alert", RULES)
def test_each_alert_leads_to_what_to_do(alert: str) -> None:
    page, _, anchor = RULES[alert]["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / page).read_text(), re.M)
    assert anchor == alert.lower()
    assert alert in headings
    assert set(headings) == set(RULES)
