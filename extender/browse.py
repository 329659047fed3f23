"""The second listener, for people and machines: explanations, policies, devices, pods, decisions,
the report, probes and metrics. It reads the newest view and changes nothing."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from heapq import nsmallest
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from extender.browse_access import DEVICES, PODS, Access, Viewer, pods_in, refusal
from extender.exposition import Exposition
from extender.reviews import NotShown, Right
from fettle.api import core, known_as
from fettle.cluster import View, readiness
from fettle.config import DeviceFailureSettings, DeviceTaintSettings
from fettle.explain import (
    JSON_VERSION,
    WITHHELD,
    Foresight,
    Stewardship,
    describe_modes,
    explain_device,
    explain_node,
    explain_pod,
    explain_policy,
    list_holds,
    list_network_devices,
    list_nodes,
    list_taints,
    list_unknown_conditions,
    nearest_devices,
    plain_placed,
    plain_reason,
    texts,
    withhold_of_placed,
    withhold_of_pod,
)
from fettle.model import ANNOTATION, BadInput, Mode, reasons, why_unreadable
from fettle.model.reasons import Reason
from fettle.observing import ReadyMetrics
from fettle.pacing import pause, run_within
from fettle.records import Decision, Recorder, seconds_of, wordless
from fettle.scheduling import (
    NEUTRAL,
    Answers,
    AtRisk,
    Crashes,
    FinishedPods,
    FormerNodes,
    Leanings,
    OwnerRefusals,
    PlacedPod,
    PodClaims,
    Preemption,
    TaintPlan,
    as_if_on,
    copy_to_place,
    plan_for,
    resolve_policy,
    stuck,
    why_in_vain,
    worst_first,
)

MOST_PODS = 1000
"""Pods that one answer lists."""

MOST_EXPLAINED = 3
"""Decisions on a pod that its explanation shows."""
MOST_DECISIONS = 2000
"""Decisions in one answer."""


ExplainHealth = Callable[[str, View, Foresight, float], dict[str, Any]]
WhyHopeless = Callable[[core.Pod], Awaitable[Reason | None]]


class Browse:
    """Handlers over the newest view.

    `recent` are pods that the extender was asked about. `extra_problems` are what keeps other parts
    of the process from being ready, and `notes` what else `/readyz?verbose` shows. `schedulers` are
    the names of those that ask. `at_risk` knows where pods are, `crashes` which of their containers
    a device ended, `finished` those that have ended, `recorder` what was decided, `refusals` which
    nodes a pod's owner avoids, `leanings` what a pod's scores differ by, `hopeless` why no pod of
    a controller will ever run, `foresight` when something is Healthy again.
    """

    def __init__(
        self,
        answers: Answers,
        registry: CollectorRegistry,
        recent: Mapping[str, core.Pod],
        silent_after_s: float,
        extra_problems: Callable[[], list[str]] = list,
        notes: Callable[[], list[str]] = list,
        schedulers: Collection[str] = (core.DEFAULT_SCHEDULER,),
        *,
        at_risk: AtRisk | None = None,
        crashes: Crashes | None = None,
        finished: FinishedPods | None = None,
        recorder: Recorder | None = None,
        refusals: OwnerRefusals | None = None,
        leanings: Leanings | None = None,
        hopeless: WhyHopeless | None = None,
        foresight: Foresight | None = None,
        device_taints: DeviceTaintSettings | None = None,
        dry_run: bool = False,
        device_failures: DeviceFailureSettings | None = None,
        is_steward: bool = True,
    ) -> None:
        """`is_steward`: the settings of what a steward does are those that count."""
        self._answers = answers
        self._exposition = Exposition(registry)
        self._recent = recent
        self._silent_after_s = silent_after_s
        self._extra_problems = extra_problems
        self._notes = notes
        self._schedulers = schedulers
        self._at_risk = at_risk or AtRisk(answers)
        claims = PodClaims(answers.publisher)
        self._crashes = crashes or Crashes(answers.publisher, self._at_risk, claims)
        self._finished = finished or FinishedPods(claims)
        self._recorder = recorder
        self._refusals = refusals or OwnerRefusals()
        self._leanings = leanings or Leanings(answers, self._refusals, FormerNodes())
        self._hopeless = hopeless
        self._foresight = foresight
        self._device_taints = device_taints or DeviceTaintSettings()
        self._dry_run = dry_run
        allowed = device_failures.allow if device_failures is not None else None
        self._stewardship = Stewardship(allowed, dry_run, is_steward)
        ReadyMetrics(registry, lambda: not self._problems(time.monotonic()))

    def make_app(self, access: Access, *middlewares: Middleware) -> web.Application:
        """GET /explain, /policy, /devices, /pods, /decisions, /records for whom `access` knows;
        /livez, /readyz and /metrics for everybody."""

        def known(answer: Callable[[web.Request, Viewer], Awaitable[web.Response]]) -> Handler:
            async def handle(request: web.Request) -> web.StreamResponse:
                try:
                    return await answer(request, await access(request))
                except NotShown as refused:
                    return refusal(refused)

            return handle

        async def readyz(request: web.Request) -> web.StreamResponse:
            try:
                viewer = await access(request) if "verbose" in request.query else None
                why = "" if viewer is None or await viewer.may(DEVICES) else f"not for {viewer}"
            except NotShown as refused:
                why = str(refused)
            return await self.readyz(request, why)

        app = web.Application(middlewares=middlewares)
        for answer in (
            *(self.explain, self.policy, self.devices, self.pods, self.decisions, self.records),
        ):
            app.router.add_get(f"/{answer.__name__}", known(answer))
        app.router.add_get("/livez", self.livez)
        app.router.add_get("/readyz", readyz)
        app.router.add_get("/metrics", self.metrics)
        return app

    async def explain(self, request: web.Request, viewer: Viewer) -> web.Response:
        """?pod=NAMESPACE/NAME: its policy, its demand, and every node's verdict with reasons.

        A pod that has or had a node is explained as if one more like it were to be placed. `placed`
        says what it holds itself, and what its policy says of that; None if it has no node now.

        ?node=NAME, ?device=NAME: its health, each piece of evidence, who uses it, and what has to
        happen for it to be Healthy again.
        """
        for what, explain in (("node", explain_node), ("device", explain_device)):
            if name := request.query.get(what, ""):
                await viewer.require(DEVICES)
                return await self._explain_health(explain, name)
        key = request.query.get("pod", "")
        if key.count("/") != 1:
            how = "/explain?pod=NAMESPACE/NAME, ?node=NAME or ?device=NAME"
            return _json({"error": f"specify a pod, a node or a device: {how}"}, 400)
        await viewer.require(pods_in(_namespace(key)))
        pod = self._pod(key)
        if pod is None:
            return self._unknown_pod(key)
        demand = self._answers.demand_now(copy_to_place(pod) if pod.node_name else pod)
        verdicts = {}
        if demand is not None:
            verdicts = await self._answers.explained(demand)
            verdicts = await Preemption(self._answers).with_notes(pod, verdicts)
        view = self._answers.view
        resolved = resolve_policy(pod, view, self._answers.policies)
        notes: list[Reason] = [*map(reasons.FettleNotReady, self._stale())]
        name = resolved.policy.name
        notes += [one for one in self._answers.set_aside() if name in one.policies]
        if demand is not None:
            notes += self._notes_about(key, pod)
            concerns = any(one.refusals or one.conceded for one in verdicts.values())
            if concerns and (patience := self._answers.patience(pod)) is not None:
                notes.append(patience)
            notes += await nearest_devices(demand.claims, verdicts, view, self._answers.inspector)
            if demand.mode is not Mode.ENFORCE:
                notes.insert(0, reasons.NotEnforced(demand.mode, resolved.mode.origin))
        finished = None if key in view.pods else self._finished.get(key)
        placed = await self._at_risk.placed([pod] if key in view.pods else [])
        notes += self._troubles(pod, view, placed)
        if self._hopeless is not None and (why := await self._hopeless(pod)) is not None:
            notes = [*(one for one in notes if one.code != why.code), why]
        avoided = self._refusals.nodes_for(pod)
        leaning = self._leanings.of(pod, demand) if demand is not None else NEUTRAL
        explained = await run_within(
            None,
            lambda: explain_pod(
                key, resolved, demand, verdicts, view, notes, finished, avoided, leaning
            ),
        )
        decisions = (await self._decisions(0.0, pod=key))[:MOST_EXPLAINED]
        told = {**explained, "placed": next(map(plain_placed, placed), None)}
        if not await viewer.may(DEVICES):
            told, decisions = withhold_of_pod(told), [*map(wordless, decisions)]
        return _json({**told, "decisions": decisions})

    def _troubles(self, pod: core.Pod, view: View, placed: Iterable[PlacedPod]) -> Iterator[Reason]:
        """What is amiss with a pod that has a node, or with the others of its workload."""
        now = time.time()
        yield from filter(None, (stuck(one, now) for one in placed))
        if (crash := self._crashes.of(pod.metadata.uid)) is not None:
            yield crash
        workload = known_as(pod)
        for start in view.failed_starts.values():
            if start.blamed and start.workload.uid == workload.uid:
                name = f"{workload.kind} {workload.name}"
                yield reasons.WorkloadStartsNowhere(name, start.blamed, start.message)
                break

    async def _explain_health(self, explain: ExplainHealth, name: str) -> web.Response:
        foresight, view, now = self._foresight, self._answers.view, time.time()
        if foresight is None:
            return _json({"error": "this process does not follow the health of devices"}, 404)
        try:
            explained = await run_within(None, lambda: explain(name, view, foresight, now))
        except BadInput as error:
            return _json({"error": "; ".join([str(error), *self._unready()])}, error.status)
        if "device" in explained:
            taints = await self._taints()
            explained["taint"] = next((t for t in taints if t["device"] == explained["name"]), None)
        sources = {one["source"] for one in explained["evidence"]}
        set_aside = [plain_reason(one) for one in self._answers.set_aside() if one.rule in sources]
        return _json({**explained, "setAside": set_aside, "problems": self._unready()})

    async def pods(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Pods with devices that have a node, at most `MOST_PODS`, of `total`. ?at-risk=true: only
        those whose policy refuses where they are, the worst first. ?node=NAME and ?namespace=NAME:
        only those there. `startedAt` is when this process started, in Unix seconds.
        """
        query = request.query
        at_risk = query.get("at-risk", "") in ("true", "1")
        found = await self._at_risk.current()
        candidates = (
            [p.pod for p in found.values()] if at_risk else self._answers.view.pods.values()
        )
        node, namespace = query.get("node", ""), query.get("namespace", "")
        pods = [
            pod
            for pod in candidates
            if pod.node_name
            and (not node or pod.node_name == node)
            and (not namespace or pod.metadata.namespace == namespace)
        ]
        shown = await viewer.shown(pod.metadata.namespace for pod in pods)
        pods = [pod for pod in pods if pod.metadata.namespace in shown]
        total = len(pods)
        if not at_risk:
            pods = nsmallest(MOST_PODS, pods, key=lambda pod: (pod.node_name, pod.metadata.key))
        placed = await self._at_risk.placed(pods)
        if at_risk:
            refused = [one for one in placed if one.worst is not None]
            total = len(refused)
            placed = await run_within(None, lambda: worst_first(refused, MOST_PODS))
        listed, problems = await run_within(None, lambda: _plain(placed)), self._unready()
        if not await viewer.may(DEVICES):
            listed, problems = [*map(withhold_of_placed, listed)], [*problems, WITHHELD]
        return _json(
            {
                "version": JSON_VERSION,
                "generation": self._answers.view.generation,
                "problems": problems,
                "startedAt": self._at_risk.started_at,
                "total": total,
                "pods": listed,
            }
        )

    def _notes_about(self, key: str, pod: core.Pod) -> list[Reason]:
        """A note if the pod's scheduler is not set up to call Fettle, and has not called for it."""
        name = pod.scheduler_name
        if name in self._schedulers or key in self._recent:
            return []
        return [reasons.SchedulerDoesNotAsk(name, tuple(self._schedulers))]

    async def policy(self, request: web.Request, viewer: Viewer) -> web.Response:
        """?pod=NAMESPACE/NAME: the policy that applies to it. ?name=NAME: that policy, the
        namespaces that name it, and the pods that it applies to. Each value says where it is from.
        """
        view, policies = self._answers.view, self._answers.policies
        if key := request.query.get("pod", ""):
            await viewer.require(pods_in(_namespace(key)))
            pod = self._pod(key)
            if pod is None:
                return self._unknown_pod(key)
            resolved = resolve_policy(pod, view, policies)
            ignored = await self._answers.ignored(resolved.policy)
            return _json(explain_policy(resolved, ignored, self._stewardship))
        name = request.query.get("name", "")
        await viewer.require(Right("get", "devicepolicies", "fettle.dev", name=name))
        found = policies.named(name, view.policies)
        if found is None:
            known = ", ".join(policies.names(view.policies))
            why = why_unreadable(name, view.quarantined)
            no = f"{name!r} cannot be read ({why})" if why else f"there is no policy {name!r}"
            return _json({"error": f"{no}; known: {known}"}, 404)
        named = [n for n, labels in view.namespaces.items() if labels.get(ANNOTATION) == name]
        pods = await run_within(None, lambda: self._pods_of(name, view))
        ignored = await self._answers.ignored(found.policy)
        shown = await viewer.shown([*named, *map(_namespace, pods)])
        users = {
            "namespaces": sorted(name for name in named if name in shown),
            "pods": sorted(key for key in pods if _namespace(key) in shown),
        }
        return _json({**explain_policy(found, ignored, self._stewardship), **users})

    def _pods_of(self, policy: str, view: View) -> list[str]:
        """Keys of the pods that a policy applies to."""
        found = []
        for key, pod in view.pods.items():
            if resolve_policy(pod, view, self._answers.policies).policy.name == policy:
                found.append(key)
            pause()
        return found

    def _stale(self) -> list[str]:
        """Why answers may be incomplete or old."""
        sources = self._answers.publisher.sources.values()
        return readiness.problems(sources, time.monotonic(), self._silent_after_s)

    def _unready(self) -> list[str]:
        return [f"Fettle is not ready: {problem}" for problem in self._stale()]

    def _unknown_pod(self, key: str) -> web.Response:
        why = "it does not exist, uses no devices, finished long ago, or has not been seen yet"
        return _json(
            {"error": "; ".join([f"pod {key} is not known: {why}", *self._unready()])}, 404
        )

    def _pod(self, key: str) -> core.Pod | None:
        """The pod as it is, as it ended, or as a scheduler asked about it."""
        finished = self._finished.get(key)
        return (
            self._answers.view.pods.get(key)
            or (finished.pod if finished is not None else None)
            or self._recent.get(key)
        )

    async def devices(self, request: web.Request, viewer: Viewer) -> web.Response:
        """Every node with its devices, and the devices of the network. ?unsound=true: only those
        with evidence against them, or that are not Healthy. `problems` say why answers may be
        incomplete, `unheard` which conditions no rule names, `taints` which devices Fettle taints
        or would taint, `nodesWithDevices` how many nodes have devices, sound or not.
        """
        await viewer.require(DEVICES)
        unsound = request.query.get("unsound", "") in ("true", "1")
        view, taints = self._answers.view, await self._taints()
        listed = await run_within(
            None,
            lambda: {
                "generation": view.generation,
                "version": JSON_VERSION,
                "problems": self._unready(),
                "setAside": [*map(plain_reason, self._answers.set_aside())],
                "modes": describe_modes(view, self._answers.policies),
                "nodesWithDevices": sum(bool(n.pools or n.plugins) for n in view.nodes.values()),
                "nodes": list_nodes(view, only_unsound=unsound),
                "network": list_network_devices(view, only_unsound=unsound),
                "holds": list_holds(view),
                "taints": taints,
                "quarantined": dict(view.quarantined),
                "unheard": list_unknown_conditions(view),
            },
        )
        return _json(listed)

    async def _taints(self) -> list[dict[str, Any]]:
        """Which devices Fettle taints or would taint by their health."""
        answers, settings = self._answers, self._device_taints
        view = answers.view
        plan = await plan_for(answers, as_if_on(settings), time.time(), steers=True)
        return await run_within(
            None,
            lambda: list_taints(
                plan or TaintPlan({}),
                view,
                settings,
                answers.policies.mode,
                why_in_vain(answers),
                dry_run=self._dry_run,
            ),
        )

    async def decisions(self, request: web.Request, viewer: Viewer) -> web.Response:
        """?since=1h, and ?pod=NAMESPACE/NAME, ?node=N, ?policy=P: what was decided, the newest
        first, and what became of the pods."""
        query = request.query
        try:
            since = time.time() - seconds_of(query.get("since", "1h"))
        except BadInput as error:
            return _json({"error": str(error)}, 400)
        wanted = {name: query.get(name, "") for name in ("pod", "node", "policy")}
        found = await self._shown(await self._decisions(since, **wanted), viewer)
        return _json(
            {
                "version": JSON_VERSION,
                "notes": [*self._record_notes(since), *await _notes_for(viewer)],
                "leftOut": max(0, len(found) - MOST_DECISIONS),
                "decisions": found[:MOST_DECISIONS],
            }
        )

    async def _decisions(self, since: float, **wanted: str) -> list[Decision]:
        recorder = self._recorder
        if recorder is None:
            return []
        return await run_within(None, lambda: recorder.select(since, **wanted))

    async def _shown(self, found: list[Decision], viewer: Viewer) -> list[Decision]:
        """Those that somebody may see: about their namespaces, and what has none if they may see
        devices."""
        namespaces = {_namespace(one.key) for one in found}
        shown = {*await viewer.shown(filter(None, namespaces))}
        if await viewer.may(DEVICES):
            return [one for one in found if _namespace(one.key) in shown | {""}]
        return [wordless(one) for one in found if _namespace(one.key) in shown]

    def _record_notes(self, since: float) -> list[str]:
        """Where the records are, and whether they reach back so far."""
        return self._recorder.notes(since) if self._recorder is not None else []

    async def records(self, request: web.Request, viewer: Viewer) -> web.Response:
        """?since=7d: all that this process has recorded. `fettle report` makes one report of what
        several have; `notes` are about the time since then."""
        try:
            since = time.time() - seconds_of(request.query.get("since", "7d"))
        except BadInput as error:
            return _json({"error": str(error)}, 400)
        recorder = self._recorder
        notes = [*self._record_notes(since), *await _notes_for(viewer)]
        decisions: object = []
        modes: list[str] = []
        if await viewer.may(DEVICES) and await viewer.may(PODS):
            lines = await run_within(None, recorder.lines) if recorder is not None else []
            decisions = msgspec.Raw(b"[" + b",".join(lines) + b"]")
            modes = describe_modes(self._answers.view, self._answers.policies)
        elif recorder is not None:
            decisions = await self._shown(await run_within(None, recorder.all), viewer)
        found = {"version": JSON_VERSION, "notes": notes, "modes": modes, "decisions": decisions}
        return _json(found)

    async def livez(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request, nameless: str = "") -> web.Response:
        """200 once the view is complete and fresh, else 503. ?verbose: for each source, with names
        of objects unless it must be `nameless`, and why. It is answered whoever asks."""
        now = time.monotonic()
        sources = self._answers.publisher.sources.values()
        found = self._problems(now)
        lines = ["not ready: " + p for p in dict.fromkeys(found)] or ["ok"]
        if "verbose" in request.query:
            lines += readiness.report(sources, now)
            lines += [*_counts(self._answers.view), nameless] if nameless else self._details()
        text = "".join(f"{line}\n" for line in lines)
        # Names of files need not be text.
        body = text.encode(errors="backslashreplace")
        return web.Response(
            body=body, content_type="text/plain", charset="utf-8", status=503 if found else 200
        )

    def _problems(self, now: float) -> list[str]:
        sources = self._answers.publisher.sources.values()
        return [
            *readiness.problems(sources, now, self._silent_after_s),
            *self._extra_problems(),
        ]

    def _details(self) -> list[str]:
        """What may name objects."""
        quarantined = self._answers.view.quarantined.values()
        modes = describe_modes(self._answers.view, self._answers.policies)
        return [
            *texts(self._answers.set_aside()),
            *modes,
            *(f"quarantined: {text}" for text in quarantined),
            *(
                f"too long to be read whole: {source.cut} of {source.name}, the latest {last}"
                for source in self._answers.publisher.sources.values()
                if (last := source.last_cut)
            ),
            *self._notes(),
        ]

    async def metrics(self, _request: web.Request) -> web.Response:
        text = await self._exposition.text()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _plain(placed: Iterable[PlacedPod]) -> list[dict[str, Any]]:
    listed = []
    for one in placed:
        listed.append(plain_placed(one))
        pause()
    return listed


def _counts(view: View) -> list[str]:
    """How many objects of each kind cannot be read."""
    kinds = Counter(key.partition(" ")[0] for key in view.quarantined)
    return [f"quarantined: {count} {kind}" for kind, count in sorted(kinds.items())]


def _namespace(key: str) -> str:
    """Of an object; "" if it has none."""
    return key.rpartition("/")[0]


async def _notes_for(viewer: Viewer) -> list[str]:
    """What somebody is told who does not see all."""
    return [] if await viewer.may(DEVICES) else [WITHHELD]


def _json(data: object, status: int = 200) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(data), content_type="application/json"
    )
