"""Alertmanager tells a served Fettle of a fault."""

import json
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fettle.cli.calling import ask
from fettle.cli.commands import main
from fettle.cli.demo.served import SETTINGS, Served
from tests.fettle.cluster.feeds.manifests import write
from tests.fettle.cluster.feeds.test_alerts import alert, message
from tests.fettle.serve.test_breaker_alarms import node


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def post(port: int, status: str) -> int:
    told = alert(
        status,
        alertname="FettleDcgmRowRemapPending",
        fettleRule="dcgm-row-remap-pending",
        hostname="n00",
    )
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/alerts", data=json.dumps(message(told)).encode()
    )
    with urllib.request.urlopen(request, timeout=5) as reply:
        return int(reply.status)


@pytest.mark.long
def test_an_alert_makes_its_gpu_degraded_until_it_is_resolved(tmp_path: Path) -> None:
    """One that latches stays; see tests/fettle/cluster/feeds/test_alerts.py."""
    snapshot, port = tmp_path / "snapshot", free_port()
    snapshot.mkdir()
    write(snapshot / "nodes.yaml", node(0), node(1))
    settings = SETTINGS + f"alertmanager: {{listen: '127.0.0.1:{port}'}}\n"
    with Served(snapshot, tmp_path / "log", settings) as served:
        until(lambda: _takes(port))
        assert post(port, "firing") == 200
        until(lambda: "is remapped at the next reset" in ask(served.browse, "/devices").decode())
        assert post(port, "resolved") == 200
        until(lambda: "was until recently" in ask(served.browse, "/devices").decode())


def _takes(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_rules_are_printed_for_prometheus() -> None:
    printed = CliRunner().invoke(main, ["rules", "--prometheus"])
    assert printed.exit_code == 0, printed.output
    assert "alert: FettleDcgmRowRemapFailed" in printed.output
