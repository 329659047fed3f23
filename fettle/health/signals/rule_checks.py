"""All mistakes in an operator's rules file, for people: each with its row, and what to do. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import msgspec

from fettle.health.signals.object_rows import ObjectRow
from fettle.health.signals.rule_files import (
    TABLES,
    across_rows,
    by_table,
    load_rules,
    make_rules,
    name_of,
    parse_tables,
    read_row,
)
from fettle.health.signals.rule_rows import ConditionRow, RuleRow
from fettle.health.signals.rule_tables import UNKNOWN_XID, SignalRules
from fettle.model import Family, SettingsError


class RuleMistake(NamedTuple):
    """`path` is that of the field, such as `conditions[0].weight`; `row` its name."""

    path: str
    row: str
    problem: str
    fix: str


def is_rules_file(value: Any, *, certainly: bool = False) -> bool:
    """Whether a document holds rule tables. `certainly`: it can be nothing else."""
    if not isinstance(value, dict) or "kind" in value or not value:
        return False
    if not certainly:
        tables = [table in TABLES for table in value]
        rows = (isinstance(value[table], list) for table in value if table in TABLES)
        return all(tables) or any(rows) or all(_misspells(t, value[t]) for t in value)
    return all(
        table in TABLES
        and isinstance(entries, list)
        and entries
        and all(isinstance(entry, dict) and "name" in entry for entry in entries)
        for table, entries in value.items()
    )


def _misspells(table: Any, entries: Any) -> bool:
    return isinstance(entries, list) and bool(get_close_matches(str(table), TABLES, 1))


def rule_mistakes(text: str, file: str) -> list[RuleMistake]:
    """All that is wrong with a rules file that holds this text."""
    try:
        data = parse_tables(text)
    except ValueError as error:
        return [RuleMistake("", "", f"invalid YAML: {error}", "")]
    if data is None:
        return []
    if not isinstance(data, dict):
        problem = f"expected tables, not a {type(data).__name__}"
        return [RuleMistake("", "", problem, f"write tables: {', '.join(TABLES)}")]
    found: list[RuleMistake] = []
    sound, mended = [], []
    places: dict[tuple[str, str], str] = {}
    for table, entries in data.items():
        if (why := _no_table(table, entries)) is not None:
            found.append(why)
            continue
        names: set[str] = set()
        for at, entry in enumerate(entries):
            row, mistakes = _in_row(table, at, entry)
            if (name := name_of(entry)) in names and name:
                mistakes.append(_given_twice(table, at, name))
            names.add(name)
            found += mistakes
            if row is not None:
                places[table, row.name] = f"{table}[{at}]"
                mended.append((table, row))
                sound += [] if mistakes else [(table, row)]
    odd = [*across_rows(by_table(mended))]
    found += (RuleMistake(places[t, name], name, problem, "") for t, name, problem in odd)
    wrong = {(table, name) for table, name, _ in odd}
    rules = make_rules(by_table(one for one in sound if (one[0], one[1].name) not in wrong))
    return [*found, *_misspelt_codes(data.get("dcgm_codes")), *_never_matched(rules, data)]


def rows_about_objects(data: Mapping[str, Any]) -> Iterator[tuple[int, ObjectRow]]:
    """The rows about objects in a rules file that have no mistake by themselves, by their place."""
    entries = data.get("objects")
    for at, entry in enumerate(entries if isinstance(entries, list) else ()):
        row, mistakes = _in_row("objects", at, entry)
        if isinstance(row, ObjectRow) and not mistakes:
            yield at, row


def _misspelt_codes(entries: Any) -> Iterator[RuleMistake]:
    """DCGM's codes that are almost, but not quite, ones that exist. A number may be a new one."""
    shipped = load_rules().dcgm_codes
    for at, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = name_of(entry)
        if near := [] if name in shipped else get_close_matches(name, shipped, 1, _ALMOST):
            problem = f"it never counts: DCGM has no code {name!r}"
            yield RuleMistake(f"dcgm_codes[{at}].name", name, problem, f"write {near[0]}")


_ALMOST = 0.95


def _no_table(table: Any, entries: Any) -> RuleMistake | None:
    if table not in TABLES:
        near = get_close_matches(str(table), TABLES, 1)
        fix = f"write {near[0]}" if near else f"write one of {', '.join(TABLES)}"
        return RuleMistake(str(table), "", f"unknown table {table!r}", fix)
    if not isinstance(entries, list):
        problem = f"expected a list of rows, not a {type(entries).__name__}"
        return RuleMistake(table, "", problem, "begin each row with `- name: …`")
    return None


def _given_twice(table: str, at: int, name: str) -> RuleMistake:
    return RuleMistake(
        f"{table}[{at}].name",
        name,
        "a row above has the same name, and would be lost",
        "give each row a name of its own",
    )


