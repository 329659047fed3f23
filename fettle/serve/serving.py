"""`fettle serve`: makes the parts of one process, registers their metrics, runs them on one loop,
and stops them in order.

The composition root. It holds no logic of *watch → inventory → health → verdict → answer*, it only
connects the rooms that do.
"""

import asyncio
import resource
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop
from aiohttp import web

from certs import KnownCallers, ListenerTLS, alerts_tls, extender_tls, webhook_tls
from extender import AlwaysFresh, Freshness, Misconfiguration, make_connections
from fettle import logs
from fettle.api import Finding
from fettle.api.kinds import DEVICE_HEALTH, EVENTS, WireObject, read_with
from fettle.browse import (
    Invitation,
    Known,
    Leader,
    Reviews,
    by_review,
    by_token,
    make_browse_app,
    screened,
    trusting,
)
from fettle.cel import Engines, SelectorEngine
from fettle.client import Chosen, EventRecorder, LeaseLook, Session, identity, keep_server_version
from fettle.cluster import Inventory, Publisher, readiness
from fettle.cluster.feeds import (
    Alerts,
    ClusterFeed,
    FeedFreshness,
    ObjectFeed,
    OnView,
    Poller,
    SnapshotFeed,
    WorkloadFeed,
    Writer,
)
from fettle.config import ListenAddress, Settings, SocketPath, load_settings
from fettle.health import HealthBook, SignalRules, load_rules, metrics
from fettle.lint import (
    Linter,
    check_settings,
    configured_drivers,
    levels_for,
    remarks_on_policies,
    workload_kinds,
)
from fettle.logs import Logger
from fettle.model import Mode, NoCluster
from fettle.observing import (
    AlertMetrics,
    BreakerMetrics,
    CertificateMetrics,
    DecisionMetrics,
    ExtenderMetrics,
    ObjectRuleMetrics,
    OverlookedMetrics,
    PartMetrics,
    PolicyMetrics,
    PredictionMetrics,
    PrometheusMetrics,
    ReadyMetrics,
    ReloadMetrics,
    RiskMetrics,
    SelectorMetrics,
    StewardMetrics,
    ViewMetrics,
    count_restarts,
    log_health_changes,
    make_registry,
)
from fettle.pacing import USUAL_PAUSES, KeptParts, Pauses, run_within
from fettle.records import DecisionLog, Journal, PodFates, Recorder
from fettle.scheduling import Answers, OwnerRefusals, Predictions
from fettle.scheduling.placed import AtRisk, PodObservers
from fettle.serve.channel import Channel
from fettle.serve.listening import AppListener, ExtenderListener, Listeners
from fettle.serve.options import ServeOptions, browse_token
from fettle.serve.readiness import Readiness
from fettle.serve.stewarding import make_steward
from fettle.serve.succession import SettingsFiles, Succession
from fettle.serve.tasks import Tasks
from fettle.steward import HopelessOwners, Steward
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

SLOW_S = 2.0
"""If the credentials are not read by then, that is logged."""

_LOG = Logger(__name__)
_ANYBODY = (
    "webhook: its callers may be anybody, so it names nothing of the cluster, and writes no Events "
    "and no records of reviews: set webhook.tls.clientCaFile, or webhook.trustCallers"
)


def run(options: ServeOptions, channel: Channel) -> None:
    """Serve until SIGTERM or SIGINT, or until the process at the other end of the channel ends.
    Raises FettleError if serving cannot start or continue."""
    logs.configure(options.log_level)
    files = SettingsFiles(options.settings)
    settings = load_settings(options.settings)
    check_settings(settings)
    for remark in (*settings.remarks(), *remarks_on_policies(settings)):
        _LOG.warning(remark)
    _allow_files()
    uvloop.run(_serve(options, settings, files, Succession(channel)))


def run_own(options: ServeOptions) -> None:
    """As `run`, for one person, who ends it: no process stays, and nothing is written."""
    assert options.own is not None
    logs.configure(options.log_level)
    _allow_files()
    uvloop.run(_serve(options, options.own.settings, SettingsFiles(None), Succession()))


