"""What `fettle lint --cluster` checks without files: the objects that exist already. What another
object makes is left out, since its maker is checked, and so is what has ended.

With `--report` the findings are kept in the cluster, as objects that viewers of policies show:
Reports of openreports.io (github.com/openreports/reports-api), or where these are not served the
PolicyReports that came before them (kubernetes-sigs/wg-policy-prototypes). Both have their results
in the same form.
"""

import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from fettle.api import api_path
from fettle.cli.linting.files import Document
from fettle.cli.linting.reports import LintReport, name_of
from fettle.cli.sources import Reading
from fettle.lint import Field, Manifest, Severity, workload_kinds
from fettle.model import FettleError, Forbidden, NotFound, NotServed

if TYPE_CHECKING:
    from fettle.client import ServedKind, Session

MOST = 5000
"""Objects that are checked."""
_PAGE = 500
_SHOWN_AFTER_S, _SHOWN_EVERY_S = 1.0, 0.2
_ENDED = ("Succeeded", "Failed", "Complete", "Completed")
"""Phases of pods, and conditions of Jobs and JobSets."""
MOST_RESULTS = 500
"""In one report; an object of the API server has at most 1.5 MB."""
_LONGEST = 1024
_REPORT = "fettle"
"""The name of each report, and whose it is."""
_MANAGED_BY = "app.kubernetes.io/managed-by"
_RESULTS = {Severity.DENY: "fail", Severity.WARN: "warn", Severity.UNDECIDED: "error"}
_SEVERITIES = {Severity.DENY: "high", Severity.WARN: "medium", Severity.UNDECIDED: "info"}
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Existing(NamedTuple):
    """`notes` say what was not read. `whole`: nothing was left out for want of rights or room."""

    documents: list[Document]
    notes: list[str]
    whole: bool


class _Listed(msgspec.Struct):
    items: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] = {}


