"""Reads the rule tables, once at start: the shipped rows are data in `rules/*.yaml`; an operator's
rules file adds rows, or replaces those of the same name.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from fettle.api import describe_error
from fettle.cel import ExpressionRead, read_expressions
from fettle.config import parse_yaml
from fettle.health.signals import promql
from fettle.health.signals.metric_rows import HOLE, AlertRow, ExporterRow, MetricRow
from fettle.health.signals.object_rows import ObjectRow, quoted
from fettle.health.signals.rule_rows import (
    ActionRow,
    AnnotationRow,
    AttributeRow,
    ConditionRow,
    DcgmRow,
    DeviceConditionRow,
    EventRow,
    FamilyRow,
    LabelRow,
    RecoveryRow,
    RefusalRow,
    RuleRow,
    SignalRow,
    StartRow,
    TaintRow,
    VendorRow,
    XidClassRow,
    XidRow,
)
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import SettingsError, WorkerError

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

Tables = Mapping[str, Mapping[str, RuleRow]]
TABLES: Mapping[str, type[RuleRow]] = {
    "families": FamilyRow,
    "signals": SignalRow,
    "xid_classes": XidClassRow,
    "xids": XidRow,
    "dcgm_codes": DcgmRow,
    "recoveries": RecoveryRow,
    "actions": ActionRow,
    "conditions": ConditionRow,
    "device_conditions": DeviceConditionRow,
    "taints": TaintRow,
    "annotations": AnnotationRow,
    "attributes": AttributeRow,
    "vendors": VendorRow,
    "labels": LabelRow,
    "refusals": RefusalRow,
    "starts": StartRow,
    "events": EventRow,
    "exporters": ExporterRow,
    "metrics": MetricRow,
    "alerts": AlertRow,
    "objects": ObjectRow,
}
_SHIPPED = (
    "scoring.yaml",
    "xids.yaml",
    "dcgm.yaml",
    "conditions.yaml",
    "clouds.yaml",
    "oke.yaml",
    "taints.yaml",
    "vendors.yaml",
    "devices.yaml",
    "labels.yaml",
    "maintenance.yaml",
    "refusals.yaml",
    "starts.yaml",
    "events.yaml",
    "metrics.yaml",
)


_FORMER_FIELDS = {"provoked": "tenant_caused"}
_FORMER_SIGNALS = {"provoked": "tenant-caused", "provoked-metric": "tenant-caused-metric"}
"""Names until the last version. The next version does not need them any more."""


def parse_tables(text: str) -> Any:
    """As `parse_yaml`, and gives fields and signals that were renamed their new names."""
    data = parse_yaml(text)
    for table, entries in data.items() if isinstance(data, dict) else ():
        for entry in entries if isinstance(entries, list) else ():
            if not isinstance(entry, dict):
                continue
            for old, new in _FORMER_FIELDS.items():
                if old in entry and new not in entry:
                    entry[new] = entry.pop(old)
            if table == "signals" and (name := _FORMER_SIGNALS.get(name_of(entry))):
                entry["name"] = name
    return data


def load_rules(path: str | Path | None = None, text: str | None = None) -> SignalRules:
    """The shipped rules, with the rows of an operator's file. SettingsError names file, row and
    field. `text`: what the file holds, if it was read already."""
    return make_rules(by_table(()) if path is None else own_rows(path, text))


def own_rows(path: str | Path, text: str | None = None) -> Tables:
    """The rows of an operator's file. SettingsError names file, row and field."""
    where = f"rules file {path}"
    text = _read_file(Path(path), where) if text is None else text
    own = by_table(_read_rows(text, where, read_row))
    for table, name, problem in across_rows(own):
        raise SettingsError(f"{where}: {table}, row {name!r}: {problem}")
    return own


def by_table(rows: Iterable[tuple[str, RuleRow]]) -> Tables:
    """Rows by the table that each is for, and name."""
    tables: dict[str, dict[str, RuleRow]] = {table: {} for table in TABLES}
    for table, row in rows:
        tables[table][row.name] = row
    return tables


def rules_without(own: Tables, table: str, name: str) -> SignalRules:
    """As if a row of an operator's file were not in it."""
    left = {other: row for other, row in own[table].items() if other != name}
    return make_rules({**own, table: left})


def make_rules(own: Tables) -> SignalRules:
    """The shipped rows, with these."""
    tables = {table: _over(own[table], shipped) for table, shipped in _shipped().items()}
    conditions = tables["conditions"].values()
    order = sorted(conditions, key=lambda row: _place(row, row.name in own["conditions"]))
    tables["conditions"] = {row.name: row for row in order}
    tables["dcgm_codes"] = _by_every_name(own["dcgm_codes"])
    return SignalRules(**cast(dict[str, Any], tables))