def _in_row(table: str, at: int, entry: Any) -> tuple[RuleRow | None, list[RuleMistake]]:
    """The row, with stand-ins for what is wrong in it; None if it cannot be mended."""
    where, found = f"{table}[{at}]", []
    name = name_of(entry)
    if not name:
        fix = "begin it with `- name: …`: a shipped row of the same name is replaced"
        found.append(RuleMistake(where, "", f"row {at + 1} needs a name", fix))
        if not isinstance(entry, dict):
            return None, found
    known = {field.encode_name: field for field in msgspec.structs.fields(TABLES[table])}
    near = {f: get_close_matches(str(f), known, 1) for f in entry if f not in known}
    for field, meant in near.items():
        fix = f"write {meant[0]}" if meant else f"its fields are {', '.join(known)}"
        found.append(RuleMistake(f"{where}.{field}", name, f"unknown field {field!r}", fix))
    missing = {f for f, one in known.items() if one.required and f not in entry} - {"name"}
    if table == "metrics" and entry.get("kind") != "unknown" and not _WEIGHS & entry.keys():
        missing.add("weight")
    for field in sorted(missing.difference(*near.values())):
        fix = _MISSING.get(field, f"write {field}: …")
        found.append(RuleMistake(where, name, f"{field} is missing", fix))
    left = {f: v for f, v in entry.items() if f in known} | {f: _stand_in(f) for f in missing}
    left["name"] = name or _unnamed(table, at)
    stood_in = set(missing)
    for _ in known:
        try:
            return read_row(table, left, at + 1, ""), found
        except SettingsError as error:
            said = str(error).split(f"{left['name']!s}': ", 1)[-1]
        field = _field_of(said, known)
        if field in stood_in:
            break  # the stand-in does not suit
        fix = _wanted(field, said)
        problem = said.removeprefix(f"{field}: ")
        found.append(RuleMistake(f"{where}.{field}" if field else where, name, problem, fix))
        if not field:
            break
        left[field] = _unnamed(table, at) if field == "name" else _stand_in(field)
        stood_in.add(field)
    return None, found


def _unnamed(table: str, at: int) -> str:
    return str(at + 1) if table == "xids" else f"row-{at + 1}"


def _stand_in(field: str) -> Any:
    """Stands for a value that is wrong, so that the next mistake is found."""
    return _STAND_INS.get(field, "x")


_STAND_INS: Mapping[str, Any] = {
    "family": "bus",
    "kind": "level",
    "faulty": True,
    "tenant_caused": False,
    **dict.fromkeys(("weight", "cap", "together", "least"), 0.0),
    **dict.fromkeys(("half_life_s", "heartbeat_s"), 1.0),
    **dict.fromkeys(("format", "xid", "units", "resource", "until", "missed", "lost"), ""),
    "query": "x > 0",
    "effect": "*",
    "ends": (),
    "namespace": ("namespace",),
    "class": UNKNOWN_XID,
    "exporter": "dcgm",
    "apiVersion": "v1",
    "when": "true",
    "node": "''",
    "evidence": "level",
}
_WEIGHS = {"weight", "graded", "xid"}
"""Say what a metric weighs; without any it would be heard and have no effect."""
_MISSING = {
    "faulty": "say which status means a fault: `faulty: true` if True does, `faulty: false` if "
    "False does",
    "when": "write CEL over `resource` that is true if the object is a fault",
    "node": "write CEL over `resource` that gives the name of the node it is about",
    "source": "say where the rule comes from, such as `source: our burn-in job`",
    "family": f"write one of {', '.join(Family)}",
    "weight": "write the share of the score that it takes, 0 to 1; 0 is heard and has no effect",
    "tenant_caused": "say whether a pod's own requests can cause it: then it refuses nobody else",
}


def _field_of(said: str, known: Mapping[str, Any]) -> str:
    """The field that an error is about; "" if it does not say."""
    found = re.search(r"`\$\.(\w+)", said) or re.match(r"(\w+):", said)
    return found[1] if found is not None and found[1] in known else ""


def _wanted(field: str, said: str) -> str:
    match field:
        case "weight" | "cap" | "together" | "least":
            return "write a number from 0 to 1 without quotation marks"
        case "faulty":
            return _MISSING["faulty"]
        case "heartbeat_s" | "half_life_s":
            return "write a number of seconds above 0"
    if "look ahead or behind" in said:
        return (
            "write it without (?=, (?!, (?<= and (?<!, or take what stands beside into the pattern"
        )
    if "regular expression" in said:
        return "write `\\.` for a dot, and close each bracket"
    if "is not a valid Family" in said:
        return f"a row of families is named {', '.join(Family)}"
    if "Expected `str`" in said:
        return "quote it, since YAML reads it as something else, as with 'true' and '79'"
    return "write true or false without quotation marks" if "Expected `bool`" in said else ""


# --- rows that are never reached, since an earlier one matches all that they match

Covers = Callable[[Any, Any], bool]


def _pattern_covers(wide: str, narrow: str) -> bool:
    """Whether a pattern matches all that another one does, as far as that can be told."""
    if wide in ("*", narrow):
        return True
    return not re.search(r"[?\[]", wide) and fnmatchcase(narrow, wide)


