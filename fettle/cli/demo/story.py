"""The steps of the demo, and its fleet as a snapshot folder: a fleet with faults, three workloads,
a GPU that fails, a bad claim."""

import json
import re
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fettle.api.meta import rfc3339
from fettle.cli.calling import fetch
from fettle.cli.demo.past import FleetPast
from fettle.cli.demo.served import QUICK, QUICK_HEALTH, SETTINGS, Served, ended_by_signals
from fettle.cli.sources import program
from fettle.cli.tables import console as console_of
from fettle.explain import summary
from fettle.model import FettleError

RECORDED_AT = datetime(2026, 11, 21, tzinfo=UTC)
"""When the embedded files were recorded."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
WIDTH = 100
REFUSED_WITHIN_S = 10.0
BREAKING = "hgx-01"
ACT_S = 12.0
"""So long nothing happens in a fleet that lives."""


def write(folder: Path, now: datetime) -> None:
    """Write the fleet as if it was recorded now, because old evidence weighs less."""
    shift = now - RECORDED_AT
    for file in resources.files(__package__).joinpath("snapshot").iterdir():
        text = _TIME.sub(lambda m: _shifted(m[0], shift), file.read_text(encoding="utf-8"))
        (folder / file.name).write_text(text, encoding="utf-8")


def _shifted(text: str, shift: timedelta) -> str:
    return rfc3339(datetime.fromisoformat(text) + shift)


def lose_gpu(folder: Path, node: str, now: datetime) -> str:
    """Let one GPU of a node fall off the bus, as NVSentinel reports it; returns its message."""
    message = (
        "ErrorCode:79 GPU:6 PCI:0000:db:00.0 GPU_UUID:GPU-01c3f2aa-9e1d-4a54-b1d4-6a50c1d2e9f7 "
        "NVRM: Xid (PCI:0000:db:00): 79, GPU has fallen off the bus. "
        "Recommended Action=RESTART_BM;"
    )
    _edit_conditions(
        folder,
        node,
        {
            "type": "SysLogsXIDError",
            "status": "True",
            "reason": "SysLogsXIDErrorIsNotHealthy",
            "message": message,
            "lastTransitionTime": rfc3339(now),
        },
    )
    return message


def _edit_conditions(folder: Path, node: str, condition: dict[str, Any]) -> None:
    _edit(folder, {node}, lambda status: status["conditions"].append(condition))


def _edit(folder: Path, nodes: set[str], change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "nodes.yaml"
    listed = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506 (safe: strings only)
    for item in listed["items"]:
        if item["metadata"]["name"] in nodes:
            change(item["status"])
    text = yaml.safe_dump(listed, sort_keys=False)
    draft = path.with_suffix(".tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)  # at once: the folder is watched


class Happening(NamedTuple):
    """What happens to a node by itself: a fault by the type, reason and message of its condition,
    or, without a type, a reboot that mends all that came by earlier acts."""

    told: str
    node: str
    type: str = ""
    reason: str = ""
    message: str = ""


_OFF_THE_BUS = (
    "SysLogsXIDError",
    "SysLogsXIDErrorIsNotHealthy",
    "ErrorCode:79 GPU:{0} PCI:0000:{1}:00.0 NVRM: Xid (PCI:0000:{1}:00): 79, GPU has fallen off "
    "the bus. Recommended Action=RESTART_BM;",
)
# As the health monitor of the same name writes it; the pattern of node-problem-detector's
# config/kernel-monitor.json for a deadlock.
_DEADLOCK = "KernelDeadlock", "DockerHung", "task docker:20744 blocked for more than 300 seconds."
ACTS = (
    Happening("a GPU of hgx-02 falls off the bus", "hgx-02", *_OFF_THE_BUS),
    Happening("it spreads: the kernel of hgx-02 hangs", "hgx-02", *_DEADLOCK),
    Happening("the next node, hgx-07, loses a GPU too", "hgx-07", *_OFF_THE_BUS),
    Happening("hgx-02 is rebooted, and comes back sound", "hgx-02"),
    Happening("the kernel of dra-01 hangs", "dra-01", *_DEADLOCK),
    Happening("hgx-07 is rebooted, and its GPU is back", "hgx-07"),
    Happening("dra-01 is rebooted, and comes back sound", "dra-01"),
)
"""The life of the fleet, again and again. None of its nodes is ill at first."""


def play(folder: Path, number: int, now: datetime) -> str:
    """Let the act of this number happen; returns it in words."""
    act = ACTS[number % len(ACTS)]
    if not act.type:
        _edit(folder, {act.node}, lambda status: _reboot(status, number))
        return act.told
    place = number % 8
    condition = {
        "type": act.type,
        "status": "True",
        "reason": act.reason,
        "message": act.message.format(place, f"{place:02x}"),
        "lastTransitionTime": rfc3339(now),
    }
    _edit_conditions(folder, act.node, condition)
    return act.told


def _reboot(status: dict[str, Any], number: int) -> None:
    came = {act.type for act in ACTS}
    status["conditions"] = [one for one in status["conditions"] if one["type"] not in came]
    first, *_ = status["nodeInfo"]["bootID"].partition("+")
    status["nodeInfo"]["bootID"] = f"{first}+{number}"


# --- what the demo sends

POLICIES = ("training", "inference", "scavenger")


def plugin_pod(policy: str, gpus: int) -> dict[str, Any]:
    """A pod that requests GPUs of a device plugin."""
    limits = {"nvidia.com/gpu": str(gpus)}
    return _pod(f"{policy}-plugin", policy, resources={"limits": limits, "requests": limits})


def claim_pod(policy: str) -> dict[str, Any]:
    """A pod that requests one GPU by DRA, through a ResourceClaimTemplate."""
    pod = _pod(f"{policy}-dra", policy, resources={"claims": [{"name": "gpu"}]})
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return pod


def _pod(name: str, policy: str, *, resources: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": name,
            "annotations": {"fettle.dev/policy": policy},
        },
        "spec": {"containers": [{"name": "main", "image": "train", "resources": resources}]},
    }


def schedule(served: Served, folder: Path, now: datetime) -> list[str]:
    """Bind the pods of the story as a scheduler would that asks this Fettle: each to the best of
    the nodes that have room for it. One is left over, and waits; returns the nodes that have room
    for that."""
    fitting: list[str] = []
    room = dict(_ROOM)
    pods = [_named(plugin_pod("training", 8), "train-0")]
    pods += [plugin_pod(policy, 4 if policy == "training" else 1) for policy in POLICIES]
    pods.append(waiting())
    for pod in pods:
        pod["metadata"]["creationTimestamp"] = rfc3339(now)
        asked = int(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
        fitting = [node for node, free in room.items() if free >= asked]
        refused = served.filter(pod, fitting)
        scores = served.prioritize(pod, [node for node in fitting if node not in refused])
        if scores:
            node = max(scores, key=lambda name: scores[name])
            room[node] -= asked
            pod["spec"]["nodeName"] = node
            pod["status"] = {"phase": "Running", "startTime": rfc3339(now)}
    draft = folder / "scheduled.tmp"
    draft.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    draft.replace(folder / "scheduled.json")
    return fitting


_ROOM = {f"hgx-0{number}": 6 if number == 7 else 8 for number in range(1, 8)}
"""GPUs that the nodes with a device plugin offer."""


def _named(pod: dict[str, Any], name: str) -> dict[str, Any]:
    pod["metadata"] |= {"name": name, "uid": name}
    return pod


def waiting() -> dict[str, Any]:
    """The pod that is left over."""
    return _named(plugin_pod("training", 8), "llm-0")


def oversized_claim() -> dict[str, Any]:
    """An AdmissionReview of a ResourceClaim with more devices than any claim may hold."""
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "forty-gpus", "namespace": "ml"},
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "gpus",
                        "exactly": {
                            "deviceClassName": "gpu.nvidia.com",
                            "allocationMode": "ExactCount",
                            "count": 40,
                        },
                    }
                ]
            }
        },
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "8d3c7b1e-demo",
            "kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"},
            "resource": {
                "group": "resource.k8s.io",
                "version": "v1",
                "resource": "resourceclaims",
            },
            "name": "forty-gpus",
            "namespace": "ml",
            "operation": "CREATE",
            "userInfo": {"username": "demo"},
            "object": claim,
            "oldObject": None,
            "dryRun": False,
        },
    }


class Scene(NamedTuple):
    """Verdicts of one kind of pod by policy: node → score, or None where it is refused."""

    verdicts: dict[str, dict[str, int | None]]
    reasons: dict[str, str]


def run(*, stay: bool) -> int:
    """Run the demo; returns the exit code, 0 if Fettle did what it should."""
    console = console_of(width=WIDTH)
    with ended_by_signals(), tempfile.TemporaryDirectory(prefix="fettle-demo-") as scratch:
        snapshot = Path(scratch, "snapshot")
        snapshot.mkdir()
        now = datetime.now(UTC)
        write(snapshot, now)
        console.print("[bold]Fettle[/] on a fleet of twelve nodes; faults as they were reported.\n")
        if stay:
            past = FleetPast(snapshot, now, QUICK_HEALTH)
            past.write()
        with Served(snapshot, Path(scratch, "log"), QUICK if stay else SETTINGS) as served:
            if stay:
                console.print(f"The page, for your browser:\n  {served.browse}", soft_wrap=True)
            failures = _scenes(console, served, snapshot)
            if stay:
                _stay(console, served, snapshot, past)
    for failure in failures:
        console.print(f"[red]not as expected:[/] {escape(failure)}")
    return 1 if failures else 0


def _scenes(console: Console, served: Served, snapshot: Path) -> list[str]:
    failures: list[str] = []
    nodes = sorted(n["node"] for n in fetch(served.browse, "/devices")["nodes"])
    plugin = [n for n in nodes if n.startswith("hgx-")]
    dra = [n for n in nodes if n.startswith("dra-")]

    _title(console, "1", "Device plugin: training asks for 4 GPUs, the others for 1")
    first = _scene(served, plugin, lambda p: plugin_pod(p, 4 if p == "training" else 1))
    _show(console, first, plugin)
    _expect(failures, first, "training", refuses={"hgx-03", "hgx-04", "hgx-05"})
    _expect(failures, first, "inference", refuses={"hgx-04"})

    _title(console, "2", "DRA: each asks for one GPU; Fettle foresees which one it would get")
    second = _scene(served, dra, claim_pod)
    _show(console, second, dra)
    _expect(failures, second, "training", refuses={"dra-02", "dra-04"})

    _title(console, "3", f"A GPU of {BREAKING} falls off the bus: the snapshot changes")
    console.print(escape(lose_gpu(snapshot, BREAKING, datetime.now(UTC))), style="dim")
    began = time.monotonic()
    third = _until_refused(served, plugin)
    _show(console, third, [BREAKING])
    console.print(f"refused {time.monotonic() - began:.1f} s after the file changed")
    _expect(failures, third, "training", refuses={BREAKING})

    _title(console, "4", "A claim that can never be satisfied is refused when it is written")
    answer = served.validate(oversized_claim())
    console.print(escape(answer.get("status", {}).get("message", "(allowed)")))
    if answer["allowed"]:
        failures.append("the webhook allowed a claim of 40 devices")
    console.print()
    return failures


def _scene(served: Served, nodes: list[str], pod_of: Callable[[str], dict[str, Any]]) -> Scene:
    verdicts: dict[str, dict[str, int | None]] = {}
    reasons: dict[str, str] = {}
    for policy in POLICIES:
        pod = pod_of(policy)
        refused = served.filter(pod, nodes)
        scores = served.prioritize(pod, [n for n in nodes if n not in refused])
        verdicts[policy] = {n: None if n in refused else scores[n] for n in nodes}
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        explained = fetch(served.browse, "/explain", {"pod": key})["nodes"]
        for node in nodes:
            if not reasons.get(node) or policy == "training":
                reasons[node] = summary(explained[node])
    return Scene(verdicts, reasons)


def _until_refused(served: Served, nodes: list[str]) -> Scene:
    until = time.monotonic() + REFUSED_WITHIN_S
    while True:
        scene = _scene(served, nodes, lambda p: plugin_pod(p, 4 if p == "training" else 1))
        if scene.verdicts["training"][BREAKING] is None or time.monotonic() > until:
            return scene
        time.sleep(0.05)


def _show(console: Console, scene: Scene, nodes: list[str]) -> None:
    table = Table(box=None, pad_edge=False, width=WIDTH)
    table.add_column("NODE", no_wrap=True)
    for policy in POLICIES:
        table.add_column(policy.upper(), justify="right", no_wrap=True)
    table.add_column("WHY", ratio=1, overflow="fold")
    for node in nodes:
        cells = [_cell(scene.verdicts[policy][node]) for policy in POLICIES]
        table.add_row(node, *cells, escape(scene.reasons[node]) or "[dim]sound[/]")
    console.print(table)


def _cell(score: int | None) -> str:
    if score is None:
        return "[red]refused[/]"
    return f"[{'green' if score >= 8 else 'yellow'}]{score}[/]"


def _title(console: Console, number: str, text: str) -> None:
    console.print(f"\n[bold]{number}. {escape(text)}[/]")


def _expect(failures: list[str], scene: Scene, policy: str, *, refuses: set[str]) -> None:
    refused = {node for node, score in scene.verdicts[policy].items() if score is None}
    if missing := refuses - refused:
        failures.append(f"{policy} was not kept off {', '.join(sorted(missing))}")


def _stay(console: Console, served: Served, snapshot: Path, past: FleetPast) -> None:
    try:  # the invitation says that Ctrl-C ends it, so Ctrl-C must work from there on
        _invite(console, served, snapshot)
        roomy = schedule(served, snapshot, datetime.now(UTC))
        number = 0
        while not served.ends_within(ACT_S):
            now = datetime.now(UTC)
            told = play(snapshot, number, now)
            console.print(f"{now:%H:%M:%S} {escape(told)}", style="dim")
            past.follow(now)
            past.write()
            served.filter(waiting(), roomy)  # as a scheduler does, whenever something has changed
            number += 1
    except KeyboardInterrupt:
        return
    raise FettleError("fettle serve exited on its own")


def _invite(console: Console, served: Served, snapshot: Path) -> None:
    fettle = program()
    console.print(
        f"[bold]It stays up, and lives:[/] faults come, spread and are mended. Look at the page:\n"
        f"  {served.browse}\n"
        f"or try, in another terminal:\n"
        f"  {fettle} devices --server '{served.browse}'\n"
        f"  {fettle} explain pod ml/training-plugin --server '{served.browse}'\n"
        f"  curl {served.metrics}\n"
        f"or edit the files in {snapshot}\n"
        f"Ctrl-C ends it.",
        soft_wrap=True,
    )
