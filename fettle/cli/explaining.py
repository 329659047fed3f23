"""Prints one node or device for people: `fettle explain node` and `fettle explain device`."""

import shlex
from collections.abc import Iterable
from typing import Any

from fettle.cli.calling import fetch
from fettle.cli.device_tables import device_table, print_missing
from fettle.cli.printing import MOST_NAMED, badness, has_news, lowered, print_holds
from fettle.cli.sources import typed
from fettle.cli.tables import console, is_plain, new_table, print_plain, readable, shown_time
from fettle.explain import describe_code, list_codes, taint_in_words
from fettle.model import BadInput

_AGES = {
    "latched": "until it is cleared",
    "level": "while it stands",
    "decaying": "28 days",
    "unknown": "while it lasts",
}
"""What does not halve: of what decays, that is the record of 28 days."""
_EVENT = "docs/troubleshooting.md says what to do."
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def explain_node(server: str, name: str, output: str) -> None:
    """Print a node's health, and its devices that are not sound."""
    data = fetch(server, "/explain", {"node": name})
    if is_plain(output):
        print_plain(data, output)
        return
    print_node(readable(data))


def explain_device(server: str, name: str, output: str) -> None:
    """Print the health of a device or unit."""
    data = fetch(server, "/explain", {"device": name})
    if is_plain(output):
        print_plain(data, output)
        return
    print_device(readable(data))


def explain_reason(code: str, output: str) -> None:
    """Print what a reason code means; "" for a list of all."""
    told = _described(code) if code else list_codes()
    if is_plain(output):
        print_plain(told, output)
        return
    from rich.markup import escape

    out = console()
    if isinstance(told, list):
        table = new_table("CODE", "KIND", "MEANING")
        for one in told:
            table.add_row(*map(escape, (one["code"], one["kind"], one["about"])))
        out.print(table)
        return
    out.print(f"[bold]{told['code']}[/]: {escape(told['about'])}")
    out.print(f"{escape(told['kind'])}. {escape(told['effect'])}")
    if told["fields"]:
        out.print(f"in JSON it has {', '.join(told['fields'])}")


def _described(code: str) -> dict[str, Any]:
    """Raises BadInput if it is neither the code of a reason nor that of an Event."""
    if code[:3].upper() == "FTL" and code[3:].isdecimal():
        rule = code[:80].upper()
        raise BadInput(f"{rule} is a rule of `fettle lint`: `fettle rules {rule}` explains it")
    try:
        return describe_code(code)
    except BadInput:
        from fettle.cli.json_reference import event_reasons  # reads the code

        for name, when, _ in event_reasons():
            if name.lower() == code.lower():
                event = {"code": name, "about": f"{when[0].upper()}{when[1:]}", "fields": []}
                return {**event, "kind": "The reason of an Event", "effect": _EVENT}
        raise


def print_node(data: dict[str, Any]) -> None:
    from rich.markup import escape

    out = console()
    number, state = data.get("devicesByState", {}), data["state"]
    withdrawn = sum(max(0, one["capacity"] - one["allocatable"]) for one in data["resources"])
    if withdrawn:
        states = "the node itself " if [*number] == ["Healthy"] else _by_state(number)
        before = f"{withdrawn} of {sum(number.values())} devices not offered; {states}"
        after = ""
    elif [*number] == [state]:
        before, after = "", f"; all {number[state]} devices {state}"
    else:
        before, after = _by_state(number), ""
    _print_health(out, f"node {data['node']}", data, before=before, after=after)
    if data["usedBy"]:
        out.print(f"pods with devices here: {escape(_named(data['usedBy']))}")
    for one in data["resources"]:
        out.print(escape(f"{one['resource']}: {one['allocatable']} of {one['capacity']} offered"))
    print_missing(out, [data], everything=True)
    for one in data.get("newDrivers", ()):
        until, text = shown_time(one["until"]), f"{one['version']} instead of {one['former']}"
        out.print(escape(f"its driver of {one['name']} is new until {until}: {text}"))
    if marks := data.get("marks"):
        out.print(escape(f"Fettle has written on it: {marks['text']}"))
    for one in data["disputed"]:
        out.print(f"[yellow]{escape(one['text'])}[/]")
    for text in data["quarantined"]:
        out.print(f"[yellow]cannot be read: {escape(text)}[/]")
    _print_evidence(out, data, of="the node itself")
    own = {**data, "evidence": [], "state": "Healthy"}  # the node was shown above
    if name := next((name for name, one in _devices_of(data) if has_news(one)), ""):
        how = typed(f"`fettle explain device {shlex.quote(name)}` tells more of the first")
        out.print(f"\n{escape(f'its devices ({how}):')}", soft_wrap=True)
        out.print(device_table({"nodes": [own], "network": []}, everything=False, wide=False))
    if unknown := data["unknownSignals"]:
        said = (f"{one['condition']} is {one['statuses'][0]['status']}" for one in unknown)
        out.print(escape(f"what no rule names: {', '.join(said)}"))


