"""Results as one SVG: for each setting and contender, useful device-hours, starts on devices that
were visibly bad, and jobs that failed more often than a Job bears."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from tests.goodput.results import Numbers, Result, Row, medians

WIDTH, LEFT, TOP, BAR = 760, 96, 34, 16
COLOURS = {
    "default": "#8c8c8c",
    "again": "#a6a6a6",
    "cordon": "#c9a227",
    "observe": "#b8c4ce",
    "steer": "#7fb2e5",
    "enforce": "#1f6fb5",
    "taints": "#123f68",
    "oracle": "#4d8a4d",
}
_COLUMN = (WIDTH - LEFT) // 3
_STYLE = "text{font:12px sans-serif;fill:#444}.t{font-weight:bold}"


def svg(results: Iterable[Result]) -> str:
    """A panel for each setting."""
    panels: dict[str, dict[str, Numbers]] = {}
    for row, numbers in medians(results).items():
        panels.setdefault(_title(row), {})[row.contender] = numbers
    drawn: list[str] = []
    top = 8
    for title, rows in panels.items():
        drawn += _panel(title, rows, top)
        top += TOP + BAR * len(rows) + 22
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" '
        f'viewBox="0 0 {WIDTH} {top}"><style>{_STYLE}</style>'
        f'<rect width="{WIDTH}" height="{top}" fill="#fff"/>' + "".join(drawn) + "</svg>\n"
    )


def _title(row: Row) -> str:
    driver = "DRA" if row.driver == "dra" else "device plugin"
    return f"{row.setting}, {driver}"


def _panel(title: str, rows: dict[str, Numbers], top: int) -> Iterator[str]:
    columns = {
        "useful device-hours, %": {name: each.useful for name, each in rows.items()},
        "starts on visibly bad devices": {name: each.visible for name, each in rows.items()},
        "jobs with > 6 failed pods": {name: each.gave_up for name, each in rows.items()},
    }
    yield _text(8, top + 14, title, "t")
    for number, contender in enumerate(rows):
        yield _text(8, top + TOP + BAR * number + 15, contender)
    for column, (heading, values) in enumerate(columns.items()):
        left, most = LEFT + column * _COLUMN, max(1.0, *values.values())
        yield _text(left, top + 30, heading)
        for number, (contender, value) in enumerate(values.items()):
            told = f"{value:.1f}" if column == 0 else f"{value:.0f}"
            yield _bar(left, top + TOP + 4 + number * BAR, value / most, contender, told)


def _bar(left: int, top: int, share: float, contender: str, told: str) -> str:
    width = max(1, round(share * (_COLUMN - 60)))
    rect = f'<rect x="{left}" y="{top}" width="{width}" height="{BAR - 4}" '
    return rect + f'fill="{COLOURS[contender]}"/>' + _text(left + width + 4, top + 11, told)


def _text(left: int, top: int, text: str, style: str = "") -> str:
    css = f' class="{style}"' if style else ""
    return f'<text x="{left}" y="{top}"{css}>{escape(text)}</text>'
