"""The objects that `fettle lint` knows: those of a snapshot folder, of a cluster, or none.

The linted manifests count too: a template is often linted together with the workload that uses it.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fettle.api import DevicePolicy, Put, kinds, read_object
from fettle.api.core import Namespace, ResourceQuota
from fettle.api.kinds import Kind
from fettle.api.resource import ComputeDomain, DeviceClass
from fettle.cli.sources import Reading
from fettle.cluster import EMPTY, Publisher, View
from fettle.config import Settings
from fettle.lint import Evaluator, Manifest, compile_expressions, has_expressions
from fettle.model import BadInput, ClusterError, Forbidden, NotServed, SnapshotError

if TYPE_CHECKING:
    from fettle.cel import Engines

_MAX_NAMED = 5
"""How many objects that cannot be read are named one by one."""
_NEEDED = (kinds.NODE, kinds.SLICE, kinds.CLASS, kinds.CLAIM, kinds.TEMPLATE)
"""Kinds that a snapshot should have for the rules."""
_VIEW_FIELDS = {
    kinds.CLASS.name: "classes",
    kinds.CLAIM.name: "claims",
    kinds.TEMPLATE.name: "templates",
    kinds.POLICY.name: "policies",
    kinds.NAMESPACE.name: "namespaces",
    kinds.QUOTA.name: "quotas",
    kinds.COMPUTE_DOMAIN.name: "compute_domains",
}


class KnownObjects:
    """The known objects as a view, and what evaluates selectors.

    `complete`: an object that is not in the view does not exist, unless its kind is `unknown`.
    `notes` are sentences about what was skipped, `problems` about what cannot be read.
    """

    def __init__(
        self,
        view: View,
        evaluator: Evaluator | None,
        *,
        complete: bool,
        unknown: frozenset[str] = frozenset(),
        notes: tuple[str, ...] = (),
        problems: tuple[str, ...] = (),
    ) -> None:
        self._view = view
        self.evaluator = evaluator
        self.engines: Engines | None = None
        self.complete = complete
        self.unknown = unknown
        self.notes = notes
        self.problems = problems

    def view_with(self, manifests: Iterable[Manifest]) -> View:
        """The view as it would be with these objects applied."""
        fields: dict[str, dict[str, Any]] = {
            field: dict(getattr(self._view, field) or {}) for field in _VIEW_FIELDS.values()
        }
        for manifest in manifests:
            field = _VIEW_FIELDS.get(manifest.kind)
            if field is None or (written := _as_read(manifest)) is None:
                continue
            try:
                decoded = kinds.BY_NAME[manifest.kind].decode(msgspec.json.encode(written))
            except (BadInput, TypeError, ValueError, OverflowError):
                continue  # a check or the API server says what is wrong with it
            _add(fields[field], manifest.namespace, decoded)
        return msgspec.structs.replace(self._view, synced=True, **fields)


_BETAS = ("resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2")
"""Versions whose claims, templates and classes are as those of v1, but for requests in v1beta1."""
_OF_DRA = (kinds.CLASS.name, kinds.CLAIM.name, kinds.TEMPLATE.name)


def _as_read(manifest: Manifest) -> Mapping[str, Any] | None:
    """The object in the version in which it is read; None if it is in no version that is as this
    one. The API server converts what it stores, so all versions name the same objects."""
    version = kinds.BY_NAME[manifest.kind].api_version
    if manifest.api_version == version:
        return manifest.object
    if manifest.kind not in _OF_DRA or manifest.api_version not in _BETAS:
        return None
    made = deepcopy(dict(manifest.object))
    for claim in Manifest(made).claims:
        for request in claim.requests:
            written = request.field.value
            if "deviceClassName" in written:  # v1beta1
                inner = {key: value for key, value in written.items() if key != "name"}
                written.clear()
                written |= {"name": request.name, "exactly": inner}
    return made | {"apiVersion": version}


def _add(held: dict[str, Any], namespace: str, decoded: kinds.WireObject) -> None:
    """Add an object as views hold those of its kind."""
    metadata = decoded.metadata
    match decoded:
        case DevicePolicy():
            held[metadata.name] = decoded.policy()
        case Namespace():
            held[metadata.name] = metadata.labels or {}
        case DeviceClass():
            held[metadata.name] = decoded
        case ResourceQuota():
            others = (q for q in held.get(namespace, ()) if q.metadata.name != metadata.name)
            held[namespace] = (*others, decoded)
        case ComputeDomain():
            placed = msgspec.structs.replace(metadata, namespace=namespace)
            uid = metadata.uid or f"{namespace}/{metadata.name}"  # it may not exist yet
            held[uid] = msgspec.structs.replace(decoded, metadata=placed)
        case _:
            held[f"{namespace}/{metadata.name}"] = decoded


@asynccontextmanager
async def known(
    snapshot: Path | None,
    reading: Reading | None,
    settings: Settings,
    manifests: Sequence[Manifest],
) -> AsyncIterator[KnownObjects]:
    """What is known besides these manifests; raises FettleError if it cannot be read. `reading`:
    how to read a cluster, if one is to be read."""
    against_nothing = snapshot is None and reading is None
    if against_nothing and not any(map(has_expressions, manifests)):
        yield KnownObjects(EMPTY, None, complete=False)
        return
    from fettle.cel import Engines, SelectorEngine

    engine = SelectorEngine()
    if snapshot is not None:
        found = _of_folder(snapshot, settings, engine)
    elif reading is not None:
        found = await _of_cluster(reading, settings, engine)
    else:
        found = KnownObjects(EMPTY, engine, complete=False)
    await engine.start()
    try:
        found.engines = Engines(engine)
        await compile_expressions(manifests, found.engines)
        yield found
    finally:
        await engine.close()


def _of_folder(path: Path, settings: Settings, evaluator: Evaluator) -> KnownObjects:
    from fettle.cluster.feeds import SnapshotFolder

    folder = SnapshotFolder(path)
    folder.poll()
    if folder.problems and not folder.objects:
        raise SnapshotError("; ".join(folder.problems.values()))
    inventory = _inventory(settings)
    notes = [f"snapshot: {clash}" for clash in folder.clashes]
    unknown: set[str] = set()
    for key, raw in folder.objects.items():
        kind = kinds.BY_NAME[key.kind]
        change = read_object(kind, raw)
        if isinstance(change, Put):
            inventory.put(kind, change.object, 0.0)
            continue
        inventory.quarantine(change, 0.0)
        unknown.add(kind.name)
        who = f"snapshot file {folder.file_of(key)}: {key.kind} {key.key}"
        notes.append(f"{who} is skipped: {change.reason}")
    for _ in inventory.refresh(0.0):
        pass
    held = folder.empty.union(key.kind for key in folder.objects)
    watched = [kind for kind in kinds.ON_DEMAND if kind.name in settings.lint.watch]
    if folder.problems:
        notes.append(
            "not all of the snapshot can be read: rules that look at all of it are skipped"
        )
    elif unknown:
        notes.append(_skipped(unknown))
    absent = [kind.name for kind in (*_NEEDED, *watched) if kind.name not in held]
    if absent:
        notes.append(f"the snapshot has no {', '.join(absent)}: rules that need them are skipped")
    on_demand = {kind.name for kind in kinds.ON_DEMAND}
    return KnownObjects(
        inventory.view(EMPTY, synced=True, served=dict.fromkeys(on_demand & held, True)) or EMPTY,
        evaluator,
        complete=not folder.problems,
        unknown=frozenset(unknown.union(absent, on_demand - held)),
        notes=tuple(notes),
        problems=tuple(f"snapshot file {problem}" for problem in folder.problems.values()),
    )


async def _of_cluster(reading: Reading, settings: Settings, evaluator: Evaluator) -> KnownObjects:
    from fettle.client import Chosen, Session
    from fettle.cluster.feeds import Writer, read_once

    publisher = Publisher()
    watched = [k for k in kinds.read_with(settings.lint.watch) if k is not kinds.DEVICE_HEALTH]
    writer = Writer(_inventory(settings), publisher, watched=watched)
    chosen = Chosen(reading.context, reading.acts_as, reading.groups)
    async with await Session.open(reading.kubeconfig, chosen=chosen) as session:
        folding = asyncio.create_task(writer.run())
        try:
            unread = await read_once(session, writer, watched)
            await writer.catch_up()
        finally:
            folding.cancel()
            await asyncio.wait((folding,))
    return _known_of(publisher.view, unread, evaluator)


def _why_unread(kind: Kind, error: ClusterError) -> str:
    return f"the cluster does not serve {kind.name}" if isinstance(error, NotServed) else str(error)


def _known_of(
    view: View, unread: Mapping[Kind, ClusterError], evaluator: Evaluator
) -> KnownObjects:
    denied = [kind for kind, error in unread.items() if isinstance(error, Forbidden)]
    served = {name: is_ for name, is_ in view.served.items() if name not in map(_name, denied)}
    without = [*denied, *(kind for kind in unread if kind in kinds.ON_DEMAND)]
    notes = [
        f"{_why_unread(kind, unread[kind])}; rules that need it are skipped"
        for kind in dict.fromkeys(without)
    ]
    if view.quarantined:
        notes += islice(view.quarantined.values(), _MAX_NAMED)
        if (more := len(view.quarantined) - _MAX_NAMED) > 0:
            notes.append(f"{more} more objects cannot be read")
        notes.append(_skipped({key.partition(" ")[0] for key in view.quarantined}))
    unknown = {*map(_name, denied), *(k.name for k in kinds.ON_DEMAND if not served.get(k.name))}
    return KnownObjects(
        msgspec.structs.replace(view, served=served),
        evaluator,
        complete=True,
        unknown=frozenset(unknown),
        notes=tuple(notes),
    )


def _name(kind: Kind) -> str:
    return kind.name


def _skipped(unread: Collection[str]) -> str:
    """The note for kinds some of whose objects cannot be read."""
    named = ", ".join(sorted(unread))
    return f"not every {named} can be read: rules that need all of them are skipped"


def _inventory(settings: Settings) -> Any:
    from fettle.cluster import Inventory
    from fettle.health import HealthBook, load_rules

    table = load_rules(settings.health.rules_file)
    return Inventory(HealthBook(settings.health, table), table)
