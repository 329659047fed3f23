"""`fettle report`: what Fettle kept or would have kept from what, as tables, JSON or one page of
HTML that loads nothing."""

import html
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import click
import msgspec

from fettle.cli.decision_tables import OfAll, ask_all
from fettle.cli.tables import console, is_plain, new_table, print_plain, shown_time
from fettle.records import Decision, make_report, merged, seconds_of

MOST_ROWS = 20
"""Rows of one table on a terminal; JSON and HTML have all."""


class ReportTable(NamedTuple):
    """A part of the report: a heading, a sentence, and rows; `nothing` stands for no rows."""

    heading: str
    about: str
    columns: Sequence[str]
    rows: list[Sequence[str]]
    nothing: str


def show_report(servers: Sequence[str], since: str, output: str) -> None:
    """Print the report of what running Fettles have recorded."""
    data = _of_all(ask_all(servers, "/records", {"since": since}), time.time(), since)
    if is_plain(output):
        print_plain(data, output)
    elif output == "html":
        click.echo(html_page(data))
    else:
        print_report(data)


def _of_all(answers: OfAll, now: float, since: str) -> dict[str, Any]:
    """As the answer to `/report` of one process that decided all of it."""
    told = list(answers.by_server.values())
    records = [msgspec.convert(answer["decisions"], list[Decision]) for answer in told]
    report = msgspec.to_builtins(make_report(merged(records), now - seconds_of(since), now))
    modes = dict.fromkeys(line for answer in told for line in answer["modes"])
    return {**report, "notes": answers.all_notes(), "modes": [*modes]}


def print_report(data: dict[str, Any]) -> None:
    """Print the answer of `/report` as tables."""
    from rich.markup import escape

    out = console()
    for line in head(data):
        out.print(escape(line))
    for part in tables(data):
        out.print(f"\n[bold]{escape(part.heading)}[/]  [dim]{escape(part.about)}[/]")
        if not part.rows:
            out.print(part.nothing)
            continue
        table = new_table(*part.columns)
        for row in part.rows[:MOST_ROWS]:
            table.add_row(*map(escape, row))
        out.print(table)
        if (more := len(part.rows) - MOST_ROWS) > 0:
            out.print(f"[dim]… {more} more: -o json or -o html shows all[/]")


def head(data: dict[str, Any]) -> list[str]:
    """What the report is about, in sentences."""
    by_mode = ", ".join(f"{n} in mode {mode}" for mode, n in sorted(data["podsByMode"].items()))
    hours = data["deviceHours"]
    by_policy = ", ".join(f"{policy} {n:g}" for policy, n in hours["byPolicy"].items())
    return [
        f"Fettle, {shown_time(data['since'])} to {shown_time(data['until'])}",
        f"pods with devices: {data['pods']}" + (f" ({by_mode})" if by_mode else ""),
        f"device-hours that would have been withheld: {hours['total']:g}"
        + (f" ({by_policy})" if by_policy else ""),
        *data["modes"],
        *data["notes"],
    ]


