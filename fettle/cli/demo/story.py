"""The steps of the demo: a fleet with faults, three workloads, a GPU that fails, a bad claim."""

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fettle.cli.calling import fetch
from fettle.cli.demo import fleet
from fettle.cli.demo.served import QUICK, SETTINGS, Served, ended_by_signals
from fettle.explain import summary
from fettle.model import FettleError

WIDTH = 100
REFUSED_WITHIN_S = 10.0
BREAKING = "hgx-01"
ACT_S = 12.0
"""So long nothing happens in a fleet that lives."""


class Scene(NamedTuple):
    """Verdicts of one kind of pod by policy: node → score, or None where it is refused."""

    verdicts: dict[str, dict[str, int | None]]
    reasons: dict[str, str]


def run(*, stay: bool) -> int:
    """Run the demo; returns the exit code, 0 if Fettle did what it should."""
    console = Console(highlight=False, width=WIDTH, soft_wrap=False)
    with ended_by_signals(), tempfile.TemporaryDirectory(prefix="fettle-demo-") as scratch:
        snapshot = Path(scratch, "snapshot")
        snapshot.mkdir()
        fleet.write(snapshot, datetime.now(UTC))
        console.print("[bold]Fettle[/] on a fleet of twelve nodes; faults as they were reported.\n")
        with Served(snapshot, Path(scratch, "log"), QUICK if stay else SETTINGS) as served:
            if stay:
                console.print(f"The page, for your browser:\n  {served.browse}", soft_wrap=True)
            failures = _scenes(console, served, snapshot)
            if stay:
                _stay(console, served, snapshot)
    for failure in failures:
        console.print(f"[red]not as expected:[/] {escape(failure)}")
    return 1 if failures else 0


def _scenes(console: Console, served: Served, snapshot: Path) -> list[str]:
    failures: list[str] = []
    nodes = sorted(n["node"] for n in fetch(served.browse, "/devices")["nodes"])
    plugin = [n for n in nodes if n.startswith("hgx-")]
    dra = [n for n in nodes if n.startswith("dra-")]

    _title(console, "1", "Device plugin: training asks for 4 GPUs, the others for 1")
    first = _scene(served, plugin, lambda p: fleet.plugin_pod(p, 4 if p == "training" else 1))
    _show(console, first, plugin)
    _expect(failures, first, "training", refuses={"hgx-03", "hgx-04", "hgx-05"})
    _expect(failures, first, "inference", refuses={"hgx-04"})

    _title(console, "2", "DRA: each asks for one GPU; Fettle foresees which one it would get")
    second = _scene(served, dra, fleet.claim_pod)
    _show(console, second, dra)
    _expect(failures, second, "training", refuses={"dra-02", "dra-04"})

    _title(console, "3", f"A GPU of {BREAKING} falls off the bus: the snapshot changes")
    console.print(escape(fleet.lose_gpu(snapshot, BREAKING, datetime.now(UTC))), style="dim")
    began = time.monotonic()
    third = _until_refused(served, plugin)
    _show(console, third, [BREAKING])
    console.print(f"refused {time.monotonic() - began:.1f} s after the file changed")
    _expect(failures, third, "training", refuses={BREAKING})

    _title(console, "4", "A claim that can never be satisfied is refused when it is written")
    answer = served.validate(fleet.oversized_claim())
    console.print(escape(answer.get("status", {}).get("message", "(allowed)")))
    if answer["allowed"]:
        failures.append("the webhook allowed a claim of 40 devices")
    console.print()
    return failures


def _scene(served: Served, nodes: list[str], pod_of: Callable[[str], dict[str, Any]]) -> Scene:
    verdicts: dict[str, dict[str, int | None]] = {}
    reasons: dict[str, str] = {}
    for policy in fleet.POLICIES:
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
        scene = _scene(served, nodes, lambda p: fleet.plugin_pod(p, 4 if p == "training" else 1))
        if scene.verdicts["training"][BREAKING] is None or time.monotonic() > until:
            return scene
        time.sleep(0.05)


def _show(console: Console, scene: Scene, nodes: list[str]) -> None:
    table = Table(box=None, pad_edge=False, width=WIDTH)
    table.add_column("NODE", no_wrap=True)
    for policy in fleet.POLICIES:
        table.add_column(policy.upper(), justify="right", no_wrap=True)
    table.add_column("WHY", ratio=1, overflow="fold")
    for node in nodes:
        cells = [_cell(scene.verdicts[policy][node]) for policy in fleet.POLICIES]
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


def _stay(console: Console, served: Served, snapshot: Path) -> None:
    try:  # the invitation says that Ctrl-C ends it, so Ctrl-C must work from there on
        _invite(console, served, snapshot)
        number = 0
        while not served.ends_within(ACT_S):
            now = datetime.now(UTC)
            told = fleet.play(snapshot, number, now)
            console.print(f"{now:%H:%M:%S} {escape(told)}", style="dim")
            number += 1
    except KeyboardInterrupt:
        return
    raise FettleError("fettle serve exited on its own")


def _typed() -> str:
    """What to type for this program in a shell that was started in the same folder."""
    if shutil.which("fettle"):
        return "fettle"
    if sys.argv[0].endswith(".py"):  # python -m fettle
        return f"{shlex.quote(sys.executable)} -m fettle"
    return shlex.quote(sys.argv[0])


def _invite(console: Console, served: Served, snapshot: Path) -> None:
    fettle = _typed()
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
