"""What benchmarks report: figures, the machine they hold for, and both as a table and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table


class Figure(NamedTuple):
    """`baseline` is what somebody else did in the same run; `target` is a bound that `value`
    should not exceed, or with `at_least` not fall short of. Both are in the value's unit."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    target: float | None = None
    at_least: bool = False

    @property
    def ok(self) -> bool | None:
        """None where there is no target: the figure is for information."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


def compared(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The median of ours over several rounds, and a baseline by which its ratio is the median of
    the rounds' ratios: how fast a machine is changes from one minute to the next, so each round is
    compared with the one beside it."""
    value = median(ours)
    return value, value / median(our / their for our, their in zip(ours, theirs, strict=True))


def machine() -> str:
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{os.cpu_count()} cores ({_cpu_model()}), {memory_gib:.0f} GiB, "
        f"{platform.system()} {platform.release()}, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )


def write(figures: Sequence[Figure], path: Path) -> None:
    records: list[dict[str, Any]] = [
        {
            "name": f.name,
            "value": _rounded(f.value),
            "unit": f.unit,
            "baseline": _rounded(f.baseline),
            "target": _rounded(f.target),
            "ok": f.ok,
        }
        for f in figures
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(records)) + b"\n")


def show(figures: Sequence[Figure], console: Console) -> None:
    table = Table(title=machine(), title_justify="left")
    table.add_column("figure")
    for column in ("value", "unit", "baseline", "ratio", "target", "ok"):
        table.add_column(column, justify="left" if column == "unit" else "right")
    for figure in figures:
        table.add_row(
            figure.name,
            _shown(figure.value),
            figure.unit,
            _shown(figure.baseline),
            f"{figure.value / figure.baseline:.2f}" if figure.baseline else "",
            f"{'≥' if figure.at_least else '≤'} {_shown(figure.target)}" if figure.target else "",
            {True: "yes", False: "[bold red]NO[/]", None: ""}[figure.ok],
        )
    console.print(table)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _cpu_model() -> str:
    """As Linux names it; elsewhere what Python knows."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
