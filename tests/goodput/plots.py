"""Results as one SVG: for each setting and contender, useful device-hours against starts on devices
that were visibly bad. Up and to the left is better."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from tests.goodput.results import Numbers, Result, Row, medians

WIDTH, PANEL, LEFT, TOP, BAR = 760, 152, 96, 34, 16
COLOURS = {
    "default": "#8c8c8c",
    "cordon": "#c9a227",
    "observe": "#b8c4ce",
    "steer": "#7fb2e5",
    "enforce": "#1f6fb5",
    "taints": "#123f68",
    "oracle": "#4d8a4d",
}
_HALF = (WIDTH - LEFT) // 2
_STYLE = "text{font:12px sans-serif;fill:#444}.t{font-weight:bold}"


def svg(results: Iterable[Result]) -> str:
    """A panel for each setting: on the left useful device-hours, on the right bad starts."""
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
    least = min(numbers.useful for numbers in rows.values())
    most = max(numbers.useful for numbers in rows.values())
    floor = max(0.0, least - max(1.0, most - least))
    worst = max(1.0, *(numbers.visible for numbers in rows.values()))
    yield _text(8, top + 14, title, "t")
    yield _text(LEFT, top + 30, f"useful device-hours, % (bars begin at {floor:.0f} %)")
    yield _text(LEFT + _HALF, top + 30, "starts on visibly bad devices")
    for number, (contender, numbers) in enumerate(rows.items()):
        at = top + TOP + 4 + number * BAR
        yield _text(8, at + 11, contender)
        share = (numbers.useful - floor) / max(1e-9, most - floor)
        yield _bar(LEFT, at, share, contender, f"{numbers.useful:.1f}")
        yield _bar(LEFT + _HALF, at, numbers.visible / worst, contender, f"{numbers.visible:.0f}")


def _bar(left: int, top: int, share: float, contender: str, told: str) -> str:
    width = max(1, round(share * (_HALF - 70)))
    rect = f'<rect x="{left}" y="{top}" width="{width}" height="{BAR - 4}" '
    return rect + f'fill="{COLOURS[contender]}"/>' + _text(left + width + 4, top + 11, told)


def _text(left: int, top: int, text: str, style: str = "") -> str:
    css = f' class="{style}"' if style else ""
    return f'<text x="{left}" y="{top}"{css}>{escape(text)}</text>'
