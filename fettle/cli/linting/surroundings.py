"""What is known around the manifests: nothing, a snapshot folder, or a cluster; and the manifests
themselves, since a template often stands beside the workload that uses it.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from fettle.errors import BadInput, ClusterError, SnapshotError
from fettle.lint.manifests import Manifest
from fettle.lint.surveying import Evaluator
from fettle.settings import Settings
from fettle.view import EMPTY, View
from fettle.wire import kinds

CLUSTER_WAIT_S = 60.0
_LOOKED_UP = {
    kinds.CLASS.name: "classes",
    kinds.CLAIM.name: "claims",
    kinds.TEMPLATE.name: "templates",
}


class Surroundings:
    """`complete`: what is not in the view does not exist. Without it, it may all the same."""

    def __init__(self, view: View, evaluator: Evaluator | None, *, complete: bool) -> None:
        self._view = view
        self.evaluator = evaluator
        self.complete = complete

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
            fields[field][f"{manifest.namespace}/{name}" if field != "classes" else name] = decoded
        return msgspec.structs.replace(self._view, synced=True, **fields)


@asynccontextmanager
async def known(
    snapshot: Path | None, kubeconfig: Path | None, settings: Settings
) -> AsyncIterator[Surroundings]:
    """Raises FettleError where a snapshot or a cluster cannot be read."""
    if snapshot is None and kubeconfig is None:
        yield Surroundings(EMPTY, None, complete=False)
        return
    from fettle.selectors.engine import SelectorEngine

    if snapshot is not None:
        view = _of_folder(snapshot, settings)
    else:
        assert kubeconfig is not None
        view = await _of_cluster(kubeconfig, settings)
    engine = SelectorEngine()
    await engine.start()
    try:
        yield Surroundings(view, engine, complete=True)
    finally:
        await engine.close()


def _of_folder(path: Path, settings: Settings) -> View:
    from fettle.feeds.folders import Folder

    folder = Folder(path)
    folder.look()
    if folder.problems:
        raise SnapshotError("; ".join(folder.problems.values()))
    inventory = _inventory(settings)
    for key, raw in folder.objects.items():
        kind = kinds.BY_NAME[key.kind]
        inventory.put(kind, kind.decode(raw), 0.0)
    for _ in inventory.refresh(0.0):
        pass
    return inventory.view(EMPTY, synced=True, served={}) or EMPTY


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
