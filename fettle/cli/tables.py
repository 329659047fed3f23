"""How the command line shows tables, times and texts that others wrote, and plain data."""

import io
import json
import sys
import time
from collections.abc import Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from fettle.cli import jsonpaths
from fettle.cli.jsonpaths import Template
from fettle.model import utc

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_NUMBERS = frozenset(("SCORE", "DEVICES", "MISSING", "PODS", "TIMES"))
_PIPE_WIDTH = 100_000
"""In a pipe, lines are not wrapped."""
_GAP = "  "
_NARROWEST, _LONGEST_WORD = 28, 48
"""The last column stands beside the others if it has so much room, and room for its longest word (a
UUID with its prefix, at most). Otherwise it stands below them, indented."""
_INDENT = 4
_UNREADABLE = "\N{REPLACEMENT CHARACTER}"


class _Trimmed(io.TextIOBase):
    """Standard output without the blanks with which lines are filled up."""

    def write(self, text: str) -> int:
        sys.stdout.write("\n".join(line.rstrip(" ") for line in text.split("\n")))
        return len(text)

    def flush(self) -> None:
        sys.stdout.flush()


def console(*, wide: bool = False, width: int | None = None) -> "Console":
    """For tables: as wide as the terminal; in a pipe, or if it is `wide`, lines are not wrapped.
    With a `width` they are wrapped there, into a pipe too, and have no trailing blanks in it."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            """Leaves it to the command line how it ends if nobody reads on."""
            raise

    is_piped = not sys.stdout.isatty()
    if width is not None:
        file = cast("TextIO", _Trimmed()) if is_piped else None
        return Piped(highlight=False, width=width, file=file)
    return Piped(highlight=False, width=_PIPE_WIDTH if wide or is_piped else None)


class TextTable:
    """Without lines and trailing blanks. Cells are rich's markup. Only the last column is wrapped,
    between words, or `cut` to one line; numbers stand on the right."""

    def __init__(self, *columns: str, cut: bool = False) -> None:
        self.columns = columns
        self.cut = cut
        self.rows: list[tuple[str, ...]] = []

    @property
    def row_count(self) -> int:
        return len(self.rows)

    def add_row(self, *cells: str) -> None:
        self.rows.append(cells)

    def __rich_console__(self, out: "Console", options: "ConsoleOptions") -> "Iterator[Text]":
        from rich.text import Text

        head = [[Text(name, style="bold")] for name in self.columns]
        rows = [head, *([_lines(cell) for cell in row] for row in self.rows)]
        widths = [max(line.cell_len for row in rows for line in row[at]) for at in range(len(head))]
        room = options.max_width - _taken(widths[:-1]) - len(_GAP)
        longest = _NARROWEST if self.cut else max(_NARROWEST, _longest_word(rows))
        is_beside = room >= min(widths[-1], longest)
        beside = len(widths) if is_beside else _first_that_fit(widths, options.max_width)
        width = max(room if is_beside else options.max_width - _INDENT, 1)
        for row in rows:
            row[-1] = [
                part
                for line in row[-1]
                for part in (_cut(line, width) if self.cut else _wrapped(line, out, width))
            ]
            yield from self._side_by_side(row[:beside], widths)
            for part in _below(row[beside:]):
                yield Text(" " * _INDENT).append_text(part)

    def _side_by_side(self, cells: "list[list[Text]]", widths: list[int]) -> "Iterator[Text]":
        from rich.text import Text

        for parts in zip_longest(*cells):
            line = Text()
            for name, part, width in zip(self.columns, parts, widths, strict=False):
                blanks = " " * (width - (part.cell_len if part is not None else 0))
                line.append(blanks if name in _NUMBERS else "")
                line.append_text(part if part is not None else Text())
                line.append((blanks if name not in _NUMBERS else "") + _GAP)
            line.rstrip()
            yield line


def _lines(cell: str) -> "list[Text]":
    from rich.text import Text

    return list(Text.from_markup(cell).split("\n", allow_blank=True))


def _taken(widths: list[int]) -> int:
    """By columns with the gaps between them."""
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _first_that_fit(widths: list[int], width: int) -> int:
    """How many columns stand beside each other, where the last one stands below them."""
    counts = range(len(widths) - 1, 1, -1)
    return next((count for count in counts if _taken(widths[:count]) <= width), 1)


def _wrapped(line: "Text", out: "Console", width: int) -> "list[Text]":
    return list(line.wrap(out, width)) if line.cell_len > width else [line]


def _cut(line: "Text", width: int) -> "list[Text]":
    line.truncate(width, overflow="ellipsis")
    return [line]


def _below(cells: "list[list[Text]]") -> "Iterator[Text]":
    """The cells that found no room, in lines: the short ones together, then the last."""
    from rich.text import Text

    if not cells:
        return
    short = [part for cell in cells[:-1] for part in cell if part.plain]
    for part in (Text(_GAP).join(short), *cells[-1]):
        part.rstrip()
        if part.plain:
            yield part


def _longest_word(rows: "list[list[list[Text]]]") -> int:
    words = (word for row in rows for line in row[-1] for word in line.plain.split())
    return min(max(map(len, words), default=0), _LONGEST_WORD)


def new_table(*columns: str, cut: bool = False) -> TextTable:
    return TextTable(*columns, cut=cut)


def readable(told: Any) -> Any:
    """What was told, with texts that each stay on one line and hide nothing: tenants write names,
    annotations and messages, and a line break in one would look like a row of the table."""
    match told:
        case str():
            return told if told.isprintable() else _on_one_line(told)
        case list():
            return [readable(each) for each in told]
        case dict():
            return {readable(name): readable(each) for name, each in told.items()}
    return told


def _on_one_line(text: str) -> str:
    """Blanks for what separates words and lines, and a mark for each other letter that cannot be
    seen, such as those that move the cursor or turn the direction of writing."""
    shown = (c if c.isprintable() else " " if c.isspace() else _UNREADABLE for c in text)
    return "".join(shown)


def shown_time(at: float | None) -> str:
    """A time in Unix seconds; "–" if it is not known."""
    return "–" if at is None else f"{utc(at):%Y-%m-%d %H:%M:%SZ}"


_SPANS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_PRECISE = 3
"""Below so many of a unit the next smaller one is told."""


def shown_age(at: float | None, now: float | None = None) -> str:
    """How long ago, as kubectl tells it: 40s, 12m, 5h or 3d; "–" if the time is not known.

    >>> shown_age(1000.0, 1000.0 + 3 * 3600)
    '3h'
    """
    if not at:
        return "–"
    left = max(0, round((time.time() if now is None else now) - at))
    fits = ((size, unit) for size, unit in _SPANS if left >= size * (1 if size == 1 else _PRECISE))
    size, unit = next(fits, (1, "s"))
    return f"{left // size}{unit}"


PLAIN = frozenset(("json", "yaml"))
"""Formats for programs, beside templates."""
_TIMES = frozenset(
    (
        *("since", "until", "at", "start", "end", "first", "last", "observedAt", "boundAt"),
        *("startedAt", "deletedAt", "lostAt", "confirmedAt", "waitsUntil", "endsAt"),
    )
)
"""Fields that are Unix seconds where they are numbers."""
_EARLIEST = 1e8
"""What is below is no time: 0 is "not known"."""


def is_plain(output: str) -> bool:
    """Whether the output is for programs."""
    return output in PLAIN or output.startswith(jsonpaths.PREFIX)


def print_plain(data: Any, output: str) -> None:
    """Print JSON or YAML, or what a template makes of it. Beside each time in Unix seconds stands
    one for people: `sinceTime` in RFC 3339 beside `since`."""
    told = _with_times(data)
    if output.startswith(jsonpaths.PREFIX):
        click.echo(Template(output.removeprefix(jsonpaths.PREFIX)).of(told), nl=False)
    elif output == "yaml":
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        text = yaml.dump(told, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1000)
        click.echo(text, nl=False)
    else:
        click.echo(json.dumps(told, indent=2))


def _with_times(data: Any) -> Any:
    match data:
        case list():
            return [*map(_with_times, data)]
        case dict():
            told = {}
            for name, value in data.items():
                told[name] = _with_times(value)
                if name in _TIMES and isinstance(value, int | float) and value > _EARLIEST:
                    told[f"{name}Time"] = f"{utc(value):%Y-%m-%dT%H:%M:%SZ}"
            return told
    return data
