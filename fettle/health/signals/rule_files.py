"""Reads the rule tables, once at start: the shipped rows are data in `rules/*.yaml`; an operator's
rules file adds rows, or replaces those of the same name.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

import msgspec

from fettle.api import describe_error
from fettle.config import parse_yaml
from fettle.health.signals.rule_rows import (
    ActionRow,
    AlertRow,
    AnnotationRow,
    AttributeRow,
    ConditionRow,
    DeviceConditionRow,
    EventRow,
    ExporterRow,
    FamilyRow,
    LabelRow,
    MetricRow,
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
from fettle.health.signals.rule_tables import UNCLASSIFIED, UNKNOWN_XID, SignalRules
from fettle.model import SettingsError

TABLES: Mapping[str, type[RuleRow]] = {
    "families": FamilyRow,
    "signals": SignalRow,
    "xid_classes": XidClassRow,
    "xids": XidRow,
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
}
_SHIPPED = (
    "scoring.yaml",
    "xids.yaml",
    "conditions.yaml",
    "clouds.yaml",
    "taints.yaml",
    "vendors.yaml",
    "devices.yaml",
    "labels.yaml",
    "refusals.yaml",
    "starts.yaml",
    "events.yaml",
    "metrics.yaml",
)


def load_rules(path: str | Path | None = None, text: str | None = None) -> SignalRules:
    """The shipped rules, with the rows of an operator's file. SettingsError names file, row and
    field. `text`: what the file holds, if it was read already."""
    tables = dict(_shipped())
    if path is not None:
        where = f"rules file {path}"
        own: dict[str, dict[str, RuleRow]] = {table: {} for table in TABLES}
        text = _read_file(Path(path), where) if text is None else text
        for table, row in _read_rows(text, where):
            own[table][row.name] = row
        _check_signals(own["signals"], tables["signals"], where)
        tables = {table: _over(own[table], shipped) for table, shipped in tables.items()}
    else:
        where = "shipped rules"
    _check_classes(tables, where)
    _check_exporters(tables, where)
    conditions = tables["conditions"].values()
    tables["conditions"] = {r.name: r for r in sorted(conditions, key=_breadth)}
    return SignalRules(**cast(dict[str, Any], tables))


@cache
def _shipped() -> Mapping[str, dict[str, RuleRow]]:
    tables: dict[str, dict[str, RuleRow]] = {table: {} for table in TABLES}
    for name in _SHIPPED:
        text = resources.files(__package__).joinpath("rules", name).read_text(encoding="utf-8")
        for table, row in _read_rows(text, f"rules file {name}"):
            tables[table][row.name] = row
    return tables


def _over(own: dict[str, RuleRow], shipped: dict[str, RuleRow]) -> dict[str, RuleRow]:
    """Replaced rows keep their place; new rows come first."""
    new = {name: row for name, row in own.items() if name not in shipped}
    return new | {name: own.get(name, row) for name, row in shipped.items()}


def _breadth(row: RuleRow) -> tuple[bool, bool, bool]:
    """Sorts rows that name a type before patterns, those for every type last, and among them rows
    that name a reason first."""
    assert isinstance(row, ConditionRow)
    return row.is_pattern, row.type == "*", row.reason == "*"


def _read_file(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: not valid UTF-8: {error}") from error


def _read_rows(text: str, where: str) -> Iterator[tuple[str, RuleRow]]:
    try:
        data: Any = parse_yaml(text)
    except ValueError as error:
        raise SettingsError(f"{where}: invalid YAML: {error}") from error
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
            yield table, read_row(table, entry, position, where)


def read_row(table: str, entry: Any, position: int, where: str) -> RuleRow:
    """One row of a file; raises SettingsError."""
    if not isinstance(entry, dict) or "name" not in entry:
        raise SettingsError(f"{where}: {table}, row {position}: a row needs a name")
    name = str(entry["name"])  # YAML reads an XID as a number
    try:
        return msgspec.convert({**entry, "name": name}, TABLES[table])
    except msgspec.ValidationError as error:
        problem = describe_error(error, TABLES[table])
        raise SettingsError(f"{where}: {table}, row {name!r}: {problem}") from error


def _check_signals(own: Mapping[str, RuleRow], shipped: Mapping[str, RuleRow], where: str) -> None:
    """Fettle derives signals by name, so a signal that is not shipped would never count."""
    for name in own:
        if name not in shipped:
            raise SettingsError(
                f"{where}: signals, row {name!r}: unknown signal; "
                f"expected one of {', '.join(shipped)}"
            )


def _check_classes(tables: Mapping[str, Mapping[str, RuleRow]], where: str) -> None:
    classes = tables["xid_classes"]
    assert UNCLASSIFIED in classes
    assert UNKNOWN_XID in classes
    for table in ("xids", "recoveries"):
        for row in tables[table].values():
            assert isinstance(row, XidRow | RecoveryRow)
            if row.class_ not in classes:
                raise SettingsError(
                    f"{where}: {table}, row {row.name!r}: class: unknown class {row.class_!r}; "
                    f"expected one of {', '.join(classes)}"
                )


def _check_exporters(tables: Mapping[str, Mapping[str, RuleRow]], where: str) -> None:
    exporters = tables["exporters"]
    for table in ("metrics", "alerts"):
        for row in tables[table].values():
            assert isinstance(row, MetricRow | AlertRow)
            if row.exporter not in exporters:
                raise SettingsError(
                    f"{where}: {table}, row {row.name!r}: exporter: unknown exporter "
                    f"{row.exporter!r}; expected one of {', '.join(exporters)}"
                )
    for name in tables["alerts"].keys() & tables["metrics"].keys():
        raise SettingsError(f"{where}: alerts, row {name!r}: a row of metrics has that name too")


def _type_name(value: object) -> str:
    return "list" if isinstance(value, list) else type(value).__name__
