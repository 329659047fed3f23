"""Prints for people what Fettle answers of pods: `fettle explain pod`, `pods` and `status`.

The worst comes first; of a pod's verdicts, the best. Many rows that are healthy and say the same
become one row.
"""

import json
import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import click

from fettle.cli.calling import fetch
from fettle.cli.sources import typed
from fettle.cli.tables import (
    console,
    is_plain,
    new_table,
    print_plain,
    readable,
    shown_age,
    shown_time,
)
from fettle.explain import LOWERED, SUSPECTED
from fettle.model import FettleError

AT_RISK = 3
"""The exit status of `fettle pods --at-risk` if there are any."""
LATELY_S = 3600.0
"""If a pod was bound so shortly before Fettle started, that is said: perhaps nobody could ask."""
FEW = 5
"""Up to this many rows that say the same are listed one by one."""
_STATES = ("Unhealthy", "Degraded", "Unknown", "Healthy")

_AnyRow = TypeVar("_AnyRow")


def owned_by(placed: dict[str, Any]) -> str:
    owner = placed["owner"]
    return f"{owner['kind']} {owner['name']}" if owner else "–"


def list_pods(server: str, output: str, asked: dict[str, str]) -> int:
    """Print pods that have a node; `asked`: what they must be, as `/pods` takes it. If those at
    risk are asked for, the exit status is 3 if there are some, and 1 if there may be some that are
    not seen."""
    asked = {name: value for name, value in asked.items() if value}
    at_risk = "at-risk" in asked
    data = fetch(server, "/pods", asked)
    if not data["pods"]:
        check_driver(server, asked.get("driver", ""))
    if is_plain(output):
        print_plain(data, output)
    elif output == "name":
        for pod in data["pods"]:
            click.echo(f"pod {pod['pod']}")
    else:
        is_narrow = bool(asked.keys() - {"at-risk"})
        wide = output == "wide"
        print_pods(readable(data), at_risk=at_risk, wide=wide, is_narrow=is_narrow)
    if at_risk and any(pod["atRisk"] for pod in data["pods"]):
        return AT_RISK
    return 1 if at_risk and data.get("unseen") else 0


def check_driver(server: str, driver: str) -> None:
    """Raises BadParameter if nothing has devices of this driver or resource, as far as that can be
    told: where nothing was found, it may be a slip."""
    if not driver:
        return
    try:
        known = fetch(server, "/status")["devices"]
    except FettleError:
        return
    if known and driver not in known:
        from fettle.explain import near  # late: it is beside what looks at views

        are = f"there are: {', '.join(sorted(known)[:MOST_LISTED])}"
        raise click.BadParameter(
            f"there are no devices of {driver[:80]!r}{near(driver, known)}; {are}",
            param_hint="'--driver'",
        )


def print_pods(
    data: dict[str, Any], *, at_risk: bool, wide: bool = False, is_narrow: bool = False
) -> None:
    """Print the answer of `/pods` as a table. `is_narrow`: only some were asked for."""
    from rich.markup import escape

    out = console(wide=wide)
    for problem in data["problems"]:
        out.print(f"[yellow]{escape(problem)}[/]")
    if not data["pods"]:
        said = _no_pods(at_risk=at_risk, may_be_hidden=bool(data.get("unseen")))
        out.print(f"{said}, of those that you ask for" if is_narrow else said)
        return
    started = None if "cluster" in data else data["startedAt"]
    refused = any(pod["since"] for pod in data["pods"])
    names: tuple[str, ...]
    if wide:
        names = ("POD", "OWNER", "POLICY", "NODE", "STATUS", "BOUND", "USE", "REFUSED SINCE", "WHY")
    else:
        refusal = ["REFUSED"] if refused else []
        names = ("POD", "POLICY", "NODE", "STATUS", "AGE", *refusal, "WHY")
    table = new_table(*names)
    for pod in data["pods"]:
        cells = {
            "POD": pod["pod"],
            "OWNER": owned_by(pod),
            "POLICY": pod["policy"],
            "NODE": pod["node"],
            "STATUS": pod["phase"],
            "BOUND": _bound(pod["boundAt"], started, shown_time),
            "AGE": _bound(pod["boundAt"], started, shown_age),
            "USE": pod["use"] or "–",
            "REFUSED": shown_age(pod["since"]),
            "REFUSED SINCE": shown_time(pod["since"]),
            "WHY": _why(pod),
        }
        table.add_row(*(escape(cells[name]) for name in names))
    out.print(table)
    if (left := data["total"] - len(data["pods"])) > 0:
        out.print(f"… {left} more")


