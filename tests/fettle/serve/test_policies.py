"""`fettle explain policy`, and DevicePolicies in a snapshot."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fettle.cli.calling import fetch
from fettle.cli.commands import main
from fettle.cli.demo.served import Served
from tests.fettle.cli.linted import called

pytestmark = pytest.mark.long

STRICT = """
apiVersion: fettle.dev/v1alpha1
kind: DevicePolicy
metadata: {name: inference}
spec: {placement: {minScore: 0.99, degraded: Refuse, aggregate: Min}}
"""


def explained(served: Served, *arguments: str) -> subprocess.CompletedProcess[str]:
    return called("explain", "policy", *arguments, "--server", served.browse)


def soon(look: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """What the look finds, once it is something."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_pods_policy_is_shown_value_by_value_with_where_it_comes_from(
    served: Served, snapshot: Path
) -> None:
    said = explained(served, "ml/serving-0")
    assert said.returncode == 0, said.stderr
    assert "inference  built in, chosen by cluster default" in said.stdout
    assert "placement.minScore" in said.stdout
    (snapshot / "devicepolicies.yaml").write_text(STRICT)
    soon(lambda: "DevicePolicy" in (said := explained(served, "ml/serving-0")).stdout and said)
    data = fetch(served.browse, "/policy", {"pod": "ml/serving-0"})
    values = {value["field"]: (value["value"], value["from"]) for value in data["values"]}
    assert values["placement.minScore"] == (0.99, "inference (DevicePolicy)")


def test_a_policy_by_name_is_shown_with_those_it_applies_to(served: Served) -> None:
    data = fetch(served.browse, "/policy", {"name": "inference"})
    assert data["pods"] == ["ml/serving-0"]
    assert data["origin"] == "cluster default"
    said = explained(served, "inference", "--output", "json")
    assert '"ml/serving-0"' in said.stdout


def test_an_unknown_policy_or_pod_is_said_in_a_sentence(served: Served) -> None:
    said = explained(served, "trainig")
    assert said.returncode == 1
    assert "there is no policy 'trainig'; known: inference, scavenger" in said.stderr
    assert "is not known" in explained(served, "ml/nobody").stderr


def test_a_policy_that_cannot_be_read_is_said_to_be_there(served: Served, snapshot: Path) -> None:
    broken = STRICT.replace("inference", "broken").replace("0.99", "7")
    (snapshot / "devicepolicies.yaml").write_text(broken)
    said = soon(lambda: "minScore" in (said := explained(served, "broken")).stderr and said)
    assert said.returncode == 1
    assert "'broken' cannot be read" in said.stderr


def test_a_changed_policy_changes_verdicts(served: Served, snapshot: Path) -> None:
    def refused() -> set[str]:
        nodes = fetch(served.browse, "/explain", {"pod": "ml/serving-0"})["nodes"]
        return {name for name, verdict in nodes.items() if verdict["refusals"]}

    before = refused()
    (snapshot / "devicepolicies.yaml").write_text(STRICT)
    stricter = soon(lambda: (now := refused()) != before and now)
    assert stricter > before
    (snapshot / "devicepolicies.yaml").unlink()
    soon(lambda: refused() == before)


IN_VAIN = """
apiVersion: fettle.dev/v1alpha1
kind: DevicePolicy
metadata: {name: in-vain}
spec: {placement: {requires: [{expression: node.lables.zone == "a", message: zone a}]}}
"""


def test_a_requirement_that_does_not_compile_is_said(served: Served, snapshot: Path) -> None:
    (snapshot / "devicepolicies.yaml").write_text(IN_VAIN)
    said = soon(lambda: (said := explained(served, "in-vain")).returncode == 0 and said.stdout)
    told = " ".join(said.split())
    assert "placement.requires[0] is ignored: it does not compile" in told
    assert "lables" in told
    assert "zone a" in told


@pytest.mark.parametrize("name", ["a/b/c", "/x", "x/", "/", ""])
def test_what_is_neither_a_pod_nor_a_policy_is_an_error_of_usage(name: str) -> None:
    said = CliRunner().invoke(main, ["explain", "policy", name, "--server", "http://127.0.0.1:1"])
    assert said.exit_code == 2
    assert f"{name!r}: write NAMESPACE/POD" in said.output