def _regex_covers(wide: str, narrow: str) -> bool:
    literal = re.sub(r"\\([^\w\s])", r"\1", narrow)
    is_literal = re.escape(literal).replace("\\-", "-") == re.sub(r"(?<!\\)\.", ".", narrow)
    return wide == narrow or (is_literal and re.fullmatch(wide, literal) is not None)


def _search_covers(wide: str, narrow: str) -> bool:
    """For expressions that are searched for in a message."""
    if wide in ("", ".*", narrow):
        return True
    begins = narrow.removeprefix("^")
    literal = re.sub(r"\\([^\w\s])", r"\1", begins)
    is_literal = bool(begins) and not re.search(r"(?<!\\)[][()|*+?{}^$]", begins)
    return is_literal and re.search(wide, literal) is not None


_FIRST_WINS: Mapping[str, Mapping[str, Covers]] = {
    "conditions": {"type": _pattern_covers, "reason": _pattern_covers},
    "device_conditions": {
        "driver": _pattern_covers,
        "type": _pattern_covers,
        "reason": _pattern_covers,
    },
    "taints": {"driver": _pattern_covers, "key": _pattern_covers, "effect": _pattern_covers},
    "labels": {"key": _regex_covers, "value": _pattern_covers},
    "annotations": {"key": _regex_covers, "value": _pattern_covers},
    "refusals": {"message": _search_covers},
    "starts": {"message": _search_covers},
    "events": {
        "reason": _pattern_covers,
        "component": _pattern_covers,
        "message": _search_covers,
    },
}
"""Tables of which the first row that matches counts, and what is compared."""


def _never_matched(rules: SignalRules, data: Mapping[str, Any]) -> Iterator[RuleMistake]:
    for table, entries in data.items():
        fields = _FIRST_WINS.get(table)
        if fields is None or not isinstance(entries, list):
            continue
        rows: Sequence[RuleRow] = tuple(getattr(rules, table).values())
        own = {name_of(entry): at for at, entry in enumerate(entries)}
        for at, row in enumerate(rows):
            if row.name not in own:
                continue
            before = next((one for one in rows[:at] if _covers(one, row, fields)), None)
            if before is not None:
                whose = "of this file" if before.name in own else "that is shipped"
                yield RuleMistake(
                    f"{table}[{own[row.name]}]",
                    row.name,
                    f"it never counts: row {before.name!r} {whose} comes first, and matches all "
                    "that it does",
                    "put it first, or make the other one narrower"
                    if before.name in own
                    else f"name it {before.name!r} to replace that row",
                )


def rows_replaced(text: str, file: str) -> list[str]:
    """Which shipped rows the rows of a file count instead of, one sentence for each. Nothing of a
    file with mistakes."""
    if rule_mistakes(text, file):
        return []
    shipped, found = load_rules(), []
    for table, entries in (parse_tables(text) or {}).items():
        fields, rows = _FIRST_WINS.get(table, {}), getattr(shipped, table)
        for at, entry in enumerate(entries):
            row = read_row(table, entry, at + 1, file)
            if others := [*dict.fromkeys(_replaced(row, rows, fields))]:
                named = ", ".join(map(repr, others[:_MOST_REPLACED]))
                more = len(others) - _MOST_REPLACED
                named += f" and {more} more" if more > 0 else ""
                found.append(f"{file}: {table}, row {row.name!r} counts instead of shipped {named}")
    return found


_MOST_REPLACED = 5


def _replaced(
    own: RuleRow, shipped: Mapping[str, RuleRow], fields: Mapping[str, Covers]
) -> Iterator[str]:
    """The row of the same name, all rows that never count beside this one, and the one that would
    count without it. A row that matches everything comes last, so it replaces none."""
    if own.name in shipped:
        yield own.name
    if not fields or (isinstance(own, ConditionRow) and (own.type, own.reason) == ("*", "*")):
        return
    yield from (name for name, row in shipped.items() if _covers(own, row, fields))
    for name, row in shipped.items():
        if all(
            covers(getattr(row, field), getattr(own, field)) for field, covers in fields.items()
        ):
            yield name
            return


_MEANING = frozenset(
    ("name", "source", "family", "weight", "kind", "faulty", "xid", "heartbeat_s", "unknown_counts")
) | {"format", "tenant_caused", "remediated", "resource", "units", "dcgm", "ignored", "whole_node"}
"""Fields that say what a row means, and not what it matches."""


def _covers(wide: RuleRow, narrow: RuleRow, fields: Mapping[str, Covers]) -> bool:
    """A row with any other condition may match less than it seems."""
    others = (
        each
        for each in msgspec.structs.fields(type(wide))
        if each.encode_name not in _MEANING and each.encode_name not in fields
    )
    return all(getattr(wide, each.name) == each.default for each in others) and all(
        covers(getattr(wide, field), getattr(narrow, field)) for field, covers in fields.items()
    )
