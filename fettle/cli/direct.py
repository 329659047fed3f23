"""What a server would answer, where none is asked: reads the cluster that the kubeconfig reaches,
or a snapshot, once, folds it by the code that serves, and lets browse's handlers answer. What may
not be read, or is not served, is said on standard error. `fettle ui` follows the cluster, and shows
the page.
"""

import asyncio
import os
import sys
import threading
import webbrowser
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import uvloop
from prometheus_client import CollectorRegistry

from fettle import logs
from fettle.api import Change, Put, core, kinds
from fettle.api.kinds import EVENTS, KINDS, Kind
from fettle.browse import TRUSTED, Known, answers_of
from fettle.cel import SelectorEngine
from fettle.cli.sources import Reading, given, typed
from fettle.cli.supposed import Supposed, documents_of, supposed
from fettle.client import Chosen, Session, server_version
from fettle.cluster import EMPTY, Inventory, Publisher, readiness
from fettle.cluster.feeds import SnapshotFeed, WorkloadFeed, Writer, read_once
from fettle.config import AlertmanagerSettings, PrometheusSettings, Settings, load_settings
from fettle.explain import JSON_VERSION
from fettle.health import HealthBook, load_rules
from fettle.lint import check_settings, workload_kinds
from fettle.model import NO_SETTINGS, FettleError, Forbidden, Mode, NoCluster, Policies
from fettle.scheduling import Answers
from fettle.scheduling.placed import PodObservers
from fettle.serve import OwnPage, ServeOptions, show

_T = TypeVar("_T")
DEFAULT_NAMESPACE = "default"
SHOWN_AFTER_S = 1.0
"""Progress is shown of what takes longer."""
_SHOWN_EVERY_S = 0.2
SELECTORS_WITHIN_S = 10.0
"""How long an answer waits for selectors: their worker starts when it is asked first."""
WORKLOADS_WITHIN_S = 5.0
"""How long the workloads of pods are asked for their policies."""
MOST_ELSEWHERE = 3
_STORED = PrometheusSettings(url="http://stored.invalid")
"""Nobody is asked for metrics here: as in each process that is not the leader, what DeviceHealth
objects say of them counts."""
_READ = (*KINDS, *EVENTS)
_MISSED = (kinds.NODE, kinds.POD, kinds.SLICE, kinds.CLASS, kinds.CLAIM)
"""What every snapshot should have."""
_WINDOWS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
"""Without any of these, a browser on Linux would be one in the terminal, which cannot show it."""
_UNSETTLED = (
    "a Fettle is installed here, and its settings are not seen: give them with --settings FILE, or "
    "ask it with --server URL"
)


def fetch(path: str, query: Mapping[str, str] | None = None) -> Any:
    """What a server would answer at this path, decoded, with `cluster`, the API server's URL, and
    `unseen`, sentences about what could not be read. Raises FettleError."""
    return _asked(lambda read: read.answer(path, query or {}))


def suppose(file: str, namespace: str, change: Mapping[str, str]) -> list[Any]:
    """What a server would answer of each pod of a file's manifests, were they in the cluster: at
    `/explain`, or, if there is a `change`, at `/what-if`. Raises FettleError, and BadInput if the
    file is not of use."""
    documents, settings = documents_of(file), _settings(given().settings)
    rows = settings.webhook.workloads
    supposed(
        documents, namespace or DEFAULT_NAMESPACE, EMPTY, rows
    )  # what is wrong is said at once
    path = "/what-if" if change else "/explain"

    async def ask(read: _Read) -> list[Any]:
        put = supposed(documents, namespace or read.namespace, read.known.answers.view, rows)
        await read.suppose(put)
        known = read.known
        return [
            await read.answer(path, {"pod": pod, **change}) if known.pod(pod) else _deviceless(pod)
            for pod in put.pods
        ]

    return _asked(ask, "--snapshot DIR to ask of a folder that `fettle snapshot` wrote")


