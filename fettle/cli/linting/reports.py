"""Formats findings: text for people, JSON, SARIF, annotations of GitHub. Explains single rules."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fettle import __version__
from fettle.lint import CHECKS, REFUSALS, RULES, Check, Rule, Severity, nearest
from fettle.model import BadInput

_ALL: tuple[Rule | Check, ...] = (*RULES, *REFUSALS, *CHECKS)
_NAMES = {rule.id: rule.name for rule in _ALL}
_BY_ID = {rule.id: rule for rule in _ALL}
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_EXAMPLES = Path(__file__).with_name("examples.json")
_DOCUMENTATION = "docs/rules.md"
_PAGE = "rules.html"
"""The same as `make site` builds it."""
_LONGEST = 60
_MANY = 3
"""From so many findings on, those of one rule and severity are one block."""
_SARIF = {Severity.DENY: "error", Severity.WARN: "warning", Severity.UNDECIDED: "note"}
_GITHUB = {**_SARIF, Severity.UNDECIDED: "notice"}


class LintReport(NamedTuple):
    """One finding with its object and place: `path` is that of the field, `line` counts from 1. It
    is 0 for what is in a cluster, and `file` its path there.

    `excuse`: why its author ignores it, "" if nobody does.
    """

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
    excuse: str = ""


def text(reports: Sequence[LintReport]) -> str:
    """One rule that is broken in many places is one block, where its first finding would be."""
    by_rule: dict[tuple[str, Severity], list[LintReport]] = {}
    for report in reports:
        by_rule.setdefault((report.rule, report.severity), []).append(report)
    parts = []
    for report in reports:
        same = by_rule[report.rule, report.severity]
        if len(same) < _MANY:
            parts.append(_lines(report))
        elif report is same[0]:
            parts.append(_block(same))
    return "\n".join(parts)


def text_by_namespace(reports: Sequence[LintReport]) -> str:
    """One part for each namespace; what is in none comes first."""
    parts = []
    for namespace, of_one in groupby(reports, key=lambda one: one.namespace):
        several = list(of_one)
        where = f"namespace {namespace}" if namespace else "the cluster"
        many = "s" if len(several) > 1 else ""
        parts.append(f"{where}: {len(several)} finding{many}\n{text(several)}")
    return "\n\n".join(parts)


def _block(reports: Sequence[LintReport]) -> str:
    """Findings of one rule: what is said alike is said once, with all places."""
    first = reports[0]
    alike: dict[tuple[str, str], list[LintReport]] = {}
    for report in reports:
        alike.setdefault((report.message, report.fix), []).append(report)
    lines = [
        f"{first.severity} {first.rule} {_NAMES.get(first.rule, '')}: in {len(reports)} places"
    ]
    for (message, fix), same in alike.items():
        lines.append(f"    {message}")
        lines += [f"    fix: {fix}"] if fix else []
        lines += [f"        {place}" for place in _places(same)]
    return "\n".join(lines)


def _places(reports: Sequence[LintReport]) -> Iterator[str]:
    """One line for each object, with its fields."""
    by_object: dict[tuple[str, str], list[LintReport]] = {}
    for report in reports:
        by_object.setdefault((report.file, _who(report)), []).append(report)
    for (_, who), same in by_object.items():
        fields = ", ".join(
            f"{one.path} (line {one.line})" if one.line else one.path for one in same[1:]
        )
        more = f", {fields}" if fields else ""
        yield f"{_place(same[0])}{who}: {same[0].path}{more}"


def _place(report: LintReport) -> str:
    """Where it is in a file; "" if it is in none."""
    return f"{report.file}:{report.line}: " if report.line else ""


def _who(report: LintReport) -> str:
    name = f"{report.namespace}/{report.name}" if report.namespace else report.name
    return f"{report.kind} {name}".rstrip()


def _lines(report: LintReport) -> str:
    lines = [
        f"{_place(report)}{report.severity} {report.rule} "
        f"{_NAMES.get(report.rule, '')}: {_who(report)}",
        f"    {report.path}: {report.message}",
    ]
    return "\n".join([*lines, f"    fix: {report.fix}"] if report.fix else lines)


def as_json(reports: Sequence[LintReport]) -> str:
    fields = [field for field in LintReport._fields if field != "excuse"]
    plain = [{field: getattr(report, field) for field in fields} for report in reports]
    return json.dumps(plain, indent=2)


def github(reports: Sequence[LintReport]) -> str:
    """Workflow commands; GitHub shows them beside the lines of a pull request."""
    return "\n".join(
        f"::{_GITHUB[report.severity]} {_of_file(report)}"
        f"title={_property(f'{report.rule} {_NAMES.get(report.rule, str())}')}::"
        f"{_data(f'{report.path}: {report.message}' + (f'; {report.fix}' if report.fix else ''))}"
        for report in reports
    )


def _of_file(report: LintReport) -> str:
    return f"file={_property(report.file)},line={report.line}," if report.line else ""


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")


def sarif(reports: Sequence[LintReport], site: str = "") -> str:
    """`site`: where the documents are published, to which each rule links then."""
    used = sorted({report.rule for report in reports})
    driver = {
        "name": "fettle",
        "version": __version__,
        "rules": [
            {
                "id": rule.id,
                "name": rule.name,
                "shortDescription": {"text": rule.mistake},
                "help": {"text": f"{rule.today} See {page_of(rule.id)}."},
            }
            | ({"helpUri": f"{site.rstrip('/')}/{_PAGE}#{anchor(rule.id)}"} if site else {})
            for rule in _ALL
            if rule.id in used
        ],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "results": [_result(report) for report in reports],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(report: LintReport) -> dict[str, Any]:
    fix = f"; {report.fix}" if report.fix else ""
    excused = [{"kind": "inSource", "justification": report.excuse}] if report.excuse else []
    return {
        **({"suppressions": excused} if excused else {}),
        "ruleId": report.rule,
        "level": _SARIF[report.severity],
        "message": {"text": f"{report.path}: {report.message}{fix}"},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": report.file}}
                | ({"region": {"startLine": report.line}} if report.line else {}),
                "logicalLocations": [
                    {"fullyQualifiedName": f"{report.kind}/{report.namespace}/{report.name}"}
                ],
            }
        ],
    }


def formatted(
    reports: Sequence[LintReport], output: str, site: str = "", *, grouped: bool = False
) -> str:
    """In the form that `--output` names. `site`: where the documents are published, if anywhere.
    `grouped`: text is by namespace."""
    if output == "sarif":  # only this form can say that a finding is ignored
        return sarif(reports, site)
    reports = [report for report in reports if not report.excuse]
    match output:
        case "json":
            return as_json(reports)
        case "github":
            return github(reports)
    return text_by_namespace(reports) if grouped else text(reports)


# --- rules


def anchor(rule: str) -> str:
    """Where docs/rules.md tells of a rule."""
    return rule.lower()


def page_of(rule: str) -> str:
    return f"{_DOCUMENTATION}#{anchor(rule)}"


def when(rule: Rule | Check) -> str:
    """Its severity, and in which cases it has another."""
    if isinstance(rule, Check):
        return str(rule.severity)
    denies = ", or if ".join(filter(None, (rule.denies_if, "strict" if rule.strict else "")))
    cases = [str(rule.severity), f"Deny if {denies}" if denies else ""]
    cases.append(f"Warn if {rule.warns_if}" if rule.warns_if else "")
    return "; ".join(filter(None, cases))


def name_of(rule: str) -> str:
    """What a rule of this id is called."""
    return _NAMES.get(rule, "")


def rule_called(named: str) -> str:
    """The id of the rule of this id or name; "" if there is none."""
    asked = named.strip().lower()
    return next((one.id for one in _ALL if asked in (one.id.lower(), one.name)), "")


def explained(rule: str) -> str:
    """All about one rule, for people; raises BadInput if there is none of that id or name."""
    about = _BY_ID.get(rule_called(rule))
    if about is None:
        near = nearest(rule.upper(), _BY_ID) or nearest(rule, {one.name for one in _ALL})
        meant = f"write {near} if that is meant; " if near else ""
        raise BadInput(f"there is no rule {rule[:_LONGEST]!r}: {meant}`fettle rules` lists all")
    lines = [
        f"{about.id} {about.name}",
        f"  what       {about.mistake}",
        f"  why        {about.today}",
        f"  severity   {when(about)}",
    ]
    if isinstance(about, Rule) and about.inventory:
        lines.append("  needs      what the cluster has: --snapshot FOLDER or --cluster")
    lines += _example(about.id)
    lines += [
        "  to mend    each finding says how, after `fix:`",
        f"  to ignore  `# fettle:ignore={about.id}: why` on its line or above it, or an annotation",
        f"             ignore-check.fettle.dev/{about.id}: why",
        f"  to set     lint: {{rules: {{{about.id}: Warn}}}} in the settings; Deny, Warn or Off",
        f"  more       {page_of(about.id)}",
    ]
    return "\n".join(lines)


class _Example(msgspec.Struct):
    """As `tests/fettle/lint/examples.py` takes it from the tables of tests: `differ` are the lines
    in which a sound object is another one."""

    what: str
    wrong: str
    differ: str


def _example(rule: str) -> Iterator[str]:
    found = msgspec.json.decode(_EXAMPLES.read_bytes(), type=dict[str, _Example]).get(rule)
    if found is None:
        return
    yield f"  wrong      {found.what}:"
    yield from (f"    {line}" for line in found.wrong.splitlines())
    yield "  sound      it finds nothing if instead:"
    yield from (f"    {line}" for line in found.differ.splitlines())


def rules_in_text() -> str:
    """One line for each rule."""
    widths = [max(len(word) for word in column) for column in zip(*_words(), strict=True)]
    return "\n".join(
        f"{id}  {name:{widths[1]}}  {severity:{widths[2]}}  {mistake}"
        for id, name, severity, mistake in _words()
    )


def _words() -> list[tuple[str, str, str, str]]:
    return [(rule.id, rule.name, str(rule.severity), rule.mistake) for rule in _ALL]


def rules_as_json() -> str:
    return json.dumps(
        [
            {
                "id": rule.id,
                "name": rule.name,
                "severity": rule.severity,
                "when": when(rule),
                "what": rule.mistake,
                "why": rule.today,
                "inventory": isinstance(rule, Rule) and rule.inventory,
                "page": page_of(rule.id),
            }
            for rule in _ALL
        ],
        indent=2,
    )
