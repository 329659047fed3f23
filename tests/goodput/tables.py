"""Results as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.goodput.results import MINDED_BY_FETTLE, Gain, Numbers, Result, gains, medians

HEADER = (
    "who minds health",
    "useful %",
    "than default (least to most)",
    "lost %",
    "slow %",
    "idle: bad %",
    "beside bad %",
    "sound %",
    "avoidable %",
    "starts",
    "on visibly bad",
    "failures",
    "evictions",
    "jobs past 6",
    "sound usable %",
    "changes a fault",
    "sound, held bad, h",
    "a job waits, h",
    "for whole nodes, h",
    "gangs placed",
    "refused",
    "scheduler, s",
)
_DRIVERS = {"plugin": "device plugin", "dra": "DRA"}
_ENGINES = {"packer": "simulation", "scheduler": "kube-scheduler"}


def markdown(results: Iterable[Result]) -> str:
    """One table for each setting."""
    results = [*results]
    gained = gains(results)
    lines: list[str] = []
    title = ""
    for row, numbers in medians(results).items():
        heading = f"{row.setting} · {_DRIVERS[row.driver]} · {_ENGINES[row.engine]}"
        if heading != title:
            title = heading
            lines += ["", f"**{title}**", "", _line(HEADER), _line("---" for _ in HEADER)]
        lines.append(_line([row.contender, *_cells(row.contender, numbers, gained.get(row))]))
    return "\n".join(lines[1:]) + "\n"


def _cells(contender: str, numbers: Numbers, gained: Gain | None) -> Iterator[str]:
    fettle = contender in MINDED_BY_FETTLE
    yield f"{numbers.useful:.1f}"
    yield f"{gained.median:+.1f} ({gained.least:+.1f} to {gained.most:+.1f})" if gained else "–"
    yield f"{numbers.lost:.1f}"
    yield f"{numbers.slow:.1f}"
    yield f"{numbers.idle_bad:.1f}"
    yield f"{numbers.idle_beside_bad:.1f}"
    yield f"{numbers.idle_sound:.1f}"
    yield f"{numbers.avoidable:.1f}"
    yield f"{numbers.starts:.0f}"
    yield f"{numbers.visible:.0f}"
    yield f"{numbers.failures:.0f}"
    yield f"{numbers.evictions:.0f}" if fettle else "–"
    yield f"{numbers.gave_up:.0f}"
    yield f"{numbers.usable:.1f}"
    yield f"{numbers.changes:.1f}" if fettle else "–"
    yield f"{numbers.held:.0f}" if fettle and numbers.held else "–"
    yield f"{numbers.wait_h:.1f}"
    yield f"{numbers.whole_wait_h:.1f}"
    yield f"{numbers.gangs:.0f}"
    yield f"{numbers.refused:.0f}" if fettle else "–"
    yield f"{numbers.scheduler_s:.0f}" if numbers.scheduler_s else "–"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
