"""`fettle serve`: puts the parts together, runs them on one loop, and takes them down in order."""

import asyncio
import signal
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import NamedTuple

import structlog
import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry

from extender import (
    AlwaysFresh,
    Browse,
    Freshness,
    Misconfiguration,
    RecentPods,
    SchedulerConnections,
    make_connections,
)
from fettle.api import core
from fettle.api.kinds import WireObject, read_with
from fettle.cel import SelectorEngine
from fettle.client import EventRecorder, Session, follow_server_version, identity
from fettle.cluster import Inventory, Publisher
from fettle.cluster.feeds import ClusterFeed, FeedFreshness, SnapshotFeed, Writer
from fettle.config import Settings, load
from fettle.health import HealthBook, rules
from fettle.lint import Linter, check_settings, configured_drivers
from fettle.model import AuthorityError, ClusterError, NoCluster
from fettle.observing import (
    BreakerMetrics,
    CertificateMetrics,
    ExtenderMetrics,
    OverlookedMetrics,
    PolicyMetrics,
    PredictionMetrics,
    SelectorMetrics,
    StewardMetrics,
    ViewMetrics,
    log_health_changes,
    logs,
    make_registry,
)
from fettle.scheduling import Answers, Engines, Predictions
from fettle.serve import securing
from fettle.serve.listening import AppListener, ExtenderListener, ListenAddress, Listener, parse
from fettle.serve.readiness import Readiness
from fettle.serve.secured import CertificateWarnings, Secured
from fettle.serve.tasks import Tasks
from fettle.steward import AllowedNodes, Steward
from webhook import (
    ALL_PRESERVED,
    REPORTING_CONTROLLER,
    EventMetrics,
    EventSink,
    FieldProbe,
    PreservedFields,
    StoredPolicyRules,
    last_reviews,
)
from webhook import make_app as make_webhook

_LOG = structlog.get_logger(__name__)

RETRY_S = 2.0
SLOW_S = 2.0
"""If credentials are not read by then, it is logged."""


class ServeOptions(NamedTuple):
    """What the command line asks for."""

    roles: frozenset[str]
    kubeconfig: Path | None
    snapshot: Path | None
    settings: Path | None
    extender_listen: str
    webhook_listen: str
    browse_listen: str
    log_level: str


def run(plan: ServeOptions) -> None:
    """Serve until SIGTERM or SIGINT; raises FettleError if serving cannot start or continue."""
    logs.configure(plan.log_level)
    settings = load(plan.settings)
    check_settings(settings)
    for remark in settings.remarks():
        _LOG.warning(remark)
    uvloop.run(_serve(plan, settings))


async def _serve(plan: ServeOptions, settings: Settings) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    house = Runtime(plan, settings)
    try:
        if await _until(stopped, house.open()):
            await house.stay(stopped)
    finally:
        await house.close()
    _LOG.info("stopped")