def show_page(reading: Reading, namespace: str, port: int, *, opens: bool) -> None:
    """Show what a server's page would, on this machine, until interrupted. Raises FettleError."""
    settings = _settings(reading.settings)
    own = OwnPage(
        msgspec.structs.replace(
            settings,
            prometheus=_STORED,
            alertmanager=AlertmanagerSettings(),
            records=msgspec.structs.replace(settings.records, directory=None),
        ),
        _policies(reading.settings, settings),
        partial(_invite, opens=opens),
        reading.context,
        reading.acts_as,
        reading.groups,
        namespace,
    )
    nowhere = "127.0.0.1:0"
    show(
        ServeOptions(
            roles=frozenset(),
            kubeconfig=reading.kubeconfig,
            snapshot=None,
            settings=None,
            extender_listen=nowhere,
            webhook_listen=nowhere,
            browse_listen=(f"127.0.0.1:{port}",),
            log_level="error",
            own=own,
        )
    )


def _invite(url: str, once: str, *, opens: bool) -> None:
    """Say where the page is. A browser gets a URL of its own: its command line is no secret."""
    click.echo(f"Fettle's page: {url}")
    click.echo("Whoever has this URL sees what you may see. Ctrl-C ends it.")
    if opens and (sys.platform != "linux" or any(map(os.environ.get, _WINDOWS))):
        threading.Thread(target=webbrowser.open, args=(once,), daemon=True).start()


def _deviceless(pod: str) -> dict[str, Any]:
    """As both paths answer of a pod that needs no devices; no view has these."""
    said = {"version": JSON_VERSION, "pod": pod, "demand": None, "nodes": {}, "problems": []}
    return {**said, "notes": [], "reasons": {"notes": []}, "before": None, "after": None}


def _asked(
    ask: "Callable[[_Read], Awaitable[_T]]", instead: str = "--server URL to ask a running Fettle"
) -> _T:
    """`instead`: what else to give where there is no cluster."""
    logs.configure("error")
    return uvloop.run(_answer(given(), ask, instead))


async def _answer(reading: Reading, ask: "Callable[[_Read], Awaitable[_T]]", instead: str) -> _T:
    settings = _settings(reading.settings)
    policies = _policies(reading.settings, settings)
    if reading.snapshot is not None:
        return await _of(_Folder(reading.snapshot, settings, policies), reading, ask)
    try:
        chosen = Chosen(reading.context, reading.acts_as, reading.groups)
        session = await Session.open(reading.kubeconfig, chosen=chosen)
    except NoCluster as error:
        raise NoCluster(f"{error}, or {instead}") from error
    async with session:
        return await _of(_Cluster(session, settings, policies), reading, ask)


async def _of(read: "_Read", reading: Reading, ask: "Callable[[_Read], Awaitable[_T]]") -> _T:
    showing = asyncio.create_task(read.counting.show())
    try:
        await read.read()
        try:
            return await ask(read)
        finally:
            unsettled = [_UNSETTLED] if reading.settings is None and read.has_fettle else []
            read.said = (*read.unseen, *read.absent, *unsettled)
    finally:
        showing.cancel()
        await asyncio.wait((showing,))
        await read.close()
        for sentence in read.said:
            click.echo(f"fettle: {sentence}", err=True)


def _settings(path: Path | None) -> Settings:
    """As given; by default those of nobody who acts."""
    settings = load_settings(path)
    check_settings(settings)
    patient = msgspec.structs.replace(settings.extender, wait_seconds=SELECTORS_WITHIN_S)
    mode = settings.mode if path is not None else Mode.OBSERVE
    return msgspec.structs.replace(settings, extender=patient, mode=mode)


def _policies(path: Path | None, settings: Settings) -> Policies:
    """Those of the settings, which say who chose the mode."""
    policies = settings.all_policies()
    return policies if path else msgspec.structs.replace(policies, mode_origin=NO_SETTINGS)