def _devices_of(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Devices and units of a node with their full names, the worst first."""
    found = [(d["device"], d) for d in data["devices"]]
    for one in data["resources"]:
        found += [(f"{data['node']}/{one['resource']}/{u['unit']}", u) for u in one["units"]]
    return sorted(found, key=lambda each: badness(each[1]))


def print_device(data: dict[str, Any]) -> None:
    from rich.markup import escape

    out = console()
    _print_health(out, data["name"], data)
    where = f"on node {data['node']}" if data["node"] else "of the network"
    about = "; ".join(filter(None, (where, data.get("about"), data.get("withheld"))))
    out.print(escape(about))
    out.print(escape(f"used by: {users_in_words(data)}"))
    if taint := data.get("taint"):
        out.print(escape(taint_in_words(taint)))
    _print_evidence(out, data)


_WORST_FIRST = ("Unhealthy", "Degraded", "Unknown", "Healthy")


def _by_state(number: dict[str, int]) -> str:
    """How many devices a node has in each state, the worst first; "" if it has none."""
    told = ", ".join(f"{number[state]} {state}" for state in _WORST_FIRST if number.get(state))
    return f"{told} of {sum(number.values())} devices; the node itself " if told else ""


def _print_health(
    out: Any, what: str, data: dict[str, Any], *, before: str = "", after: str = ""
) -> None:
    from rich.markup import escape

    since = f" since {shown_time(data['since'])}" if data["since"] else ""
    proven = f"{words} ({data['proven']:.2f} without)" if (words := lowered(data)) else ""
    health = f"{data['state']} {data['score']:.2f}{proven}{since}"
    out.print(f"[bold]{escape(what)}[/]  {before}{health}{after}")
    for problem in data["problems"]:
        out.print(f"[yellow]{escape(problem)}[/]")
    for one in data["setAside"]:
        out.print(f"[bold red]{escape(one['text'])}[/]")
    if data["kept"]:
        out.print(escape(data["kept"]))
    if again := data["healthyAgain"]:
        if len(again["awaits"]) > 1:
            out.print(escape(again["text"].partition(": ")[0] + ":"))
            for one in again["awaits"]:
                out.print(f"  {escape(typed(one['text']))}")
        else:
            out.print(escape(typed(again["text"])))


def _print_evidence(out: Any, data: dict[str, Any], of: str = "it") -> None:
    from rich.markup import escape

    if data["evidence"]:
        out.print()
        table = new_table("WEIGHT", "AGE", "COUNTS", "EVIDENCE", "FROM")
        shown = set()  # a monitor may say the same of a device and of its node
        for one in data["evidence"]:
            half_life = one["halfLifeSeconds"]
            counts = f"halves every {span_of(half_life)}" if half_life else _AGES[one["kind"]]
            by = f"{one['source']}, {one['reporter']}"
            if namespace := one["reportingNamespace"]:
                by += f"; only by namespace {namespace}: lowers the score, refuses nothing"
            cells = (f"-{one['weight']:.2f}", span_of(one["ageSeconds"]), counts, one["text"], by)
            if cells not in shown:
                shown.add(cells)
                table.add_row(*map(escape, cells))
        out.print(table)
    else:
        out.print(f"no evidence is against {of}")
    if data["episodes"]:
        out.print("\nin the last 28 days:")
    for line in episode_lines(data["episodes"]):
        out.print(f"  {escape(line)}")
    print_holds(out, data["holds"])


def episode_lines(episodes: Iterable[dict[str, Any]]) -> list[str]:
    """Each state for each cause once: how often it was so, the worst score, and the last time."""
    alike: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in episodes:
        alike.setdefault((one["state"], one["text"]), []).append(one)
    lines = []
    for (state, text), those in alike.items():
        last = max(those, key=lambda one: one["start"])
        end = shown_time(last["end"]) if last["end"] is not None else "now"
        often = f"{len(those)} times, at last " if len(those) > 1 else ""
        score = min(one["score"] for one in those)
        said = f": {text}" if text else ""
        lines.append(f"{state} {score:.2f} {often}{shown_time(last['start'])} to {end}{said}")
    return lines


def users_in_words(data: dict[str, Any]) -> str:
    if data["use"] == "nobody":
        return "nobody"
    possible = f"possibly {_named(data['possiblyUsedBy'])}" if data["possiblyUsedBy"] else ""
    return ", ".join(filter(None, (_named(data["usedBy"]), possible))) or "nobody knows"


def _named(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join([*names[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def span_of(seconds: float) -> str:
    """As 3 d 4 h, 12 min or 40 s: at most two parts, the one after the other."""
    left = round(seconds)
    for at, (size, unit) in enumerate(_UNITS):
        if left >= size:
            said = f"{left // size} {unit}"
            for smaller, its_unit in _UNITS[at + 1 : at + 2]:
                if more := left % size // smaller:
                    said += f" {more} {its_unit}"
            return said
    return "0 s"