def list_pods_by_devices(server: str, output: str, asked: dict[str, str]) -> None:
    """Print pods that have a node by how many devices they hold, and the worst of these."""
    data = fetch(server, "/pods", {name: value for name, value in asked.items() if value})
    if is_plain(output):
        print_plain(data, output)
        return
    data["pods"].sort(key=lambda pod: (-_held(pod), pod["pod"]))
    if output == "name":
        for pod in data["pods"]:
            click.echo(f"pod {pod['pod']}")
        return
    from rich.markup import escape

    told, out = readable(data), console()
    for problem in told["problems"]:
        out.print(f"[yellow]{escape(problem)}[/]")
    if not told["pods"]:
        out.print(_no_pods(at_risk=False, may_be_hidden=bool(told.get("unseen"))))
        return
    table = new_table("POD", "DEVICES", "NODE", "POLICY", "AT RISK", "AGE", "WORST DEVICE")
    for pod in told["pods"]:
        known = [one for one in pod["devices"] if "state" in one]
        worst = min(known, key=badness, default=None)
        said = "–" if worst is None else f"{worst['state']} {worst['score']:.2f}"
        risk = "yes" if pod["atRisk"] else "–"
        age = shown_age(pod["boundAt"])
        cells = (pod["pod"], str(_held(pod)), pod["node"], pod["policy"], risk, age, said)
        table.add_row(*map(escape, cells))
    out.print(table)
    if (left := told["total"] - len(told["pods"])) > 0:
        out.print(f"… {left} more")


def _held(pod: dict[str, Any]) -> int:
    """How many devices it holds for certain: units are counted, not named."""
    return int(sum(pod["units"].values())) + sum("device" in one for one in pod["devices"])


def _no_pods(*, at_risk: bool, may_be_hidden: bool) -> str:
    if at_risk:
        return f"no pod is {'seen ' if may_be_hidden else ''}on what its policy refuses"
    return f"no pod with devices {'is seen' if may_be_hidden else 'runs'}"


def _why(pod: dict[str, Any]) -> str:
    """The gravest reason why its policy refuses where the pod is, or else what it has."""
    if pod["worst"] is None:
        has = [device["device"] for device in pod["devices"] if "device" in device]
        return ", ".join([*(f"{count} {name}" for name, count in pod["units"].items()), *has])
    more = len(pod["refusals"]) - 1
    return f"{pod['worst']}{f' (+{more} more)' if more else ''}"


def _bound(at: float | None, started: float | None, shown: Callable[[float | None], str]) -> str:
    """When a pod was bound, and how long before Fettle started, if that is short. `started`: None
    if no Fettle was asked."""
    if at is None or started is None or not 0 <= (before := started - at) < LATELY_S:
        return shown(at)
    return f"{shown(at)}, {before:.0f} s before Fettle started"


def explain_policy(server: str, name: str, output: str) -> None:
    """Print a pod's policy, or one by name: each value with where it comes from."""
    data = fetch(server, "/policy", {"pod" if "/" in name else "name": name})
    if is_plain(output):
        print_plain(data, output)
        return
    from rich.markup import escape

    data, out = readable(data), console()
    origin = f", chosen by {data['origin']}" if data["origin"] else ""
    out.print(f"[bold]{escape(data['name'])}[/]  {data['source']}{escape(origin)}")
    for warning in data["warnings"]:
        out.print(f"[yellow]{escape(warning)}[/]")
    table = new_table("FIELD", "VALUE", "FROM")
    for value in data["values"]:
        said = "–" if value["value"] in (None, [], {}) else value["value"]
        shown = said if isinstance(said, str) else json.dumps(said)
        if value.get("note"):
            shown += f" ({value['note']})"
        table.add_row(value["field"], escape(shown), escape(value["from"]))
    out.print(table)
    for what in ("namespaces", "pods"):
        if data.get(what):
            out.print(f"{what}: {escape(', '.join(data[what]))}")


