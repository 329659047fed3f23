"""What is known around the manifests: nothing, a snapshot folder, or a cluster; and the manifests
themselves, since a template often stands beside the workload that uses it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fettle.cli.linting import checks
from fettle.errors import BadInput, ClusterError, SnapshotError
from fettle.lint.manifests import Manifest
from fettle.lint.surveying import Evaluator
from fettle.settings import Settings
from fettle.view import EMPTY, View
from fettle.wire import kinds
from fettle.wire.changes import Put
from fettle.wire.core import Namespace
from fettle.wire.policies import DevicePolicy
from fettle.wire.reading import read

CLUSTER_WAIT_S = 60.0
_NEEDED = (kinds.NODE, kinds.SLICE, kinds.CLASS, kinds.CLAIM, kinds.TEMPLATE)
"""Kinds that rules look for in a snapshot."""
_LOOKED_UP = {
    kinds.CLASS.name: "classes",
    kinds.CLAIM.name: "claims",
    kinds.TEMPLATE.name: "templates",
    kinds.POLICY.name: "policies",
    kinds.NAMESPACE.name: "namespaces",
}
_CLUSTER_WIDE = ("classes", "policies", "namespaces")


class Surroundings:
    """`complete`: what is not in the view does not exist, unless its kind is `unknown`. Without it,
    it may all the same. `notes` are sentences about what was passed over."""

    def __init__(
        self,
        view: View,
        evaluator: Evaluator | None,
        *,
        complete: bool,
        unknown: frozenset[str] = frozenset(),
        notes: tuple[str, ...] = (),
    ) -> None:
        self._view = view
        self.evaluator = evaluator
        self.complete = complete
        self.unknown = unknown
        self.notes = notes

    def view_with(self, manifests: Iterable[Manifest]) -> View:
        """The view as it would be with these objects applied."""
        fields: dict[str, dict[str, Any]] = {
            field: dict(getattr(self._view, field)) for field in _LOOKED_UP.values()
        }
        for manifest in manifests:
            field = _LOOKED_UP.get(manifest.kind)
            if field is None or manifest.api_version != kinds.BY_NAME[manifest.kind].api_version:
                continue
            try:
                decoded = kinds.BY_NAME[manifest.kind].decode(msgspec.json.encode(manifest.object))
            except (BadInput, TypeError, ValueError, OverflowError):
                continue  # the API server will say what is wrong with it
            name = decoded.metadata.name
            key = name if field in _CLUSTER_WIDE else f"{manifest.namespace}/{name}"
            fields[field][key] = _held(decoded)
        return msgspec.structs.replace(self._view, synced=True, **fields)


def _held(decoded: kinds.WireObject) -> Any:
    """An object as views hold it."""
    if isinstance(decoded, DevicePolicy):
        return decoded.policy()
    return decoded.metadata.labels or {} if isinstance(decoded, Namespace) else decoded


@asynccontextmanager
async def known(
    snapshot: Path | None,
    kubeconfig: Path | None,
    settings: Settings,
    manifests: Sequence[Manifest],
) -> AsyncIterator[Surroundings]:
    """Around these manifests; raises FettleError where a snapshot or a cluster cannot be read."""
    against_nothing = snapshot is None and kubeconfig is None
    if against_nothing and not any(any(checks.selectors(manifest)) for manifest in manifests):
        yield Surroundings(EMPTY, None, complete=False)
        return
    from fettle.selectors.engine import SelectorEngine

    engine = SelectorEngine()
    if snapshot is not None:
        around = _of_folder(snapshot, settings, engine)
    elif kubeconfig is not None:
        around = Surroundings(await _of_cluster(kubeconfig, settings), engine, complete=True)
    else:
        around = Surroundings(EMPTY, engine, complete=False)
    await engine.start()
    try:
        await checks.compile_all(manifests, engine)
        yield around
    finally:
        await engine.close()


def _of_folder(path: Path, settings: Settings, evaluator: Evaluator) -> Surroundings:
    from fettle.feeds.folders import Folder

    folder = Folder(path)
    folder.look()
    if folder.problems:
        raise SnapshotError("; ".join(folder.problems.values()))
    inventory = _inventory(settings)
    notes: list[str] = []
    unknown: set[str] = set()
    for key, raw in folder.objects.items():
        kind = kinds.BY_NAME[key.kind]
        change = read(kind, raw)
        if isinstance(change, Put):
            inventory.put(kind, change.object, 0.0)
            continue
        inventory.quarantine(kind, change.key, change.reason, change.node, 0.0)
        unknown.add(kind.name)
        who = f"snapshot file {folder.file_of(key)}: {key.kind} {key.key}"
        notes.append(f"{who} is passed over: {change.reason.removeprefix(f'{key.kind}: ')}")
    for _ in inventory.refresh(0.0):
        pass
    held = {key.kind for key in folder.objects}
    absent = [kind.name for kind in _NEEDED if kind.name not in held]
    if absent:
        notes.append(
            f"the snapshot has no {', '.join(absent)}: rules that rest on these say nothing"
        )
    return Surroundings(
        inventory.view(EMPTY, synced=True, served={}) or EMPTY,
        evaluator,
        complete=True,
        unknown=frozenset(unknown.union(absent)),
        notes=tuple(notes),
    )


async def _of_cluster(kubeconfig: Path, settings: Settings) -> View:
    from fettle.feeds.cluster import ClusterFeed
    from fettle.feeds.writing import Writer
    from fettle.kube.session import Session
    from fettle.view import Publisher

    publisher = Publisher()
    session = await Session.open(kubeconfig)
    writer = Writer(_inventory(settings), publisher)
    work = asyncio.gather(writer.run(), ClusterFeed(session).run(writer))
    synced = asyncio.ensure_future(_synced(publisher))
    both: set[asyncio.Future[Any]] = {work, synced}
    try:
        done, _ = await asyncio.wait(
            both, timeout=CLUSTER_WAIT_S, return_when=asyncio.FIRST_COMPLETED
        )
        if synced not in done:
            if work in done:
                work.result()
            raise ClusterError(f"the cluster was not read within {CLUSTER_WAIT_S:g} s")
        return synced.result()
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await session.close()


async def _synced(publisher: Any) -> View:
    view: View = publisher.view
    while not view.synced:
        view = await publisher.newer_than(view.generation)
    return view


def _inventory(settings: Settings) -> Any:
    from fettle.evidence import rules
    from fettle.health import HealthBook
    from fettle.inventory.inventory import Inventory

    table = rules.load(settings.health.rules_file)
    return Inventory(HealthBook(settings.health, table), table)