def _by_every_name(own: Mapping[str, RuleRow]) -> dict[str, RuleRow]:
    """DCGM's codes by number and by name, an operator's row by whichever it gives, and its own."""
    found: dict[str, RuleRow] = dict(own)
    for row in _shipped()["dcgm_codes"].values():
        assert isinstance(row, DcgmRow)
        names = [*filter(None, (row.name, row.code, row.formerly))]
        instead = next((own[name] for name in names if name in own), row)
        found |= dict.fromkeys(names, instead)
    return found


@cache
def _shipped() -> Tables:
    files = resources.files(__package__).joinpath("rules")
    texts = {name: files.joinpath(name).read_text(encoding="utf-8") for name in _SHIPPED}
    found = by_table(
        row
        for name, text in texts.items()
        # Not by `parse_yaml`: every start would take 0.3 s longer, for sentences about mistakes.
        for row in _rows_of(yaml.load(text, Loader=_Loader), f"rules file {name}", _convert)
    )
    assert not [*_unknown_names(found)]
    return found


def _over(own: Mapping[str, RuleRow], shipped: Mapping[str, RuleRow]) -> dict[str, RuleRow]:
    """Replaced rows keep their place; new rows come first."""
    new = {name: row for name, row in own.items() if name not in shipped}
    return new | {name: own.get(name, row) for name, row in shipped.items()}


def _place(row: RuleRow, is_own: bool) -> tuple[bool, bool, bool, bool]:
    """Sorts an operator's rows first, unless they match everything; then rows that name a type
    before patterns, those for every type last, and among them rows that name a reason first."""
    assert isinstance(row, ConditionRow)
    of_every, of_any = row.type == "*", row.reason == "*"
    return not is_own or (of_every and of_any), row.is_pattern, of_every, of_any