def show_status(server: str, output: str) -> int:
    """Print how the fleet is, in a few lines, and the process that is asked. The exit status is 1
    if that is not as it should be, or something cannot be seen."""
    data = fetch(server, "/status")
    if is_plain(output):
        print_plain(data, output)
    else:
        _print_status(readable(data), server.partition("#")[0])
    return status_code(data)


def status_code(data: dict[str, Any]) -> int:
    """The exit status that goes with the answer of `/status`."""
    process = data.get("process") or {}  # a server of before says nothing of itself
    if "cluster" in data:
        return 1 if data["unseen"] else 0
    over = any((one["endsAt"] or math.inf) < time.time() for one in process.get("certificates", ()))
    return 1 if data["problems"] or process.get("problems") or process.get("denied") or over else 0


def _print_status(data: dict[str, Any], server: str) -> None:
    from rich.markup import escape

    out = console()
    said_by = f"read from {data['cluster']}" if "cluster" in data else server
    for line in (said_by, *data["modes"]):
        out.print(escape(line))
    process = data.get("process")
    if process is None:
        for problem in data["problems"]:
            out.print(f"[yellow]{escape(problem)}[/]")
    else:
        for line, is_wrong in process_lines(process):
            shown = escape(typed(line))
            out.print(f"[yellow]{shown}[/]" if is_wrong else shown)
    for one in data["setAside"]:
        out.print(f"[bold red]{escape(one['text'])}[/]")
    for note in data.get("objectRules", ()):
        out.print(f"[yellow]{escape(note)}[/]")
    out.print(f"nodes with devices: {_counts(data['nodes'])}")
    for kind, counts in data["devices"].items():
        out.print(escape(f"{kind}: {_counts(counts)}"))
    for name, counts in data.get("missing", {}).items():
        nodes = "1 node" if counts["nodes"] == 1 else f"{counts['nodes']} nodes"
        said = f"{counts['devices']} {name} missing on {nodes}, {counts['lost']} lost"
        if undated := counts.get("undated", 0):  # a server of before says nothing of that
            said += f"; of {undated} it is not known for how long"
        said = typed(f"{said} (`fettle devices` names the nodes)")
        out.print(f"[yellow]{escape(said)}[/]", soft_wrap=True)
    pods = data["pods"]
    out.print(
        f"pods with devices: {pods['placed']} with a node, {pods['atRisk']} of them at risk; "
        f"{pods['waiting']} without one"
    )
    if number := data["quarantined"]:
        how = typed("`fettle devices` names them")
        said = f"objects that cannot be read: {number} ({escape(how)})"
        out.print(f"[yellow]{said}[/]", soft_wrap=True)
    for one in data.get("mechanisms", ()):
        out.print(escape(typed(f"{one['name']}: {_ACTS[one['acts']]}; {one['text']}")))


