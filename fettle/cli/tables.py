"""How the command line shows tables and times."""

import sys
from typing import TYPE_CHECKING

from fettle.model import utc

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_NUMBERS = frozenset(("SCORE",))


def console() -> "Console":
    """For tables: as wide as the terminal; in a pipe, lines are not wrapped."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 1000)


def new_table(*columns: str) -> "Table":
    """Without lines; long cells are folded, numbers stand on the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in _NUMBERS else "left")
    return table


def shown_time(at: float | None) -> str:
    """A time in Unix seconds; "–" if it is not known."""
    return "–" if at is None else f"{utc(at):%Y-%m-%d %H:%M:%SZ}"
