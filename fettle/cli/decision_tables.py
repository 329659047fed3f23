"""Prints what Fettle decided: `fettle decisions`, and the end of what `fettle explain pod` says.
Each process knows only what it was asked itself, so several are asked, and answer as one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import msgspec

from fettle.cli.calling import Answered, fetch
from fettle.cli.tables import (
    console,
    is_plain,
    new_table,
    print_plain,
    readable,
    shown_age,
    shown_time,
)
from fettle.model import FettleError
from fettle.records import Decision, merged

AS_SHIPPED = ("http://127.0.0.1:8090", "http://127.0.0.1:8091")
"""Where the two static pods of `deploy/scheduler/` listen. There may be only one."""
MOST_REASONS = 3
"""Reason codes of one decision that are shown."""
_WOULD = {"observe": "would be ", "steer": "would be "}


class OfAll(NamedTuple):
    """By server: what it answered. `notes`: sentences about those that did not."""

    by_server: dict[str, Any]
    notes: list[str]

    def all_notes(self) -> list[str]:
        """Those of the servers too, each with whose it is, if there are several."""
        several = len(self.by_server) > 1
        told = [
            f"{server}: {note}" if several else note
            for server, answer in self.by_server.items()
            for note in answer["notes"]
        ]
        return [*told, *self.notes]


def ask_all(given: Sequence[str], path: str, query: dict[str, str]) -> OfAll:
    """Ask these servers, or those of AS_SHIPPED, of which one is enough. Raises FettleError if none
    answers, or one refuses to."""
    servers = tuple(given) or AS_SHIPPED
    found: dict[str, Any] = {}
    failed: dict[str, FettleError] = {}
    for server in servers:
        try:
            found[server] = fetch(server, path, query)
        except Answered:
            raise
        except FettleError as error:
            failed[server] = error
    if not found:
        raise next(iter(failed.values()))
    missing = failed.values() if servers != AS_SHIPPED else ()
    return OfAll(found, [f"what it decided is not here: {error}" for error in missing])


def list_decisions(servers: Sequence[str], since: str, wanted: dict[str, str], output: str) -> None:
    """Print the decisions of running Fettles; `wanted`: what they must be about, "" for any."""
    query = {"since": since, **{key: value for key, value in wanted.items() if value}}
    data = _of_all(ask_all(servers, "/decisions", query))
    if is_plain(output):
        print_plain(data, output)
        return
    if output == "name":
        for named in dict.fromkeys(map(_object, data["decisions"])):
            click.echo(named)
        return
    from rich.markup import escape

    out = console(wide=output == "wide")
    data = readable(data)
    found = data["decisions"]
    if found:
        out.print(_table(found, wide=output == "wide"))
    else:
        out.print(f"nothing was decided within {since}" + (", of this" if len(query) > 1 else ""))
    if data["leftOut"]:
        out.print(f"[dim]{data['leftOut']} older ones are not shown[/]")
    for note in data["notes"]:
        out.print(f"[dim]{escape(note)}[/]")


def _of_all(answers: OfAll) -> dict[str, Any]:
    """The answers to `/decisions` as one, the newest decision first."""
    told = list(answers.by_server.values())
    records = [msgspec.convert(answer["decisions"], list[Decision]) for answer in told]
    kept = {one.id for one in merged(records)}
    rows = {one["id"]: one for answer in told for one in answer["decisions"] if one["id"] in kept}
    return {
        "version": told[0]["version"],
        "notes": answers.all_notes(),
        "leftOut": sum(answer["leftOut"] for answer in told),
        "decisions": sorted(rows.values(), key=lambda one: -one["last"]),
    }


def _table(found: list[dict[str, Any]], *, wide: bool) -> Any:
    from rich.markup import escape

    names: tuple[str, ...]
    if wide:
        names = ("TIME", "VERB", "OBJECT", "POLICY", "MODE", "DECIDED", "WHY", "BOUND TO", "NOW")
    else:
        names = ("AGE", "VERB", "OBJECT", "DECIDED", "NODES", "TIMES", "NOW", "WHY")
    table = new_table(*names)
    for one in found:
        cells = _cells(one, wide=wide)
        table.add_row(*(escape(cells[name]) for name in names))
    return table


def _object(one: dict[str, Any]) -> str:
    return f"{one.get('kind', 'Pod').lower()} {one['key']}"


def _cells(one: dict[str, Any], *, wide: bool) -> dict[str, str]:
    kind = one.get("kind", "Pod")
    name = one["key"] if kind == "Pod" else f"{kind} {one['key']}"
    owner = f" ({one['owner']})" if one.get("owner") else ""
    return {
        "TIME": shown_time(one["last"]),
        "AGE": shown_age(one["last"]),
        "VERB": one["verb"],
        "OBJECT": name + owner,
        "POLICY": one.get("policy", ""),
        "MODE": one.get("mode", "enforce"),
        "DECIDED": decided(one) if wide else _word(one),
        "NODES": _of_nodes(one),
        "TIMES": str(one["count"]) if one.get("count", 1) > 1 else "",
        "WHY": why(one),
        "BOUND TO": (one.get("placed") or {}).get("node", ""),
        "NOW": became(one),
    }


def decision_line(one: dict[str, Any]) -> str:
    """A decision in one line."""
    parts = (shown_time(one["last"]), one["verb"], decided(one), why(one))
    bound = (one.get("placed") or {}).get("node", "")
    end = f"{became(one)} on {bound}" if bound else became(one)
    return "  ".join(filter(None, (*parts, end)))


def decided(one: dict[str, Any]) -> str:
    """What was decided, of how many nodes, and how often."""
    nodes = ""
    if of_nodes := _of_nodes(one):
        nodes = f"{' to' if one['decided'] == 'narrowed' else ''} {of_nodes} nodes"
    times = f", {one['count']} times" if one.get("count", 1) > 1 else ""
    return f"{_word(one)}{nodes}{times}"


def _word(one: dict[str, Any]) -> str:
    word = "would write" if one["decided"] == "wouldWrite" else str(one["decided"])
    if one.get("mode") in _WOULD and word in ("refused", "narrowed", "denied", "injected"):
        steers = one["mode"] == "steer" and word == "injected"
        word = word if steers else f"would be {word}"
    return word


def _of_nodes(one: dict[str, Any]) -> str:
    """Of how many nodes how many were refused, or else were left; "" if it is about none."""
    asked, refused = one.get("nodes", 0), one.get("refused", 0)
    if not asked:
        return ""
    return f"{refused if one['decided'] == 'refused' else asked - refused} of {asked}"


def why(one: dict[str, Any]) -> str:
    """The commonest reasons by code, or what was preferred; what the steward wrote, and why."""
    counts = sorted((one.get("reasons") or {}).items(), key=lambda item: -item[1])
    shown = [_counted(one, code, n) for code, n in counts[:MOST_REASONS]]
    if len(counts) > MOST_REASONS:
        shown.append(f"and {len(counts) - MOST_REASONS} more")
    if until := one.get("waitsUntil"):
        shown.append(f"takes Degraded devices from {shown_time(until)} on")
    best = one.get("preferred") or {}
    if best and not counts:
        score = next(iter(best.values()))
        shown.append(f"best: {', '.join(best)} (score {score})")
    if one.get("verb") == "steward":
        return f"{', '.join(shown)}: {one['why']}"
    return ", ".join(shown) or one.get("why", "")


def _counted(one: dict[str, Any], code: str, number: int) -> str:
    """A reason, with how many nodes, or findings of the webhook, it is about."""
    if one.get("nodes"):
        return f"{code} on {number} node{'s' if number > 1 else ''}"
    return f"{code} {number} times" if number > 1 else code


def became(one: dict[str, Any]) -> str:
    """What became of the pod, and why it ended."""
    if one["verb"] in ("mutate", "validate", "steward"):
        return ""
    end = f": {one['end']}" if one.get("end") else ""
    on = (one.get("placed") or {}).get("reasons")
    beside = f" (its node: {', '.join(on)})" if on else ""
    return f"{one.get('became') or 'pending'}{end}{beside}"