def process_lines(process: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Sentences about the process that was asked, and whether each says that something is wrong."""
    for problem in process["problems"]:
        yield f"not ready: {problem}", True
    if process["ready"]:
        yield f"ready, as {', '.join(process['roles']) or 'a page alone'}", False
    for role, ages in process["asked"].items():
        yield f"{role} last asked: {_asked(ages)}", False
    for note in process["callers"]:
        yield note, True
    synced = [one for one in process["sources"] if one["ageSeconds"] is not None and one["served"]]
    if synced:
        oldest = max(synced, key=lambda one: one["ageSeconds"])
        number = f"{len(synced)} of {len(process['sources'])} synced"
        quietest = f"{oldest['name']}, {oldest['ageSeconds']:.0f} s ago"
        yield f"sources: {number}; heard of the quietest, {quietest}", False
    for one in process["sources"]:
        if one["note"]:
            yield f"{one['name']}: {one['note']}", one["served"]
    if (leader := process["leader"]) is not None:
        who = "this process" if leader["here"] else leader["name"] or "nobody that it knows of"
        yield f"leader of the stewards: {who}", not leader["name"]
    for one in process["certificates"]:
        over = (one["endsAt"] or math.inf) < time.time()
        ends = f"{'expired' if over else 'valid until'} {shown_time(one['endsAt'])}"
        yield f"certificate of the {one['listener']} ({one['of']}): {ends}", over
    for text in process["denied"]:
        yield f"a right is missing: {text}", True


def _asked(ages: dict[str, float | None]) -> str:
    if all(age is None for age in ages.values()):
        return "never"
    told = (
        f"{name} {'never' if age is None else f'{age:.0f} s ago'}" for name, age in ages.items()
    )
    return ", ".join(told)


def _counts(by_state: dict[str, int]) -> str:
    """As 12, of these 1 Unhealthy, 2 Degraded."""
    bad = [f"{by_state[state]} {state}" for state in _STATES[:-1] if by_state.get(state)]
    return ", of these ".join(filter(None, (str(sum(by_state.values())), ", ".join(bad))))


_ACTS = {True: "acts here", False: "does nothing here", None: "not known"}
MOST_NAMED = 3
"""How many nodes of a joined row are named, and how many pods that use a device."""
MOST_LISTED = 10
"""How many holds, and conditions that no rule names, are listed."""
_OBEYED = {
    "Scheduler": "the scheduler itself obeys",
    "Fettle": "obeyed only while Fettle is asked",
}


def print_holds(out: Any, holds: Sequence[dict[str, Any]]) -> None:
    """What operators hold, and who obeys it."""
    from rich.markup import escape

    if holds:
        out.print("holds:")
    lines = [f"{one['subject']}: {one['text']}  [{_OBEYED[one['obeyedBy']]}]" for one in holds]
    for line in first(lines, MOST_LISTED, typed("`fettle devices -o json` has all")):
        out.print(f"  {escape(line)}")


def badness(health: dict[str, Any]) -> tuple[int, float]:
    """Sorts the worst first: by state, then by score as it is shown."""
    return _STATES.index(health["state"]), round(health["score"], 2)


def lowered(health: dict[str, Any]) -> str:
    """Why the score is worse than what refusals go by; "" if it is not."""
    if health.get("suspected"):
        return f", {SUSPECTED}"
    return f", {LOWERED}" if health["proven"] != health["score"] else ""


def has_news(health: dict[str, Any]) -> bool:
    """Whether there is anything to report; a state may outlast all evidence."""
    return bool(health["evidence"]) or not is_well(health)


def is_well(health: dict[str, Any]) -> bool:
    return bool(health["state"] == "Healthy")


def grouped(
    rows: Iterable[_AnyRow], key_of: Callable[[_AnyRow], Hashable | None]
) -> list[list[_AnyRow]]:
    """Rows in groups of equal keys, ordered by the first row of each group.

    A row whose key is None, or is shared by few rows, is a group of its own.
    """
    groups: dict[Hashable, list[_AnyRow]] = {}
    for at, row in enumerate(rows):
        key = key_of(row)
        groups.setdefault((at,) if key is None else ("key", key), []).append(row)
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) > FEW else [[row] for row in group])
    ]


def span(shown: Iterable[str]) -> str:
    """One score, or the first and the last of several; `shown` has the lowest first."""
    values = list(shown)
    return values[0] if values[0] == values[-1] else f"{values[0]}–{values[-1]}"


def first(names: list[str], most: int, rest: str = "") -> list[str]:
    """`rest` says how to see the others.

    >>> first(["a", "b", "c"], 1, "--all")
    ['a', '… 2 more (--all)']
    """
    more, how = len(names) - most, f" ({rest})" if rest else ""
    return [*names[:most], *([f"… {more} more{how}"] if more > 0 else [])]