class Runtime:
    """All parts of one process, and the tasks that keep them going."""

    def __init__(self, plan: ServeOptions, settings: Settings) -> None:
        self._plan = plan
        self._settings = settings
        self._publisher = Publisher()
        self._kinds = read_with(settings.lint.watch)
        self._engine = SelectorEngine()
        self._registry = make_registry()
        self._expirations = CertificateMetrics(self._registry)
        self._answers = Answers(
            self._publisher,
            self._engine,
            settings,
            on_breaker=BreakerMetrics(self._registry).changed,
        )
        self._session: Session | None = None
        self._listeners: list[Listener] = []
        self._tasks = Tasks()
        self._readiness = Readiness(self._publisher, settings.sources.silent_after_seconds)
        self._unknown: Callable[[], frozenset[str]] = frozenset
        self._on_put: list[Callable[[WireObject], None]] = []

    async def open(self) -> None:
        """Start everything; raises FettleError."""
        plan, settings = self._plan, self._settings
        addresses = {
            "extender": parse(plan.extender_listen, "--extender-listen"),
            "webhook": parse(plan.webhook_listen, "--webhook-listen"),
            "browse": parse(plan.browse_listen, "--browse-listen"),
        }
        table = rules.load(settings.health.rules_file)
        recent = RecentPods()
        extender = self._extender() if "extender" in plan.roles else None
        await self._open_browse(addresses["browse"], recent)
        if plan.snapshot is None:
            self._session = await self._open_session()
        predictions = Predictions(self._answers, PredictionMetrics(self._registry).count_result)
        self._answers.on_answered = predictions.answered
        self._on_put.append(predictions.put)
        writer = Writer(
            Inventory(HealthBook(settings.health, table), table, self._answers.profile.features),
            self._publisher,
            watched=self._kinds,
            on_put=self._on_put,
            on_view=(log_health_changes,),
        )
        self._readiness.notes += [self._answers.follows, self._answers.open_breakers]
        await self._engine.start()
        self._tasks.keep("writer", writer.run())
        self._tasks.keep("feed", self._feed(writer))
        if self._session is not None:
            self._tasks.keep("version", follow_server_version(self._session, self._answers.follow))
        self._tasks.keep("selectors", self._answers.keep_ready())
        self._tasks.keep("verdicts", self._answers.keep_complete())
        registry = self._registry
        registry.register(ViewMetrics(self._publisher))
        registry.register(SelectorMetrics(lambda: self._engine.worker_starts))
        registry.register(PolicyMetrics(self._answers.ignored_requirements))
        if extender is not None:
            connections = self._connections(*extender, writer, recent)
            await self._open_extender(addresses["extender"], connections)
        if "webhook" in plan.roles:
            self._tasks.open("webhook", self._open_webhook(addresses["webhook"], registry))
            self._tasks.keep("stored policies", StoredPolicyRules(self._publisher, registry).run())
        if "steward" in plan.roles and self._session is None:
            _LOG.info("the steward has nothing to write to when a snapshot is served")
        elif "steward" in plan.roles and self._session is not None:
            self._tasks.keep("steward", self._steward(self._session).run(), early=True)
        self._readiness.opening = ""

    async def stay(self, stopped: asyncio.Event) -> None:
        """Until asked to stop; raises the error that a part failed with."""
        await _until(stopped, self._tasks.watch())

    async def close(self) -> None:
        """Drain the listeners once no other can open, and release leases meanwhile; then stop the
        rest.
        """
        await self._tasks.end_openings()
        draining = (listener.stop() for listener in self._listeners)
        await asyncio.gather(self._tasks.end_early(), *draining)
        await self._tasks.end()
        await self._engine.close()
        if self._session is not None:
            await self._session.close()

    def _feed(self, writer: Writer) -> Awaitable[None]:
        if self._session is not None:
            return ClusterFeed(self._session, kinds=self._kinds).run(writer)
        assert self._plan.snapshot is not None
        feed = SnapshotFeed(self._plan.snapshot, kinds=self._kinds)
        self._readiness.notes.append(
            lambda: [f"snapshot: {text}" for text in (*feed.problems.values(), *feed.clashes)]
        )
        self._unknown = lambda: feed.unknown
        return feed.run(writer)

    async def _open_session(self) -> Session:
        """Reads the credentials, which may take a credential plugin of the kubeconfig a while."""
        readiness, reading = self._readiness, "the credentials for the cluster are being read"
        before, readiness.opening = readiness.opening, reading
        slow = asyncio.get_running_loop().call_later(SLOW_S, _LOG.warning, reading)
        try:
            return await Session.open(self._plan.kubeconfig)
        except NoCluster as error:
            raise NoCluster(f"{error}, or --snapshot DIR to run without a cluster") from error
        finally:
            slow.cancel()
            readiness.opening = before

    async def _open_browse(self, address: ListenAddress, recent: Mapping[str, core.Pod]) -> None:
        """First of all: probes are answered while the rest begins."""
        browse = Browse(
            self._answers,
            self._registry,
            recent,
            self._settings.sources.silent_after_seconds,
            self._readiness.current_problems,
            self._readiness.current_notes,
            schedulers=self._settings.scheduler.names,
        )
        await self._listen(AppListener("browse", address, None, browse.make_app()), Secured(None))

    def _extender(self) -> tuple[ExtenderMetrics, Misconfiguration]:
        """What is counted and noticed of the schedulers that ask."""
        metrics = ExtenderMetrics(self._registry)
        misconfiguration = Misconfiguration(metrics, self._settings.scheduler.names)
        self._readiness.notes.append(misconfiguration.notes)
        self._on_put.append(misconfiguration.unasked.put)
        self._registry.register(OverlookedMetrics(misconfiguration.unasked.found))
        return metrics, misconfiguration

    def _connections(
        self,
        metrics: ExtenderMetrics,
        misconfiguration: Misconfiguration,
        writer: Writer,
        recent: RecentPods,
    ) -> SchedulerConnections:
        """What answers the schedulers."""
        freshness: Freshness = AlwaysFresh()
        if self._session is not None:
            freshness = FeedFreshness(self._session.streams, writer)
        return make_connections(
            self._answers,
            self._settings.extender,
            metrics,
            self._readiness.problem,
            freshness=freshness,
            misconfiguration=misconfiguration,
            recent=recent,
        )

    async def _open_extender(
        self, address: ListenAddress, connections: SchedulerConnections
    ) -> None:
        async def secured() -> Secured:
            return await securing.extender(address, self._settings, self._session)

        opening = self._open_listener(
            "extender",
            secured,
            lambda context: ExtenderListener("extender", address, context, connections),
        )
        if securing.signs_for_extender(self._settings.extender):
            self._tasks.open("extender", opening)
        else:
            await opening

    async def _open_webhook(self, address: ListenAddress, registry: CollectorRegistry) -> None:
        async def secured() -> Secured:
            return await securing.webhook(address, self._settings, self._session)

        await self._open_listener(
            "webhook",
            secured,
            lambda context: AppListener("webhook", address, context, self._webhook(registry)),
        )

    def _webhook(self, registry: CollectorRegistry) -> web.Application:
        gates, asked = self._gates(), last_reviews()
        self._readiness.notes.append(lambda: [asked.note()])
        lint = self._settings.lint
        linter = Linter(
            evaluator=self._engine,
            drivers=configured_drivers(lint),
            disabled=self._settings.disabled_features,
        )
        return make_webhook(
            self._publisher,
            self._settings,
            registry=registry,
            linter=linter,
            preserved=gates,
            events=self._tell(registry),
            engines=Engines(self._engine),
            incomplete_kinds=lambda: self._unknown(),
            last=asked,
        )

    def _tell(self, registry: CollectorRegistry) -> EventSink | None:
        """Where Events of audit mode go."""
        if self._session is None or self._settings.webhook.mode != "audit":
            return None
        counted = EventMetrics(registry).count
        recorder = EventRecorder(self._session, REPORTING_CONTROLLER, identity(), counted)
        self._tasks.keep("events", recorder.run())
        return recorder.record

    def _gates(self) -> Callable[[], PreservedFields | None]:
        """Which injected fields the cluster preserves, checked again and again."""
        if self._session is None:
            return lambda: ALL_PRESERVED
        probe = FieldProbe(self._session, self._settings.namespace or self._session.namespace)
        self._readiness.notes.append(probe.notes)
        self._tasks.keep("probe of the cluster", probe.run())
        disabled = self._settings.scheduler.disabled
        return lambda: probe.preserved and probe.preserved.without(disabled)

    async def _open_listener(
        self,
        name: str,
        secured: Callable[[], Awaitable[Secured]],
        make: Callable[[ssl.SSLContext | None], Listener],
    ) -> None:
        """Listen as soon as there is a certificate, which may wait for the API server, or for
        somebody to mend a Secret."""
        waits_for = f"{name}: no certificate yet"
        self._readiness.problems.append(lambda: waits_for)
        while True:
            try:
                made = await secured()
            except (ClusterError, AuthorityError) as error:
                before, waits_for = waits_for, f"{name}: no certificate yet: {error}"
                if waits_for != before:
                    _LOG.warning("no certificate yet", of=name, reason=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                break
        await self._listen(make(made.context), made)
        waits_for = ""

    async def _listen(self, listener: Listener, secured: Secured) -> None:
        self._listeners.append(listener)  # before it is open: it may be stopped meanwhile
        await listener.start()
        self._readiness.problems.append(secured.problem)
        self._readiness.notes.append(secured.notes)
        if (serving := secured.serving) is not None:
            self._expirations.serves(listener.name, lambda: serving.validity.ends_at)
            if serving.client_ca is not None:
                self._expirations.trusts(listener.name, lambda: serving.client_ca_ends_at)
        if secured.keep is not None:
            name = f"certificates of the {listener.name}"
            self._tasks.keep(name, secured.keep(), early=True)
            self._tasks.keep(
                f"warnings about {name}", CertificateWarnings(secured).keep(), early=True
            )

    def _steward(self, session: Session) -> Steward:
        return Steward(
            session,
            self._publisher,
            AllowedNodes(self._answers).find,
            namespace=self._settings.namespace or session.namespace,
            identity=identity(),
            settings=self._settings.steward,
            metrics=StewardMetrics(self._registry),
        )


async def _until(stopped: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Whether the work came to its end before it was to stop; else it is given up."""
    waiting, working = asyncio.create_task(stopped.wait()), asyncio.create_task(work)
    await asyncio.wait((waiting, working), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    working.cancel()
    await asyncio.wait((working,))
    return not working.cancelled() and working.result() is None
