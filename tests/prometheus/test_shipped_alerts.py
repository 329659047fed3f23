"""The alerts about Fettle itself that are shipped: when a real Prometheus fires them."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.prometheus.server import PROMTOOL, needs_prometheus

RULES = Path(__file__).parents[2] / "deploy/metrics/fettle-alerts.yaml"
SERIES = 'fettle_part_errors_total{part="node marks", instance="a:8443", pod="fettle-1"}'
ALERT = {"part": "node marks", "instance": "a:8443", "severity": "warning"}

pytestmark = [pytest.mark.prometheus, needs_prometheus]


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
    expected: dict[str, Any] = {"eval_time": "29m", "alertname": "FettlePartFails"}
    (rule,) = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    said = {
        "summary": "node marks fails in Fettle on a:8443",
        "description": rule["annotations"]["description"],
    }
    expected["exp_alerts"] = [{"exp_labels": ALERT, "exp_annotations": said}] if fires else []
    test = {
        "rule_files": [str(RULES)],
        "tests": [
            {
                "interval": "30s",
                "input_series": [{"series": SERIES, "values": counts}],
                "alert_rule_test": [expected],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test))
    assert PROMTOOL is not None
    command = [PROMTOOL, "test", "rules", str(file)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