class _Read:
    """What is read, as a server has it once it is ready, and where: `source`, and the `namespace`
    of a pod that is named without one. `unseen` are sentences about what could not be read,
    `absent` about what is not served; `said` are those that people get."""

    namespace = DEFAULT_NAMESPACE
    said: tuple[str, ...] = ()

    def __init__(self, source: str, settings: Settings, policies: Policies) -> None:
        self.source = source
        self._engine = SelectorEngine()
        self._publisher, rules = Publisher(), load_rules(settings.health.rules_file)
        self._answers = answers = Answers(
            self._publisher, self._engine, settings, policies=policies
        )
        self._pods = pods = PodObservers.of(answers)
        inventory = Inventory(
            HealthBook(settings.health, rules),
            rules,
            answers.profile.features,
            on_failed_start=pods.refusals.does_not_start,
            prometheus=_STORED,
            health=settings.health,
            alerts=True,
            looks_once=True,
        )
        self._writer = Writer(
            inventory,
            self._publisher,
            watched=_READ,
            on_object=pods.observers,
            on_view=(answers.demands.gangs.observe_view, pods.claims.observe_view),
        )
        self._folding = asyncio.create_task(self._writer.run())
        self.counting = _Counting(self._writer)
        self.known = Known(
            answers, pods, settings, CollectorRegistry(), recoveries=inventory, is_steward=False
        )
        self.unseen: list[str] = []
        self.absent: list[str] = []
        self._supposed: frozenset[str] = frozenset()
        """Keys of pods that are in no cluster: nobody else knows their workloads."""

    @property
    def has_fettle(self) -> bool:
        """Whether a Fettle seems to be installed here."""
        return bool(self._answers.view.device_healths)

    async def close(self) -> None:
        self._folding.cancel()
        await asyncio.wait((self._folding,))
        await self._engine.close()

    async def read(self) -> None:
        """Raises FettleError if nothing can be read."""
        raise NotImplementedError

    async def suppose(self, supposed: Supposed) -> None:
        """Take objects in addition."""
        self._supposed = frozenset(supposed.pods)
        await self._writer.send([*supposed.puts])
        for one in supposed.inherited:
            await self._writer.find(one)
        await self._writer.catch_up()

    async def answer(self, path: str, query: Mapping[str, str]) -> Any:
        """Raises FettleError."""
        if query.get("pod", "").startswith("/"):  # named without its namespace
            query = {**query, "pod": f"{self.namespace}{query['pod']}"}
        await self._learn(path, query)
        reply = await answers_of(self.known)[path](query, TRUSTED)
        assert isinstance(reply.body, bytes)
        answer = msgspec.json.decode(reply.body)
        if reply.status != 200:
            raise FettleError(typed(answer["error"]) + self._elsewhere(query.get("pod", "")))
        answer.pop("process", None)  # a command is none that serves
        return answer | {"cluster": self.source, "unseen": self.unseen}

    def _elsewhere(self, pod: str) -> str:
        """The end of a sentence: where pods of this name are, if it is not known itself."""
        name = pod.rpartition("/")[2]
        if not name or self.known.pod(pod) is not None:
            return ""
        found = sorted(key for key in self.known.answers.view.pods if key.endswith(f"/{name}"))
        return f"; of that name there is {', '.join(found[:MOST_ELSEWHERE])}" if found else ""

    async def _learn(self, path: str, query: Mapping[str, str]) -> None:
        """What a server finds out in the background, as far as this question needs it: what the
        workloads of pods name, and on which nodes the policies' requirements are met."""
        if (key := query.get("pod")) is not None:
            named = self.known.pod(key) if key not in self._supposed else None
            await self._ask_for_workloads([named] if named is not None else [])
        elif path in ("/pods", "/policy", "/status"):
            await self._ask_for_workloads(self._answers.view.pods.values())
            await self._answers.evaluate_requirements()

    async def _ask_for_workloads(self, pods: Iterable[core.Pod]) -> None:
        """Learn what the workloads of these pods name."""


