"""Runs `fettle lint`: reads files and the known objects, checks each manifest, also by what
CustomResourceDefinitions say in CEL (`x-kubernetes-validations`), and prints findings.

cel-python evaluates that CEL, in the worker for rules about objects. What it cannot evaluate is
undecided.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from fettle.api.raw import Raw
from fettle.cli.linting import known_objects, reports
from fettle.cli.linting.existing import Existing, Progress, is_checked, read_existing, write_reports
from fettle.cli.linting.files import (
    Document,
    ReadManifests,
    for_patches,
    line_of,
    mistakes_in_files,
    read,
)
from fettle.cli.linting.ignoring import Ignoring
from fettle.cli.linting.reports import LintReport
from fettle.cli.sources import Reading
from fettle.config import Settings, load_settings
from fettle.lint import (
    BROKEN_RULE,
    INVALID_RULES,
    RULES,
    Customs,
    Finding,
    Linter,
    Manifest,
    Rule,
    Severity,
    StatedRule,
    absent_field,
    at_levels,
    check_settings,
    configured_drivers,
    customs_with,
    levels_for,
    remarks_on_policies,
    run_checks,
    schemas_of,
    shipped_customs,
    stated_rules,
    workload_kinds,
)
from fettle.model import FettleError, RuleSeverity, Validation, WorkerError
from fettle.pacing import run_within

if TYPE_CHECKING:
    from fettle.cel import ObjectJudge
    from fettle.health import RuleMistake

MOST_EVALUATED = 400
"""Evaluations for one object."""
STATED_WITHIN_S = 10.0
"""For one object."""
CLEAN, FOUND, UNUSABLE = 0, 1, 2
FAILING: dict[str, set[Severity]] = {
    "never": set(),
    "deny": {Severity.DENY},
    "warn": {Severity.DENY, Severity.WARN},
    "undecided": set(Severity),
}
"""The values of `--fail-on`, and the severities that each means."""
DEADLINE_S = 60.0
"""How long checking one object may take."""
_SURVEY_WAIT_S = 30.0
_SHOWN = 200


class StatedRules:
    """Those of `named` definitions, which the user has passed, of those that were `found`, and of
    those that are shipped. Of the last two a cluster may have another release: they only warn."""

    def __init__(self, named: Iterable[Raw], found: Iterable[Raw]) -> None:
        self._named = schemas_of(named)
        self._found = schemas_of(found)
        self._judge: ObjectJudge | None = None

    async def __aenter__(self) -> None:
        """The worker is started once something is to be evaluated."""

    async def __aexit__(self, *_: object) -> None:
        if self._judge is not None:
            await self._judge.close()

    async def broken_by(self, manifest: Manifest) -> list[Finding]:
        key = (manifest.api_version, manifest.kind)
        shipped = shipped_customs().rules.get(manifest.api_version, {})
        schema = self._named.get(key) or self._found.get(key) or shipped.get(manifest.kind)
        if schema is None:
            return []
        severity = None if key in self._named else Severity.WARN
        broken: list[Finding] = []
        open_: dict[str, Finding] = {}
        until = time.monotonic() + STATED_WITHIN_S
        rules = stated_rules(schema, manifest.object)
        for field, several in groupby(islice(rules, MOST_EVALUATED), key=lambda one: one.field):
            at_once = list(several)
            outcomes = await self._outcomes(at_once, until)
            for rule, outcome in zip(at_once, outcomes, strict=True):
                if outcome is False:
                    broken.append(BROKEN_RULE.finding(field, rule.message, severity=severity))
                elif isinstance(outcome, str):
                    open_.setdefault(rule.expression, _undecided(rule, outcome))
        if (one_more := next(rules, None)) is not None:
            why = (
                f"more than {MOST_EVALUATED} rules are about this object, and the rest is not "
                "evaluated"
            )
            open_.setdefault("", _undecided(one_more, why))
        return [*broken, *open_.values()]

    async def _outcomes(self, rules: list[StatedRule], until: float) -> tuple[bool | str, ...]:
        """By one value."""
        if time.monotonic() > until:
            return (f"the rules of this object take more than {STATED_WITHIN_S:g} s",) * len(rules)
        try:
            given = msgspec.json.encode({"self": rules[0].field.value})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return (f"the value cannot be written as JSON: {error}",) * len(rules)
        if self._judge is None:
            from fettle.cel import ObjectJudge  # late: few objects have such rules

            self._judge = ObjectJudge()
        return await self._judge.conditions([rule.expression for rule in rules], given)


def _undecided(rule: StatedRule, why: str) -> Finding:
    shown = " ".join(rule.expression.split())[:200]
    message = f"whether the rule holds is not known: {why}: {shown}"
    return BROKEN_RULE.finding(rule.field, message, severity=Severity.UNDECIDED)


class LintOptions(NamedTuple):
    """The flags and arguments of `fettle lint`. `reading`: how to read the cluster, if it is to be
    read. `crds`: where CustomResourceDefinitions are. `site`: where the documents are published.
    `only`: the one namespace whose objects are checked, if no files are; "" for all. `report`:
    findings are kept in the cluster."""

    files: tuple[str, ...]
    snapshot: Path | None
    reading: Reading | None
    settings: Path | None
    namespace: str
    strict: bool
    output: str
    fail_on: str
    skip_others: bool = False
    crds: Path | None = None
    site: str = ""
    only: str = ""
    report: bool = False


def run(options: LintOptions, rules: Sequence[Rule] = RULES) -> int:
    """Print what the rules find; returns the exit code.

    Raises FettleError if the settings, the snapshot or the cluster cannot be read. A file that
    cannot be read does not hide the findings in others.
    """
    settings = load_settings(options.settings)
    check_settings(settings)
    progress = Progress()
    existing = _existing(options, settings, progress)
    documents, rows, problems, notes = _checked(options, existing)
    defined = read([str(options.crds)]) if options.crds else read([])
    problems += defined.problems
    kinds = {each.object.get("kind") for each in defined.documents}
    if options.crds and not defined.problems and "CustomResourceDefinition" not in kinds:
        problems.append(
            f"{options.crds}: no CustomResourceDefinition in it, so --crds changed nothing: name "
            "the folder or the file that has them"
        )
    customs = customs_with(
        (each.object for each in defined.documents), (each.object for each in documents)
    )
    ignoring = Ignoring([*documents, *rows])
    stated = StatedRules(
        *([each.object for each in some] for some in (defined.documents, documents))
    )
    found, more, unchecked, complete = asyncio.run(
        _lint(options, settings, documents, customs, ignoring, stated, progress, rules)
    )
    progress.end()
    if rows:
        definitions = [[each.object for each in some] for some in (defined.documents, documents)]
        customs = customs_with(*definitions, statuses=True)
    found += _of_rules(rows, settings.lint.levels, ignoring, customs)
    notes += ignoring.complaints(complete=complete)
    problems += unchecked
    kept = [report for report in found if not report.excuse]
    if kept or options.output != "text":
        by_namespace = not options.files
        click.echo(reports.formatted(found, options.output, options.site, grouped=by_namespace))
    if options.report and existing is not None and options.reading is not None:
        writing = write_reports(options.reading, kept, existing, options.only)
        notes += asyncio.run(writing)
    notes += _rows_replaced(rows)
    for sentence in (*notes, *more, *_remarks(options, settings), *problems):
        click.echo(f"fettle: {sentence}", err=True)
    if options.output == "text":
        click.echo(_summary(found, [*documents, *rows]), err=True)
    if problems:
        return UNUSABLE
    failing = FAILING[options.fail_on]
    return FOUND if any(report.severity in failing for report in kept) else CLEAN


def _existing(options: LintOptions, settings: Settings, progress: Progress) -> Existing | None:
    """What is in the cluster, if that is to be checked."""
    if options.files or options.reading is None:
        return None
    templates = workload_kinds.with_settings(settings.webhook.workloads)
    return asyncio.run(read_existing(options.reading, templates, options.only, progress))


def _checked(options: LintOptions, existing: Existing | None) -> ReadManifests:
    """What is to be checked: the files; without any, what exists."""
    if existing is not None:
        return ReadManifests(existing.documents, [], [], existing.notes)
    if options.files or options.snapshot is None:
        return read(options.files, skip_others=options.skip_others)
    found = read([str(options.snapshot)])
    documents = [one for one in found.documents if is_checked(one.object)]
    return found._replace(documents=documents, rules=[])


def _remarks(options: LintOptions, settings: Settings) -> list[str]:
    """What is odd about the policies of a settings file."""
    if options.settings is None:
        return []
    return [f"{options.settings}: {remark}" for remark in remarks_on_policies(settings)]


async def _lint(
    options: LintOptions,
    settings: Settings,
    documents: Sequence[Document],
    customs: Customs,
    ignoring: Ignoring,
    stated: StatedRules,
    progress: Progress,
    rules: Sequence[Rule],
) -> tuple[list[LintReport], tuple[str, ...], list[str], bool]:
    """The findings, notes about what is known of the cluster, problems with objects, and whether
    all of the cluster is known."""
    templates = workload_kinds.with_settings(settings.webhook.workloads)
    manifests = [Manifest(d.object, options.namespace, templates=templates) for d in documents]
    policies = settings.all_policies()
    known_too = known_objects.known(options.snapshot, options.reading, settings, manifests)
    async with known_too as known, stated:
        view = known.view_with(manifests)
        linter = Linter(
            rules,
            evaluator=known.evaluator,
            drivers=configured_drivers(settings.lint),
            disabled=settings.disabled_features,
            survey_wait_s=_SURVEY_WAIT_S,
        )
        wide = settings.lint.levels
        wide = Validation(strict=options.strict or wide.strict, rules=wide.rules)
        found: list[LintReport] = []
        unchecked: list[str] = []
        in_files = mistakes_in_files(documents, manifests)
        for at, each in enumerate(zip(documents, manifests, in_files, strict=True)):
            document, manifest, beside = each
            progress.show(f"checked so far: {at} of {len(documents)} objects")
            levels = levels_for(manifest, view, policies, wide)
            checking = run_checks(
                manifest,
                policies,
                view.policies,
                known.engines,
                levels,
                settings.health,
                customs=customs,
                labels=options.settings is None or settings.node_marks.label,
            )
            try:
                async with asyncio.timeout(DEADLINE_S):
                    findings = await linter.lint(
                        manifest, view, levels, complete=known.complete, unknown=known.unknown
                    )
                    findings += at_levels(beside, levels)
                    more: list[Finding] = await run_within(partial(list, checking))
                    more += at_levels(await stated.broken_by(manifest), levels)
                    findings += for_patches(more) if document.may_be_patch else more
            except TimeoutError:
                who = f"{manifest.kind} {manifest.name}"
                unchecked.append(f"{document.file}: {who} was not checked within {DEADLINE_S:g} s")
                continue
            except FettleError:
                raise
            except Exception as error:  # a mistake of Fettle must not hide what others have
                unchecked.append(_mistake(document, manifest, error))
                continue
            told = [
                LintReport(
                    rule=finding.rule,
                    severity=finding.severity,
                    file=document.file,
                    line=line_of(document, finding.field),
                    kind=manifest.kind,
                    namespace=manifest.namespace if manifest.namespaced else "",
                    name=manifest.name,
                    path=finding.field,
                    message=finding.message,
                    fix=finding.fix,
                )
                for finding in findings
            ]
            found += ignoring.applied(document, told, manifest)
    complete = known.complete and not known.unknown
    return found, known.notes, [*known.problems, *unchecked], complete


def _mistake(document: Document, manifest: Manifest, error: Exception) -> str:
    at = extract_tb(error.__traceback__)[-1]
    said = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
    return (
        f"{document.file}: {document.where}: {manifest.kind} {manifest.name} was not checked, by a "
        f"mistake of Fettle; please report it: {said}, in {Path(at.filename).name}:{at.lineno}"
    )


def _rows_replaced(files: Sequence[Document]) -> list[str]:
    if not files:
        return []
    from fettle.health import rows_replaced  # late: few inputs hold such a file

    return [said for one in files for said in rows_replaced(one.content, one.file)]


def _of_rules(
    files: Sequence[Document], levels: Validation, ignoring: Ignoring, customs: Customs
) -> list[LintReport]:
    """The mistakes in rules files. `customs`: with statuses."""
    level = levels.rules.get(INVALID_RULES.id)
    if level is RuleSeverity.OFF or not files:
        return []
    from fettle.health import rule_mistakes

    severity = INVALID_RULES.severity if level is None else Severity(level.value)
    found: list[LintReport] = []
    for document in files:
        told = (
            LintReport(
                rule=INVALID_RULES.id,
                severity=severity,
                file=document.file,
                line=line_of(document, mistake.path),
                kind="row",
                namespace=mistake.path.partition("[")[0].partition(".")[0],
                name=mistake.row,
                path=mistake.path,
                message=mistake.problem,
                fix=mistake.fix,
            )
            for mistake in (
                *rule_mistakes(document.content, document.file),
                *_absent_fields(document, customs),
            )
        )
        found += ignoring.applied(document, told)
    return found


def _absent_fields(document: Document, customs: Customs) -> "Iterator[RuleMistake]":
    """Fields that expressions of rows about objects read, and that these cannot have by what
    defines them."""
    from fettle.health import RuleMistake, expressions_of, quoted, rows_about_objects

    rows = [*rows_about_objects(document.object)]
    try:
        read = expressions_of(row for _, row in rows)
    except WorkerError:
        return  # which is a mistake of the first row
    for at, row in rows:
        for field, text in row.by_field:
            for path in read[text].fields:
                absent = absent_field(path, row.api_version, row.kind, customs)
                if absent is None:
                    continue
                above = f"{row.kind}.{absent.above}" if absent.above else row.kind
                problem = f"{quoted(text)}: {above} has no field {absent.name}"
                fix = f"did you mean {absent.near}?" if absent.near else ""
                yield RuleMistake(f"objects[{at}].{field}", row.name, problem, fix)
                break


def _summary(found: Sequence[LintReport], documents: Sequence[Document]) -> str:
    by = Counter(report.severity for report in found if not report.excuse)
    ignored = sum(1 for report in found if report.excuse)
    files = len({document.file for document in documents if document.text})
    where = f" in {files} files" if files else ""
    undecided = by[Severity.UNDECIDED]
    return (
        f"{len(documents)} objects{where}: {by[Severity.DENY]} to deny, "
        f"{by[Severity.WARN]} to warn about{f', {undecided} undecided' if undecided else ''}"
        f"{f', {ignored} ignored' if ignored else ''}"
    )
