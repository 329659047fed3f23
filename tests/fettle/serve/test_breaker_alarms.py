"""Breakers of a served Fettle, in explanations, metrics, `/readyz` and the log."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fettle.cli.calling import ask, fetch
from fettle.cli.demo.served import Served
from tests.fettle.cluster.feeds.manifests import write

GPU = "nvidia.com/gpu"
LOST = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}


def node(number: int, *, lost: bool = False, **spec: Any) -> dict[str, Any]:
    """With eight GPUs, of which one is withdrawn."""
    conditions = [{"type": "Ready", "status": "True"}, *([LOST] if lost else [])]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{number:02}"},
        "spec": spec,
        "status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "7"}, "conditions": conditions},
    }


def pod(policy: str, **more: str) -> dict[str, Any]:
    annotations = {f"fettle.dev/{name.replace('_', '-')}": value for name, value in more.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "ml",
            "uid": "p",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"fettle.dev/policy": policy, **annotations},
        },
        "spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    write(snapshot / "pods.yaml", pod("inference", min_score="1"))
    return snapshot


@pytest.fixture
def served(folder: Path, tmp_path: Path) -> Iterator[Served]:
    write(folder / "nodes.yaml", *(node(i) for i in range(15)))
    with Served(folder, tmp_path / "log") as fettle:
        yield fettle


NAMES = [f"n{i:02}" for i in range(15)]


def notes(served: Served) -> list[str]:
    lines = ask(served.browse, "/readyz?verbose").decode().splitlines()
    return [line for line in lines if "breaker" in line]


def alarms(served: Served) -> list[str]:
    """The samples of the gauge that are not zero."""
    lines = ask(served.browse, "/metrics").decode().splitlines()
    return [x for x in lines if x.startswith("fettle_breaker_open{") and not x.endswith(" 0.0")]


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.long
def test_a_pod_with_a_minimum_score_of_its_own_is_let_through_and_alarms_nobody(
    served: Served, tmp_path: Path
) -> None:
    told = fetch(served.browse, "/explain?pod=ml/p")["nodes"]
    assert all(told[name]["conceded"] for name in NAMES)
    assert served.filter(pod("inference", min_score="1"), NAMES) == {}
    assert fetch(served.browse, "/explain?pod=ml/p")["nodes"] == told
    assert (alarms(served), notes(served)) == ([], [])
    assert "breaker" not in (tmp_path / "log").read_text()


def test_a_rule_that_condemns_too_much_is_named_everywhere_before_any_pod_asks(
    served: Served, folder: Path, tmp_path: Path
) -> None:
    rule = "condition AcceleratedHardwareReady"
    write(folder / "nodes.yaml", *(node(i, lost=i < 8) for i in range(15)))
    until(lambda: alarms(served))
    assert sorted(alarms(served)) == [
        f'fettle_breaker_open{{policy="{policy}",pool="{GPU}",rule="{rule}"}} 1.0'
        for policy in ("inference", "scavenger", "training")
    ]
    (note,) = notes(served)
    assert f"{rule} is set aside in {GPU}: it alone condemns 56 of 105 (53.3 %" in note
    assert ask(served.browse, "/readyz") == b"ok\n"
    assert [one["text"] for one in fetch(served.browse, "/devices")["setAside"]] == [note]
    told = fetch(served.browse, "/explain?pod=ml/p")
    assert told["notes"][0] == note
    logged = [x for x in (tmp_path / "log").read_text().splitlines() if "breaker" in x]
    for record in map(json.loads, logged):
        assert (record["level"], record["rule"], record["pool"]) == ("error", rule, GPU)


@pytest.mark.long
@pytest.mark.parametrize("key", ["unschedulable", "not-ready", "unreachable"])
def test_a_dead_node_stays_refused_while_others_are_cordoned_or_lost(
    served: Served, folder: Path, key: str
) -> None:
    taint = {"key": f"node.kubernetes.io/{key}", "effect": "NoSchedule"}
    out = {"taints": [taint], **({"unschedulable": True} if key == "unschedulable" else {})}
    left_out = [node(i, lost=True, **out) for i in range(3)]
    rest = [node(i, lost=i == 7) for i in range(3, 15)]
    write(folder / "nodes.yaml", *left_out, *rest)
    until(lambda: "n07" in served.filter(pod("training"), NAMES))
    assert set(served.filter(pod("training"), NAMES)) == {"n00", "n01", "n02", "n07"}
    assert (alarms(served), notes(served)) == ([], [])
