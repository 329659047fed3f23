"""What `fettle lint --cluster` checks without files: the objects that exist already. What another
object makes is left out, since its maker is checked, and so is what has ended."""

import sys
import time
from collections.abc import AsyncIterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from fettle.api import api_path
from fettle.cli.linting.files import Document
from fettle.cli.sources import Reading
from fettle.lint import Field, Manifest, workload_kinds
from fettle.model import FettleError, Forbidden, NotServed

if TYPE_CHECKING:
    from fettle.client import ServedKind, Session

MOST = 5000
"""Objects that are checked."""
_PAGE = 500
_SHOWN_AFTER_S, _SHOWN_EVERY_S = 1.0, 0.2
_ENDED = ("Succeeded", "Failed", "Complete", "Completed")
"""Phases of pods, and conditions of Jobs and JobSets."""
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


async def _listed(session: "Session", path: str) -> AsyncIterator[dict[str, Any]]:
    from fettle.client import decoded

    query: dict[str, str | int] = {"limit": _PAGE}
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
