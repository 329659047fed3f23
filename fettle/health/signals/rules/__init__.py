"""What facts weigh, as data: the shipped tables beside this file, and an operator's rows over them.

Read once at start. A rules file has one list of rows per table; a row replaces the shipped row of
the same name, and new rows are tried before shipped ones.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

import msgspec

from fettle.api import choices
from fettle.config import own_yaml
from fettle.health.signals.rules import rows
from fettle.health.signals.rules.rows import ConditionRow, RuleRow
from fettle.health.signals.rules.tables import UNCLASSIFIED, SignalRules, Xid
from fettle.model import SettingsError

__all__ = ["SignalRules", "Xid", "load"]

_TABLES: Mapping[str, type[RuleRow]] = {
    "families": rows.FamilyRow,
    "signals": rows.SignalRow,
    "xid_classes": rows.XidClassRow,
    "xids": rows.XidRow,
    "recoveries": rows.RecoveryRow,
    "actions": rows.ActionRow,
    "conditions": rows.ConditionRow,
    "device_conditions": rows.DeviceConditionRow,
    "taints": rows.TaintRow,
    "attributes": rows.AttributeRow,
    "labels": rows.LabelRow,
    "refusals": rows.RefusalRow,
}
_SHIPPED = (
    "scoring.yaml",
    "xids.yaml",
    "conditions.yaml",
    "taints.yaml",
    "devices.yaml",
    "labels.yaml",
    "refusals.yaml",
)


def load(path: str | Path | None = None) -> SignalRules:
    """The shipped rules, with those of an operator's file; SettingsError says file, row, field."""
    tables = dict(_shipped())
    if path is not None:
        where = f"rules file {path}"
        own: dict[str, dict[str, RuleRow]] = {table: {} for table in _TABLES}
        for table, row in _rows(_text(Path(path), where), where):
            own[table][row.name] = row
        _check_signals(own["signals"], tables["signals"], where)
        tables = {table: _over(own[table], shipped) for table, shipped in tables.items()}
    else:
        where = "shipped rules"
    _check_classes(tables, where)
    conditions = tables["conditions"].values()
    tables["conditions"] = {r.name: r for r in sorted(conditions, key=_breadth)}
    return SignalRules(**cast(dict[str, Any], tables))


@cache
def _shipped() -> Mapping[str, dict[str, RuleRow]]:
    tables: dict[str, dict[str, RuleRow]] = {table: {} for table in _TABLES}
    for name in _SHIPPED:
        text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
        for table, row in _rows(text, f"rules file {name}"):
            tables[table][row.name] = row
    return tables


def _over(own: dict[str, RuleRow], shipped: dict[str, RuleRow]) -> dict[str, RuleRow]:
    """Replaced rows stay in their place, new ones come first."""
    new = {name: row for name, row in own.items() if name not in shipped}
    return new | {name: own.get(name, row) for name, row in shipped.items()}


def _breadth(row: RuleRow) -> tuple[bool, bool]:
    """Rows that name a type, and of those the ones that name a reason, come before patterns."""
    assert isinstance(row, ConditionRow)
    return row.is_pattern, row.reason == "*"


def _text(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{where}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{where}: not valid UTF-8: {error}") from error


def _rows(text: str, where: str) -> Iterator[tuple[str, RuleRow]]:
    try:
        data: Any = own_yaml.value_of(text)
    except ValueError as error:
        raise SettingsError(f"{where}: invalid YAML: {error}") from error
    if data is None:
        return
    if not isinstance(data, dict):
        raise SettingsError(f"{where}: expected tables ({', '.join(_TABLES)}), not a {_kind(data)}")
    for table, entries in data.items():
        if table not in _TABLES:
            raise SettingsError(
                f"{where}: unknown table {table!r}; expected one of {', '.join(_TABLES)}"
            )
        if not isinstance(entries, list):
            raise SettingsError(
                f"{where}: {table}: expected a list of rows, not a {_kind(entries)}"
            )
        for position, entry in enumerate(entries, start=1):
            yield table, _row(table, entry, position, where)


def _row(table: str, entry: Any, position: int, where: str) -> RuleRow:
    if not isinstance(entry, dict) or "name" not in entry:
        raise SettingsError(f"{where}: {table}, row {position}: a row needs a name")
    name = str(entry["name"])  # YAML reads an XID as a number
    try:
        return msgspec.convert({**entry, "name": name}, _TABLES[table])
    except msgspec.ValidationError as error:
        said = choices.describe_error(error, _TABLES[table])
        raise SettingsError(f"{where}: {table}, row {name!r}: {said}") from error


def _check_signals(own: Mapping[str, RuleRow], shipped: Mapping[str, RuleRow], where: str) -> None:
    """Signals are derived by name, so one that is not shipped would never count."""
    for name in own:
        if name not in shipped:
            raise SettingsError(
                f"{where}: signals, row {name!r}: unknown signal; "
                f"expected one of {', '.join(shipped)}"
            )


def _check_classes(tables: Mapping[str, Mapping[str, RuleRow]], where: str) -> None:
    classes = tables["xid_classes"]
    assert UNCLASSIFIED in classes
    for table in ("xids", "recoveries"):
        for row in tables[table].values():
            assert isinstance(row, rows.XidRow | rows.RecoveryRow)
            if row.class_ not in classes:
                raise SettingsError(
                    f"{where}: {table}, row {row.name!r}: class: unknown class {row.class_!r}; "
                    f"expected one of {', '.join(classes)}"
                )


def _kind(value: object) -> str:
    return "list" if isinstance(value, list) else type(value).__name__