def _read_file(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: not valid UTF-8: {error}") from error


ReadRow = Callable[[str, Any, int, str], RuleRow]


def _read_rows(text: str, where: str, read: ReadRow) -> Iterator[tuple[str, RuleRow]]:
    try:
        data = parse_tables(text)
    except ValueError as error:
        raise SettingsError(f"{where}: invalid YAML: {error}") from error
    yield from _rows_of(data, where, read)


def _rows_of(data: Any, where: str, read: ReadRow) -> Iterator[tuple[str, RuleRow]]:
    if data is None:
        return
    if not isinstance(data, dict):
        raise SettingsError(
            f"{where}: expected tables ({', '.join(TABLES)}), not a {_type_name(data)}"
        )
    for table, entries in data.items():
        if table not in TABLES:
            raise SettingsError(
                f"{where}: unknown table {table!r}; expected one of {', '.join(TABLES)}"
            )
        if not isinstance(entries, list):
            raise SettingsError(
                f"{where}: {table}: expected a list of rows, not a {_type_name(entries)}"
            )
        for position, entry in enumerate(entries, start=1):
            yield table, read(table, entry, position, where)


def name_of(entry: Any) -> str:
    """The name of a row; "" if it has none. YAML reads an XID as a number."""
    name = entry.get("name") if isinstance(entry, dict) else None
    return str(name).strip() if isinstance(name, str | int) and not isinstance(name, bool) else ""


def read_row(table: str, entry: Any, position: int, where: str) -> RuleRow:
    """One row of an operator's file; raises SettingsError."""
    row = _convert(table, entry, position, where)
    if isinstance(row, MetricRow) and (problem := _query_mistake(row)):
        raise SettingsError(f"{where}: {table}, row {row.name!r}: {problem}")
    return row


def _query_mistake(row: MetricRow) -> str:
    from fettle.health.signals import promql_checks

    for field, query in row.asked.items():
        if why := promql_checks.complaint(query):
            return f"{field}: {why}"
    if row.compared or row.gone_is_over or promql_checks.has_threshold(row.query):
        return ""
    return (
        "query: it has no threshold, so every series would be a fault; compare it, as in "
        "`… > 95`, or write gone_is_over: true if its series exist only while the fault does"
    )


def _convert(table: str, entry: Any, position: int, where: str) -> RuleRow:
    name = name_of(entry)
    if not name:
        raise SettingsError(f"{where}: {table}, row {position}: a row needs a name")
    try:
        row = msgspec.convert({**entry, "name": name}, TABLES[table])
    except msgspec.ValidationError as error:
        problem = describe_error(error, TABLES[table])
        raise SettingsError(f"{where}: {table}, row {name!r}: {problem}") from error
    for field in msgspec.structs.fields(TABLES[table]):
        if field.required and getattr(row, field.name) == "" and field.name not in _MAY_BE_EMPTY:
            problem = f"{field.encode_name}: must not be empty"
            raise SettingsError(f"{where}: {table}, row {name!r}: {problem}")
    return row


_MAY_BE_EMPTY = ("value",)
"""A label may have an empty value."""


def across_rows(own: Tables) -> Iterator[tuple[str, str, str]]:
    """What is wrong with rows of a file in view of others: table, name and problem."""
    # Fettle derives signals by name, so a signal that is not shipped would never count.
    signals = _shipped()["signals"]
    for name in own["signals"]:
        if name not in signals:
            expected = ", ".join(signals)
            yield "signals", name, f"unknown signal; expected one of {expected}"
    tables = {table: _over(own[table], shipped) for table, shipped in _shipped().items()}
    yield from _unknown_names(tables)
    if own["metrics"] or own["exporters"]:
        yield from _about_nothing(tables)
    yield from _unread_expressions(own["objects"].values())


def expressions_of(rows: Iterable[RuleRow]) -> Mapping[str, ExpressionRead]:
    """What is known of the expressions of rows about objects. Raises WorkerError."""
    found = [row for row in rows if isinstance(row, ObjectRow)]
    return read_expressions([text for row in found for text in row.texts])


def _unread_expressions(given: Iterable[RuleRow]) -> Iterator[tuple[str, str, str]]:
    rows = [row for row in given if isinstance(row, ObjectRow)]
    versions: dict[tuple[str, str], str] = {}
    for row in rows:
        known = versions.setdefault((row.of.group, row.of.kind), row.of.version)
        if known != row.of.version:
            why = f"a row above reads another version of {row.kind}, {known}"
            yield "objects", row.name, f"apiVersion: {why}"
    try:
        read = expressions_of(rows)
    except WorkerError as error:
        yield from (("objects", row.name, f"when: {error}") for row in rows[:1])
        return
    for row in rows:
        for field, text in row.by_field:
            if problem := read[text].problem:
                yield "objects", row.name, f"{field}: {quoted(text)}: {problem}"


def _unknown_names(tables: Tables) -> Iterator[tuple[str, str, str]]:
    """Rows that name a row of another table which is not there, or is there too often."""
    for table, field, others in _NAMED:
        known = tables[others]
        for row in tables[table].values():
            if (value := getattr(row, field)) not in known:
                word = field.rstrip("_")
                problem = f"{word}: unknown {word} {value!r}; expected one of {', '.join(known)}"
                yield table, row.name, problem
    for name in sorted(tables["alerts"].keys() & tables["metrics"].keys()):
        yield "alerts", name, "a row of metrics has that name too"
    yield from _unfilled(tables)


def _about_nothing(tables: Tables) -> Iterator[tuple[str, str, str]]:
    """Queries whose series have no label that says which device each is about."""
    from fettle.health.signals import promql_checks

    for row in tables["metrics"].values():
        assert isinstance(row, MetricRow)
        exporter = tables["exporters"].get(row.exporter)
        if not isinstance(exporter, ExporterRow):
            continue
        device = {"device": exporter.device, "peers": exporter.peers}
        for field, query in row.asked.items():
            kept = promql_checks.can_have(promql.with_labels(query, device), exporter.device)
            if not exporter.names_a_device(kept):
                shown = exporter.pod if exporter.of_pods else exporter.uuid or exporter.node
                yield (
                    "metrics",
                    row.name,
                    f"{field}: it drops the labels that say which device a series is about, such "
                    f"as {shown[0]}; keep them with `by ($device)`, as in "
                    "`max by ($device) (…) > 95`",
                )


def _unfilled(tables: Tables) -> Iterator[tuple[str, str, str]]:
    """Rows that name a label, in their text or as that of the XID, which no series will have."""
    rows = ((table, row) for table in ("metrics", "alerts") for row in tables[table].values())
    for table, row in rows:
        assert isinstance(row, MetricRow | AlertRow)
        exporter = tables["exporters"].get(row.exporter)
        query, xid = (row.query, row.xid) if isinstance(row, MetricRow) else ("", "")
        labels = exporter.device if isinstance(exporter, ExporterRow) else ()
        known = ("value", "percent", "summary", *labels)
        named = [("text", hole, f"{{{hole}}}") for hole in HOLE.findall(row.text)]
        for field, name, shown in [*named, ("xid", xid, xid)]:
            if name in ("", *known) or re.search(rf"\b{re.escape(name)}\b", query):
                continue
            if near := get_close_matches(name, known, 1, 0.8):
                meant = shown.replace(name, near[0])
                yield table, row.name, f"{field}: nothing stands for {shown}; write {meant}"
            elif re.search(r"\bby\b", query):
                why = f"nothing stands for {shown}: the query keeps no label of that name"
                yield table, row.name, f"{field}: {why}"


_NAMED = (
    ("xids", "class_", "xid_classes"),
    ("recoveries", "class_", "xid_classes"),
    ("metrics", "exporter", "exporters"),
    ("alerts", "exporter", "exporters"),
)
"""Tables of which a field names a row of another one."""


def _type_name(value: object) -> str:
    return "list" if isinstance(value, list) else type(value).__name__