def tables(data: dict[str, Any]) -> list[ReportTable]:
    """The parts of the report."""
    undecided = data["undecided"]
    return [
        ReportTable(
            "Kept away",
            "pods for which nodes were (enforce) or would have been refused, by reason",
            ("POLICY", "MODE", "REASON", "PODS", "NODES", "WHAT BECAME OF THEM"),
            [
                (
                    row["policy"],
                    row["mode"],
                    row["reason"],
                    str(row["pods"]),
                    str(row["nodes"]),
                    ", ".join(f"{n} {word}" for word, n in sorted(row["became"].items())),
                )
                for row in data["keptAway"]
            ],
            "no node was refused for any pod",
        ),
        ReportTable(
            "On what Fettle refuses",
            "pods that were bound to devices from which they would have been kept",
            ("TIME", "POD", "POLICY", "MODE", "DEVICES", "DEVICE-HOURS", "WHY", "NOW"),
            [_landed(row) for row in data["landedOnRefused"]],
            "no pod was bound to what Fettle refuses",
        ),
        ReportTable(
            "Waiting",
            "pods for which every node was (enforce) or would have been refused, and how long",
            ("TIME", "POD", "POLICY", "MODE", "WAITED", "WHY", "NOW"),
            [
                (
                    shown_time(row["at"]),
                    _pod(row),
                    row["policy"],
                    row["mode"],
                    ("" if row["until"] else "at least ") + duration(row["seconds"]),
                    row["why"] or ", ".join(row["reasons"]),
                    _now(row),
                )
                for row in data["waiting"]
            ],
            "no pod was refused everywhere",
        ),
        ReportTable(
            "Undecided",
            f"what could not be judged was allowed; {undecided['podsPlacedSo']} pods landed there",
            ("REASON", "PODS"),
            [(code, str(n)) for code, n in undecided["podsByReason"].items()],
            "everything could be judged",
        ),
        ReportTable(
            "Wrong: ran well on what Fettle refuses",
            "pods that succeeded there, or have run for an hour",
            ("TIME", "POD", "POLICY", "MODE", "DEVICES", "DEVICE-HOURS", "WHY", "NOW"),
            [_landed(row) for row in data["wrong"]["ranWell"]],
            "none",
        ),
        ReportTable(
            "Wrong: failed where Fettle refused nothing",
            "not each of these is a device's fault: look at the reason",
            ("TIME", "POD", "POLICY", "NODE", "EVIDENCE", "REASON"),
            [
                (
                    shown_time(row["at"]),
                    _pod(row),
                    row["policy"],
                    row["node"],
                    "none" if row["sound"] else "some, not enough to refuse",
                    row["end"],
                )
                for row in data["wrong"]["failedUnseen"]
            ],
            "none",
        ),
        ReportTable(
            "Webhook",
            "what was or would have been changed and denied, as this server's webhook saw it",
            ("DECIDED", "KIND", "POLICY", "MODE", "RULE", "TIMES"),
            [
                (
                    row["decided"],
                    row["kind"],
                    row["policy"],
                    row["mode"],
                    row["rule"] or "–",
                    str(row["count"]),
                )
                for row in data["webhook"]
            ],
            "nothing; without webhook.tls.clientCaFile or webhook.trustCallers it records nothing",
        ),
    ]


def _landed(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        shown_time(row["at"]),
        _pod(row),
        row["policy"],
        row["mode"],
        ", ".join(row["devices"]),
        f"{row['deviceHours']:g}",
        row["why"],
        _now(row),
    )


def _pod(row: dict[str, Any]) -> str:
    return f"{row['pod']} ({row['owner']})" if row["owner"] else str(row["pod"])


def _now(row: dict[str, Any]) -> str:
    return f"{row['became']}: {row['end']}" if row["end"] else str(row["became"])


def duration(seconds: float) -> str:
    """Such as 40 s, 5 min, 3.2 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#222}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .2rem}p{margin:.2rem 0}.about{color:#666}
table{border-collapse:collapse;width:100%;margin-top:.5rem}td,th{text-align:left;vertical-align:top;
padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ddd}th{font-size:.8rem;color:#666}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}td,th{border-color:#444}}
"""


def html_page(data: dict[str, Any]) -> str:
    """The report as one page."""
    title, *lines = head(data)
    return "\n".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>",
            *(f"<p>{html.escape(line)}</p>" for line in lines),
            *(line for part in tables(data) for line in _html(part)),
            "</body></html>",
        )
    )


def _html(part: ReportTable) -> Iterable[str]:
    yield f"<h2>{html.escape(part.heading)}</h2><p class=about>{html.escape(part.about)}</p>"
    if not part.rows:
        yield f"<p>{html.escape(part.nothing)}</p>"
        return
    yield f"<table><tr>{''.join(f'<th>{html.escape(c)}</th>' for c in part.columns)}</tr>"
    for row in part.rows:
        yield f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"