class Progress:
    """One line on a terminal, of what takes more than a second."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._next = time.monotonic() + _SHOWN_AFTER_S

    def show(self, said: str) -> None:
        if self._is_shown and time.monotonic() >= self._next:
            click.echo(f"\r\x1b[K{said}", nl=False, err=True)
            self._next = time.monotonic() + _SHOWN_EVERY_S

    def end(self) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._is_shown = False


async def read_existing(
    reading: Reading,
    templates: workload_kinds.Table,
    namespace: str,
    progress: Progress,
    most: int = MOST,
) -> Existing:
    """The objects of all kinds that rules are about, of one namespace or of all ("").

    Raises FettleError if the cluster cannot be read, or nothing in it may be listed."""
    from fettle.client import Chosen, Session  # late: files need no client

    chosen = Chosen(reading.context, reading.acts_as, reading.groups)
    found: list[Document] = []
    denied: list[str] = []
    kinds = 0
    async with await Session.open(reading.kubeconfig, chosen=chosen) as session:
        async for api_version, kind, plural in _served(session, templates):
            manifest = Manifest({"apiVersion": api_version, "kind": kind})
            if namespace and not manifest.namespaced:
                continue
            kinds += 1
            path = api_path(api_version, plural, namespace=namespace)
            try:
                async for each in _listed(session, path):
                    progress.show(f"read so far: {len(found)} objects, now {plural}")
                    one = {"apiVersion": api_version, "kind": kind, **each}
                    if is_checked(one):
                        found.append(_document(one, plural))
                    if len(found) > most:
                        note = f"there are more than {most} objects: the rest is not checked; "
                        note += "-n NAMESPACE checks one namespace"
                        return Existing(_sorted(found[:most]), [note, *_unread(denied)], False)
            except Forbidden:
                denied.append(plural)
            except NotServed:
                continue
    if kinds == len(denied):
        raise FettleError(f"you may list nothing that is checked: {', '.join(denied)}")
    return Existing(_sorted(found), _unread(denied), not denied)


def _unread(denied: list[str]) -> list[str]:
    return [f"you may not list {', '.join(denied)}: they are not checked"] if denied else []


async def _served(
    session: "Session", templates: workload_kinds.Table
) -> AsyncIterator[tuple[str, str, str]]:
    """The apiVersion, kind and plural of what is served. Pods are last: of them there are most."""
    from fettle.client import served_kinds

    wanted = sorted(workload_kinds.checked(templates), key=lambda one: (not one[0], one))
    for group, of_group in groupby(wanted, key=lambda one: one[0]):
        names = {kind for _, kind in of_group}
        served: dict[str, ServedKind] = {}
        for each in await served_kinds(session, group):
            served.setdefault(each.kind, each)
        for kind in sorted(names & served.keys(), key=lambda kind: (kind == "Pod", kind)):
            version = f"{group}/{served[kind].version}" if group else served[kind].version
            yield version, kind, served[kind].plural


async def _listed(
    session: "Session", path: str, more: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Any]]:
    from fettle.client import decoded

    query: dict[str, str | int] = {"limit": _PAGE, **(more or {})}
    while True:
        page = decoded(await session.get(path, query), _Listed, f"list at {path}")
        for one in page.items or ():
            yield one
        if not (token := page.metadata.get("continue")):
            return
        query["continue"] = token


def is_checked(one: dict[str, Any]) -> bool:
    """Whether nobody has made it from another object, and it has not ended."""
    root = Field("", one)
    if any(owner.raw().get("controller") for owner in root.entries("metadata", "ownerReferences")):
        return False
    return root.text("status", "phase") not in _ENDED and not any(
        said.text("type") in _ENDED and said.text("status") == "True"
        for said in root.entries("status", "conditions")
    )


def _document(one: dict[str, Any], plural: str) -> Document:
    """Its place is its path at the API server, as in `kubectl get --raw`."""
    metadata = one.get("metadata") or {}
    metadata.pop("managedFields", None)
    (metadata.get("annotations") or {}).pop(_APPLIED, None)
    path = api_path(
        one["apiVersion"],
        plural,
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
    )
    return Document(path, "", b"", one)


def _sorted(found: list[Document]) -> list[Document]:
    def key(one: Document) -> tuple[str, str, str]:
        manifest = Manifest(one.object)
        return (namespace_of(manifest), manifest.kind, manifest.name)

    return sorted(found, key=key)


def namespace_of(manifest: Manifest) -> str:
    return manifest.namespace if manifest.namespaced else ""


# --- reports in the cluster


class _ReportKind(NamedTuple):
    """`open`: a report says its source and how many results it has at most."""

    api_version: str
    kind: str
    plural: str
    open: bool


_OPEN = "openreports.io/v1alpha1"
_BEFORE = "wgpolicyk8s.io/v1alpha2"
_KINDS = {
    _OPEN: (
        _ReportKind(_OPEN, "Report", "reports", open=True),
        _ReportKind(_OPEN, "ClusterReport", "clusterreports", open=True),
    ),
    _BEFORE: (
        _ReportKind(_BEFORE, "PolicyReport", "policyreports", open=False),
        _ReportKind(_BEFORE, "ClusterPolicyReport", "clusterpolicyreports", open=False),
    ),
}


async def write_reports(
    reading: Reading,
    found: Sequence[LintReport],
    existing: Existing,
    namespace: str = "",
    most: int = MOST_RESULTS,
) -> list[str]:
    """A report for each namespace with findings, and one for what is in none; returns what to say.
    Those of namespaces without findings are removed, if all of `namespace`, or of the cluster, was
    read. Raises FettleError."""
    from fettle.client import Chosen, Session

    objects = {document.file: document.object for document in existing.documents}
    chosen = Chosen(reading.context, reading.acts_as, reading.groups)
    async with await Session.open(reading.kubeconfig, chosen=chosen) as session:
        of_namespace, of_cluster = await _report_kinds(session)
        written: set[str] = set()
        dropped = 0
        for where, several in groupby(found, key=lambda one: one.namespace):
            results = [_result(one, objects.get(one.file, {})) for one in several]
            dropped += max(0, len(results) - most)
            kind = of_namespace if where else of_cluster
            made = _report(kind, where, results, most)
            await session.apply(_path(kind, where), made, f"{_REPORT}-lint")
            written.add(where)
        removed = 0
        if existing.whole:
            removed = await _remove_others(session, (of_namespace, of_cluster), namespace, written)
    said = [f"reports in the cluster: {len(written)} written, {removed} removed"]
    if dropped:
        said.append(f"{dropped} findings are in no report: each has at most {most}")
    return said


def _path(kind: _ReportKind, namespace: str) -> str:
    return api_path(kind.api_version, kind.plural, namespace=namespace, name=_REPORT)


async def _report_kinds(session: "Session") -> tuple[_ReportKind, _ReportKind]:
    from fettle.client import served_kinds

    for api_version, kinds in _KINDS.items():
        group, _, version = api_version.partition("/")
        served = {
            each.kind for each in await served_kinds(session, group) if each.version == version
        }
        if {kind.kind for kind in kinds} <= served:
            return kinds
    raise FettleError(
        f"the cluster serves neither {_OPEN} nor {_BEFORE}, so there is no kind for reports: apply "
        "the definitions of one of them, or leave --report out"
    )


def _report(
    kind: _ReportKind, namespace: str, results: list[dict[str, Any]], most: int
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": _REPORT, "labels": {_MANAGED_BY: _REPORT}}
    if namespace:
        metadata["namespace"] = namespace
    counts = Counter({"pass": 0, "fail": 0, "warn": 0, "error": 0, "skip": 0})
    counts.update(result["result"] for result in results)  # also of what is dropped
    made: dict[str, Any] = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "summary": dict(counts),
        "results": results[:most],
    }
    if kind.open:
        made |= {"source": _REPORT, "configuration": {"limits": {"maxResults": most}}}
    return made


def _result(report: LintReport, of: Mapping[str, Any]) -> dict[str, Any]:
    fix = f"; fix: {report.fix}" if report.fix else ""
    subject = {
        "apiVersion": of.get("apiVersion", ""),
        "kind": report.kind,
        "name": report.name,
        "namespace": report.namespace,
        "uid": Field("", of).text("metadata", "uid"),
    }
    return {
        "source": _REPORT,
        "policy": report.rule,
        "rule": name_of(report.rule),
        "category": "Devices",
        "result": _RESULTS[report.severity],
        "severity": _SEVERITIES[report.severity],
        "scored": True,
        "message": f"{report.path}: {report.message}{fix}"[:_LONGEST],
        "timestamp": {"seconds": int(time.time()), "nanos": 0},
        "resources": [{key: value for key, value in subject.items() if value}],
    }


async def _remove_others(
    session: "Session", kinds: Sequence[_ReportKind], namespace: str, written: Collection[str]
) -> int:
    """Remove our reports of before that were not written now."""
    removed = 0
    for kind in kinds[:1] if namespace else kinds:
        path = api_path(kind.api_version, kind.plural, namespace=namespace)
        async for one in _listed(session, path, {"labelSelector": f"{_MANAGED_BY}={_REPORT}"}):
            root = Field("", one)
            where = root.text("metadata", "namespace")
            if root.text("metadata", "name") == _REPORT and where not in written:
                with suppress(NotFound):
                    await session.delete(_path(kind, where))
                removed += 1
    return removed
