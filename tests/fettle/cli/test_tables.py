"""Tables on narrow terminals and in pipes, with texts that others wrote."""

import io

import pytest
from rich.console import Console

from fettle.cli.tables import new_table, readable

UUID = "GPU-01c3f2aa-9e1d-4a54-b1d4-6a50c1d2e9f7"


def lines_of(width: int, *rows: tuple[str, ...]) -> list[str]:
    table = new_table("NODE", "DEVICE", "SCORE", "WHY")
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(table)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120, 1000])
def test_lines_fit_the_terminal_and_break_no_uuid(width: int) -> None:
    words = "a long reason of many words that nobody would read on one line of a terminal " * 2
    lines = lines_of(width, ("n1", "gpu-0", "0.10", f"{words}{UUID}"), ("n2", UUID, "1.00", "x"))
    named = [line for line in lines if UUID[:8] in line]
    assert all(UUID in line for line in named)
    assert len(named) == 2
    assert all(len(line) <= width for line in lines)


def test_no_line_ends_in_blanks() -> None:
    lines = lines_of(1000, ("n1", "gpu-0", "0.10", "long enough"), ("n2", "", "1.00", ""))
    assert lines == [line.rstrip() for line in lines]


def test_a_text_with_line_breaks_and_control_characters_stays_on_its_line() -> None:
    evil = "x\nnode-1  0.00  Healthy\r\x1b[2Ky\u2028z\u202e\udcff"
    (shown,) = readable([evil])
    assert len(shown.splitlines()) == 1
    assert shown.isprintable()
    assert readable({"a\nb": {"c": "sound", "d": 1, "e": None}}) == {
        "a b": {"c": "sound", "d": 1, "e": None}
    }