class _Folder(_Read):
    """A folder of objects."""

    def __init__(self, folder: Path, settings: Settings, policies: Policies) -> None:
        super().__init__(str(folder), settings, policies)
        self._feed = SnapshotFeed(folder, kinds=_READ)

    async def read(self) -> None:
        feed = self._feed
        await feed.read_once(self.counting)
        await self._writer.catch_up()
        self.unseen += (f"snapshot: {text}" for text in (*feed.problems.values(), *feed.clashes))
        self.unseen += (
            f"the snapshot has no {kind.name}: {readiness.UNSEEN[kind.name]}"
            for kind in _MISSED
            if kind.name in feed.absent
        )


class _Cluster(_Read):
    """A cluster."""

    def __init__(self, session: Session, settings: Settings, policies: Policies) -> None:
        super().__init__(session.server, settings, policies)
        self._session = session
        self.namespace = session.users_namespace
        passing_on = workload_kinds.passing_on(settings.webhook.workloads)
        self._workloads = WorkloadFeed(session, self._publisher, self._writer.find, passing_on)

    async def read(self) -> None:
        with suppress(Forbidden):  # then as the newest version allocates
            self._answers.predict_as(await server_version(self._session))
        unread = await read_once(self._session, self.counting, _READ)
        await self._writer.catch_up()
        denied = [kind for kind in _READ if isinstance(unread.get(kind), Forbidden)]
        if len(denied) == len(_READ):  # it is not one right that is missing
            raise unread[kinds.NODE]
        self.unseen += _unseen(denied)
        self.absent += _absent([kind for kind in _READ if kind in unread and kind not in denied])

    async def _ask_for_workloads(self, pods: Iterable[core.Pod]) -> None:
        for pod in pods:
            self._workloads.observe(pod)
        left = await self._workloads.ask_all(WORKLOADS_WITHIN_S)
        await self._writer.catch_up()
        if left:
            self.unseen.append(
                f"the policies that {left} workloads name are not seen: there was no answer in time"
            )
        self.unseen += self._workloads.notes()


def _unseen(denied: Iterable[Kind]) -> list[str]:
    """A sentence for each resource that may not be read."""
    found = (
        f"you may not list {_resource(kind)}: {readiness.UNSEEN[kind.name]}" for kind in denied
    )
    return [*dict.fromkeys(found)]  # Events are read twice


def _absent(unserved: Iterable[Kind]) -> list[str]:
    """A sentence for each API group of which something is not served."""
    by_group: dict[str, list[Kind]] = defaultdict(list)
    for kind in unserved:
        by_group[kind.group].append(kind)
    return [
        f"the cluster does not serve {', '.join(map(_resource, of_group))}: "
        + "; ".join(readiness.UNSEEN[kind.name] for kind in of_group)
        for of_group in by_group.values()
    ]


def _resource(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


class _Counting:
    """A sink that passes changes on, and counts the objects of each kind."""

    def __init__(self, sink: Writer) -> None:
        self._sink = sink
        self._read: Counter[str] = Counter()

    async def send(self, changes: list[Change]) -> None:
        self._read.update(change.kind.plural for change in changes if isinstance(change, Put))
        await self._sink.send(changes)

    async def show(self) -> None:
        """Show on a terminal what was read, until cancelled."""
        if not sys.stderr.isatty():
            return
        await asyncio.sleep(SHOWN_AFTER_S)
        try:
            while True:
                most = self._read.most_common(3)
                told = ", ".join(f"{count} {name}" for name, count in most) or "nothing yet"
                click.echo(f"\r\x1b[Kread so far: {told}", nl=False, err=True)
                await asyncio.sleep(_SHOWN_EVERY_S)
        finally:
            click.echo("\r\x1b[K", nl=False, err=True)