def _allow_files() -> None:
    """As many open files, and so connections, as the process may have: shells and container
    runtimes often begin with 1024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(
    options: ServeOptions, settings: Settings, files: SettingsFiles, succession: Succession
) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, succession.ask)
    succession.receive(stopped.set)
    runtime = Runtime(options, settings, files, succession)
    try:
        if await _until(stopped, runtime.open()):
            await runtime.stay(stopped)
    finally:
        await runtime.close()
    _LOG.info("stopped")


class _Source(NamedTuple):
    """Where objects come from: a cluster, or a snapshot if `session` is None."""

    session: Session | None
    feed: Callable[[Writer], Awaitable[None]]
    incomplete_kinds: Callable[[], frozenset[str]] = frozenset
    """Kinds of which it may lack objects."""


class _Callers(NamedTuple):
    """What is seen of the schedulers that call the extender."""

    metrics: ExtenderMetrics
    misconfiguration: Misconfiguration


class Runtime:
    """One process. `open` makes its parts, each from those that it needs, and starts them.

    What `close` must stop is noted as soon as it is made: `open` may be cancelled at any time.
    """

    def __init__(
        self,
        options: ServeOptions,
        settings: Settings,
        files: SettingsFiles | None = None,
        succession: Succession | None = None,
        pauses: Pauses = USUAL_PAUSES,
    ) -> None:
        """`files` are where the settings are from; without `succession`, none follows. `pauses` are
        those of its parts."""
        self._options = options
        self._settings = settings
        self._files = files or SettingsFiles(None)
        self._succession = succession or Succession()
        self._registry = make_registry()
        self.parts = KeptParts(pauses)
        self._publisher = Publisher()
        self._readiness = Readiness(self._publisher, settings.sources.silent_after_seconds)
        self._tasks = Tasks()
        self._certificates = CertificateMetrics(self._registry)
        self._listeners = Listeners(
            self._tasks, self._readiness, self._certificates, self._succession
        )
        self._resources = AsyncExitStack()
        self._session: Session | None = None
        """With the API server, once there is one."""
        self._objects: ObjectFeed | None = None
        self._invited = "", ""
        """URLs of the page, for a person and for their browser."""

    async def open(self) -> None:
        """Start everything; raises FettleError."""
        self.parts.enter()
        options, settings = self._options, self._settings
        extender_at = ListenAddress.parse(options.extender_listen, "--extender-listen")
        webhook_at = ListenAddress.parse(options.webhook_listen, "--webhook-listen")
        browse_at = [
            SocketPath.parse(each) or ListenAddress.parse(each, "--browse-listen")
            for each in options.browse_listen
        ]
        rule_table = load_rules(settings.health.rules_file)

        engine = SelectorEngine()
        answers, predictions = self._make_answers(engine)
        recorder = self._make_recorder(answers)
        pods = PodObservers.of(answers)
        callers = self._make_callers(answers) if "extender" in options.roles else None
        inventory = self._make_inventory(rule_table, answers, pods.refusals)
        hopeless = self._make_hopeless(answers, pods, engine)
        # Browse listens first: it answers probes while the rest starts.
        await self._open_browse(browse_at, answers, pods, recorder, inventory, hopeless)

        source = await self._open_source()
        if options.own is not None:
            options.own.on_open(*self._invited)
        on_object = [predictions.observe, *pods.observers]
        if callers is not None:
            fates = PodFates(answers, recorder, pods.crashes)
            on_object += [callers.misconfiguration.unasked.observe, fates.observe]
            self._tasks.keep("fates of pods", fates.run())
        workloads = None
        if source.session is not None:
            workloads = self._keep_workloads_read(source.session, lambda found: writer.find(found))
            on_object.append(workloads.observe)
        writer = self._make_writer(
            inventory, on_object, (answers.demands.gangs.observe_view, pods.claims.observe_view)
        )
        self._resources.push_async_callback(engine.close)
        await engine.start()
        if source.session is not None and rule_table.objects:
            self._keep_objects_read(source.session, rule_table, writer)
        self._keep_answers_current(source, writer, answers)
        self._register_metrics(engine, answers, pods.at_risk)
        self._tasks.keep("predictions", predictions.keep())
        self._tasks.keep("pods at risk", pods.at_risk.keep())
        self._tasks.keep("crashes of pods", pods.crashes.keep())

        if callers is not None:
            freshness: Freshness = AlwaysFresh()
            if source.session is not None and workloads is not None:
                freshness = FeedFreshness(source.session.streams, writer, workloads)
            self._open_extender(extender_at, answers, callers, source, freshness, recorder, pods)
        if "webhook" in options.roles:
            opening = self._open_webhook(webhook_at, source, engine, recorder)
            self._tasks.open("webhook", opening)
            stored = StoredPolicyRules(self._publisher, self._registry)
            self._tasks.keep("stored policies", stored.run())
        steward = None
        if "steward" in options.roles:
            steward = self._start_steward(source, answers, inventory, recorder, pods, hopeless)
        turn = self._polling_turn(source, steward)
        if settings.prometheus.url and options.own is None:
            poller = self._make_poller(rule_table, writer, inventory)
            self._tasks.keep("metrics", poller.keep(partial(self._asks_itself, turn)))
        if settings.alertmanager.listen:
            self._open_alerts(rule_table, writer, inventory, turn)
        self._readiness.opening = ""
        self._prepare_succession()

    async def stay(self, stopped: asyncio.Event) -> None:
        """Until asked to stop; raises the error that a part failed with."""
        await _until(stopped, self._tasks.watch())

    async def close(self) -> None:
        """Drain the listeners and meanwhile release leases; then stop the rest."""
        await self._tasks.end_openings()  # from here on, no listener opens
        await asyncio.gather(self._tasks.end_early(), self._listeners.drain())
        await self._tasks.end()
        await self._resources.aclose()

    # --- what all roles need

    def _make_answers(self, engine: SelectorEngine) -> tuple[Answers, Predictions]:
        on_breaker = BreakerMetrics(self._registry).changed
        own = self._options.own
        answers = Answers(
            self._publisher,
            engine,
            self._settings,
            on_breaker=on_breaker,
            policies=own.policies if own is not None else None,
        )
        predictions = Predictions(answers, PredictionMetrics(self._registry).count_result)
        answers.on_nodes_given(predictions.note_nodes_given)
        return answers, predictions

    def _make_recorder(self, answers: Answers) -> Recorder:
        settings = self._settings.records
        named = settings.directory
        folder = Path(named) if named is not None else self._options.records
        max_bytes = settings.max_mebibytes * 2**20
        recorder = Recorder(
            answers,
            DecisionLog(settings.max_decisions, max_bytes),
            Journal(folder, 2 * max_bytes),
            DecisionMetrics(self._registry),
        )
        self._readiness.notes.append(recorder.notes)
        self._tasks.keep("records", recorder.run())
        self._resources.push_async_callback(recorder.close)
        return recorder

    async def _open_source(self) -> _Source:
        kinds = (*read_with(self._settings.lint.watch), *EVENTS)
        if self._options.snapshot is None:
            session = await self._open_session()
            goes_without = self._options.own is not None
            feed = ClusterFeed(session, kinds=kinds, goes_without=goes_without)
            return _Source(session, feed.run)
        folder = SnapshotFeed(self._options.snapshot, kinds=kinds)
        self._readiness.notes.append(
            lambda: [f"snapshot: {text}" for text in (*folder.problems.values(), *folder.clashes)]
        )
        return _Source(None, folder.run, lambda: folder.unknown)

    async def _open_session(self) -> Session:
        """Read the credentials, which takes a while if the kubeconfig names a slow plugin."""
        readiness, reading = self._readiness, "the credentials for the cluster are being read"
        before, readiness.opening = readiness.opening, reading
        slow = asyncio.get_running_loop().call_later(SLOW_S, _LOG.warning, reading)
        own = self._options.own
        chosen = Chosen(own.context, own.acts_as, own.groups) if own is not None else Chosen()
        try:
            session = await Session.open(self._options.kubeconfig, chosen=chosen)
        except NoCluster as error:
            raise NoCluster(f"{error}, or --snapshot DIR to run without a cluster") from error
        finally:
            slow.cancel()
            readiness.opening = before
        self._resources.push_async_callback(session.close)
        self._session = session
        return session

    def _make_inventory(
        self, rule_table: SignalRules, answers: Answers, refusals: OwnerRefusals
    ) -> Inventory:
        book = HealthBook(self._settings.health, rule_table)
        return Inventory(
            book,
            rule_table,
            answers.profile.features,
            on_failed_start=refusals.does_not_start,
            prometheus=self._settings.prometheus,
            health=self._settings.health,
            alerts=bool(self._settings.alertmanager.listen) or self._options.own is not None,
        )

    def _make_writer(
        self,
        inventory: Inventory,
        on_object: Collection[Callable[[WireObject], None]],
        on_view: Collection[OnView],
    ) -> Writer:
        return Writer(
            inventory,
            self._publisher,
            watched=(*read_with(self._settings.lint.watch), *EVENTS),
            on_object=on_object,
            on_view=(log_health_changes, *on_view),
        )

    def _keep_workloads_read(
        self, session: Session, find: Callable[[Finding], Awaitable[None]]
    ) -> WorkloadFeed:
        kinds = workload_kinds.passing_on(self._settings.webhook.workloads)
        workloads = WorkloadFeed(session, self._publisher, find, kinds)
        self._readiness.notes.append(workloads.notes)
        self._tasks.keep("workloads of pods", workloads.run())
        return workloads

    def _keep_objects_read(self, session: Session, rule_table: SignalRules, writer: Writer) -> None:
        counted = ObjectRuleMetrics(self._registry)
        self._objects = ObjectFeed(session, rule_table.objects, writer.find, counted)
        self._readiness.notes.append(self._objects.notes)
        self._tasks.keep("rules about objects", self._objects.run())

    def _object_notes(self) -> list[str]:
        return self._objects.notes() if self._objects is not None else []

    def _make_poller(self, rule_table: SignalRules, writer: Writer, inventory: Inventory) -> Poller:
        poller = Poller(
            self._settings.prometheus,
            metrics.queries(rule_table),
            writer.find,
            self._publisher,
            inventory.measuring,
            PrometheusMetrics(self._registry),
        )
        self._readiness.notes.append(poller.notes)
        return poller

    def _open_alerts(
        self,
        rule_table: SignalRules,
        writer: Writer,
        inventory: Inventory,
        turn: Callable[[], Awaitable[bool]],
    ) -> None:
        settings = self._settings.alertmanager
        address = ListenAddress.parse(settings.listen, "alertmanager.listen")
        counted = AlertMetrics(self._registry)
        alerts = Alerts(settings, rule_table, writer.find, inventory.measuring, turn, counted)
        self._readiness.notes.append(alerts.notes)
        opening = self._listeners.open_with_certificate(
            "alerts",
            partial(alerts_tls, address, self._settings),
            lambda tls: AppListener(
                "alerts",
                address,
                tls.context,
                alerts.make_app(),
                self._noted(KnownCallers.of("alertmanager", tls)),
            ),
        )
        self._tasks.open("alerts", opening)
        self._tasks.keep("turn of alerts", alerts.keep())

    def _polling_turn(
        self, source: _Source, steward: Steward | None
    ) -> Callable[[], Awaitable[bool]]:
        """Whether it is this process that asks for metrics: the leader, whom the others follow
        through what it stores; every process where there is no leader, or nothing is stored."""
        session, settings = source.session, self._settings.steward
        look = None
        if session is not None:
            namespace = self._settings.namespace or session.namespace
            look = LeaseLook(session, namespace, settings.lease, settings.lease_seconds)

        async def is_ours() -> bool:
            stored = self._publisher.view.served.get(DEVICE_HEALTH.name)
            if look is None or not stored or not settings.health_writes_per_second:
                return True
            return (steward is not None and steward.leads) or not await look.is_held()

        return is_ours

    async def _asks_itself(self, is_ours: Callable[[], Awaitable[bool]]) -> bool:
        """Whether it is this process that asks for metrics, also where it does not believe what
        the leader stores."""
        ahead_s = partial(readiness.dated_ahead_s, self._publisher, time.time())
        return await is_ours() or bool(await run_within(ahead_s))

    def _keep_answers_current(self, source: _Source, writer: Writer, answers: Answers) -> None:
        self._readiness.notes.append(answers.allocator_notes)
        if source.session is not None:
            self._readiness.notes.append(partial(readiness.memory_notes, self._publisher))
        tasks = self._tasks
        tasks.keep("writer", writer.run())
        tasks.keep("feed", source.feed(writer))
        if source.session is not None:
            tasks.keep("version", keep_server_version(source.session, answers.predict_as))
        tasks.keep("selectors", answers.keep_ready())
        tasks.keep("verdicts", answers.keep_complete())

    def _register_metrics(self, engine: SelectorEngine, answers: Answers, at_risk: AtRisk) -> None:
        self._registry.register(ViewMetrics(self._publisher))
        self._registry.register(SelectorMetrics(lambda: engine.worker_starts))
        self._registry.register(PolicyMetrics(answers.ignored_requirements))
        self._registry.register(RiskMetrics(at_risk.count))
        self._registry.register(PartMetrics(self.parts))
        self._readiness.notes.append(self.parts.notes)

    async def _open_browse(
        self,
        addresses: Sequence[ListenAddress | SocketPath],
        answers: Answers,
        pods: PodObservers,
        recorder: Recorder,
        inventory: Inventory,
        hopeless: HopelessOwners,
    ) -> None:
        known = Known(
            answers,
            pods,
            self._settings,
            self._registry,
            recorder=recorder if self._options.own is None else None,
            recoveries=inventory,
            hopeless=hopeless.why,
            extra_problems=self._readiness.current_problems,
            notes=self._readiness.current_notes,
            caller_notes=self._readiness.current_caller_notes,
            object_notes=self._object_notes,
            is_steward="steward" in self._options.roles,
            roles=self._options.roles,
            last_requests=self._readiness.current_last_requests,
            certificates=self._certificates.ends,
            leader=self._readiness.current_leader,
        )
        ReadyMetrics(self._registry, known.is_ready)
        access, url_ends, own = by_review(Reviews(lambda: self._session)), "", self._options.own
        invitation = Invitation(own.namespace) if own is not None else None
        if invitation is not None:
            access = invitation.access
        elif self._options.snapshot is not None:
            token = browse_token()
            access, url_ends = by_token(token.text), f"/#{token.text}" if token.is_random else ""
        screen = screened(self._settings.browse.host_names)
        for address in addresses:
            is_private = isinstance(address, SocketPath)
            app = (
                make_browse_app(known, trusting)
                if is_private
                else make_browse_app(known, access, screen, invitation=invitation)
            )
            # Probes and people mean one process, so no other may answer on the same port.
            listener = AppListener(
                "browse", address, None, app, shares_port=False, url_ends=url_ends
            )
            waits = self._succession.replaces  # until its predecessor listens there no more
            opening = self._listeners.open(listener, ListenerTLS(None), once_free=waits)
            if waits:
                self._tasks.open("browse", opening)
            else:
                await opening
            if invitation is not None:
                (url,) = listener.urls()
                self._invited = f"{url}/#{invitation.token}", f"{url}/#once={invitation.code}"

    def _prepare_succession(self) -> None:
        succession = self._succession
        self._readiness.notes.append(succession.notes)
        ReloadMetrics(self._registry, lambda: not succession.failure)
        count_restarts(self._registry, succession.crashes.number)
        self._tasks.keep("watch of the settings", self._files.watch(succession.ask), early=True)
        self._tasks.open("announcement", succession.announce(self._readiness))

    # --- the extender

    def _make_callers(self, answers: Answers) -> _Callers:
        metrics = ExtenderMetrics(self._registry)
        misconfiguration = Misconfiguration(
            metrics,
            self._settings.scheduler.names,
            lambda pod: answers.mode_of(pod) is Mode.OBSERVE,
        )
        self._readiness.caller_notes.append(misconfiguration.notes)
        self._readiness.last_requests["extender"] = misconfiguration.last
        self._registry.register(OverlookedMetrics(misconfiguration.unasked.found))
        return _Callers(metrics, misconfiguration)

    def _open_extender(
        self,
        address: ListenAddress,
        answers: Answers,
        callers: _Callers,
        source: _Source,
        freshness: Freshness,
        recorder: Recorder,
        pods: PodObservers,
    ) -> None:
        connections = make_connections(
            answers,
            self._settings.extender,
            callers.metrics,
            self._readiness.problem,
            freshness=freshness,
            misconfiguration=callers.misconfiguration,
            recent=pods.recent,
            recorder=recorder,
            refusals=pods.refusals,
            leanings=pods.leanings,
        )
        allowed, count = self._settings.extender.tls.client_names, callers.metrics.refused_caller

        def make(tls: ListenerTLS) -> ExtenderListener:
            known = self._noted(KnownCallers.of("extender", tls, allowed, count))
            return ExtenderListener("extender", address, tls.context, connections, known)

        opening = self._listeners.open_with_certificate(
            "extender", partial(extender_tls, address, self._settings, source.session), make
        )
        self._tasks.open("extender", opening)

    def _noted(self, known: KnownCallers | None) -> KnownCallers | None:
        if known is not None:
            self._readiness.caller_notes.append(known.notes)
        return known

    # --- the webhook

    async def _open_webhook(
        self,
        address: ListenAddress,
        source: _Source,
        engine: SelectorEngine,
        recorder: Recorder,
    ) -> None:
        def make(tls: ListenerTLS) -> AppListener:
            strangers = tls.takes_anybody and not self._settings.webhook.trust_callers
            app = self._make_webhook(source, engine, recorder, to_strangers=strangers)
            known = self._noted(KnownCallers.of("webhook", tls))
            return AppListener("webhook", address, tls.context, app, known)

        await self._listeners.open_with_certificate(
            "webhook",
            partial(webhook_tls, address, self._settings, source.session),
            make,
        )

    def _make_webhook(
        self, source: _Source, engine: SelectorEngine, recorder: Recorder, *, to_strangers: bool
    ) -> web.Application:
        settings, last = self._settings, last_reviews()
        self._readiness.last_requests["webhook"] = last
        self._readiness.caller_notes.append(lambda: [_ANYBODY] if to_strangers else [])
        return make_webhook(
            self._publisher,
            settings,
            registry=self._registry,
            linter=self._make_linter(engine),
            preserved=self._probe_fields(source.session),
            events=self._start_events(source.session),
            engines=Engines(engine),
            incomplete_kinds=source.incomplete_kinds,
            last=last,
            recorder=recorder,
            to_strangers=to_strangers,
        )

    def _make_linter(self, engine: SelectorEngine) -> Linter:
        settings = self._settings
        return Linter(
            evaluator=engine,
            drivers=configured_drivers(settings.lint),
            disabled=settings.disabled_features,
        )

    def _probe_fields(self, session: Session | None) -> Callable[[], PreservedFields | None]:
        """Which injected fields the cluster preserves; it is probed again and again."""
        if session is None:
            return lambda: ALL_PRESERVED
        probe = FieldProbe(session, self._settings.namespace or session.namespace)
        self._readiness.notes.append(probe.notes)
        self._tasks.keep("probe of the cluster", probe.run())
        disabled = self._settings.disabled_features
        return lambda: probe.preserved and probe.preserved.without(disabled)

    def _start_events(self, session: Session | None) -> EventSink | None:
        """The sink for the Events of mode `observe`; None: they are off."""
        if session is None or not self._settings.webhook.events:
            return None
        counted = EventMetrics(self._registry).count
        recorder = EventRecorder(session, REPORTING_CONTROLLER, identity(), counted)
        self._tasks.keep("events", recorder.run())
        return recorder.record

    # --- the steward

    def _make_hopeless(
        self, answers: Answers, pods: PodObservers, engine: SelectorEngine
    ) -> HopelessOwners:
        levels = self._settings.lint.levels
        return HopelessOwners(
            self._publisher,
            pods.comebacks,
            self._make_linter(engine),
            lambda made, view: levels_for(made, view, answers.policies, levels),
        )

    def _start_steward(
        self,
        source: _Source,
        answers: Answers,
        inventory: Inventory,
        recorder: Recorder,
        pods: PodObservers,
        hopeless: HopelessOwners,
    ) -> Steward | None:
        if source.session is None:
            _LOG.info("the steward has nothing to write to when a snapshot is served")
            return None
        steward = make_steward(
            source.session,
            self._settings,
            answers,
            inventory,
            recorder,
            pods,
            hopeless,
            StewardMetrics(self._registry),
        )
        self._readiness.notes.append(steward.notes)
        self._readiness.leader = lambda: Leader(steward.leader, steward.leads)
        self._tasks.keep("steward", steward.run(), early=True)
        return steward


async def _until(stopped: asyncio.Event, work: Coroutine[None, None, None]) -> bool:
    """Whether the work ended before `stopped` was set; if not, it is cancelled."""
    waiting, working = asyncio.create_task(stopped.wait()), asyncio.create_task(work)
    await asyncio.wait((waiting, working), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    working.cancel()
    await asyncio.wait((working,))
    return not working.cancelled() and working.result() is None
