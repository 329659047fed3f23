"""Formats findings: text for people, JSON, SARIF, annotations of GitHub."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from fettle import __version__
from fettle.lint import CHECKS, REFUSALS, RULES, Check, Rule, Severity

_ALL: tuple[Rule | Check, ...] = (*RULES, *REFUSALS, *CHECKS)
_NAMES = {rule.id: rule.name for rule in _ALL}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_DOCUMENTATION = "docs/rules.md"
_SARIF = {Severity.DENY: "error", Severity.WARN: "warning", Severity.UNDECIDED: "note"}
_GITHUB = {**_SARIF, Severity.UNDECIDED: "notice"}


class LintReport(NamedTuple):
    """One finding with its object and place: `path` is that of the field, `line` counts from 1."""

    rule: str
    severity: Severity
    file: str
    line: int
    kind: str
    namespace: str
    name: str
    path: str
    message: str
    fix: str


def text(reports: Sequence[LintReport]) -> str:
    return "\n".join(_lines(report) for report in reports)


def _lines(report: LintReport) -> str:
    who = f"{report.kind} {report.namespace}/{report.name}".removesuffix("/")
    lines = [
        f"{report.file}:{report.line}: {report.severity} {report.rule} "
        f"{_NAMES.get(report.rule, '')}: {who}",
        f"    {report.path}: {report.message}",
    ]
    return "\n".join([*lines, f"    fix: {report.fix}"] if report.fix else lines)


def as_json(reports: Sequence[LintReport]) -> str:
    return json.dumps([report._asdict() for report in reports], indent=2)


def github(reports: Sequence[LintReport]) -> str:
    """Workflow commands; GitHub shows them beside the lines of a pull request."""
    return "\n".join(
        f"::{_GITHUB[report.severity]} "
        f"file={_property(report.file)},line={report.line},"
        f"title={_property(f'{report.rule} {_NAMES.get(report.rule, str())}')}::"
        f"{_data(f'{report.path}: {report.message}' + (f'; {report.fix}' if report.fix else ''))}"
        for report in reports
    )


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(reports: Sequence[LintReport]) -> str:
    used = sorted({report.rule for report in reports})
    driver = {
        "name": "fettle",
        "version": __version__,
        "rules": [
            {
                "id": rule.id,
                "name": rule.name,
                "shortDescription": {"text": rule.mistake},
                "help": {"text": f"{rule.today} See {_DOCUMENTATION}."},
            }
            for rule in _ALL
            if rule.id in used
        ],
    }
    run = {"tool": {"driver": driver}, "results": [_result(report) for report in reports]}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(report: LintReport) -> dict[str, Any]:
    fix = f"; {report.fix}" if report.fix else ""
    return {
        "ruleId": report.rule,
        "level": _SARIF[report.severity],
        "message": {"text": f"{report.path}: {report.message}{fix}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": report.file},
                    "region": {"startLine": report.line},
                },
                "logicalLocations": [
                    {"fullyQualifiedName": f"{report.kind}/{report.namespace}/{report.name}"}
                ],
            }
        ],
    }


FORMATS: Mapping[str, Callable[[Sequence[LintReport]], str]] = {
    "text": text,
    "json": as_json,
    "sarif": sarif,
    "github": github,
}
