"""The second listener, for people and machines: the page, explanations, policies, devices, pods,
decisions, the report, probes and metrics. It reads the newest view and changes nothing."""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fettle.browse.access import DEVICES, Access, Invitation, Viewer, refusal
from fettle.browse.decisions import DecisionHandlers
from fettle.browse.devices import DeviceHandlers
from fettle.browse.fleet import FleetHandlers
from fettle.browse.known import Known, Query
from fettle.browse.page_serving import ChangeHandlers, HeadlineHandlers, page_file, page_files
from fettle.browse.pods import PodHandlers, PolicyHandlers
from fettle.browse.probes import Probes
from fettle.browse.reviews import NotShown
from fettle.browse.status import StatusHandlers
from fettle.browse.what_if import WhatIfHandlers

Answer = Callable[[Query, Viewer], Awaitable[web.Response]]


def answers_of(known: Known) -> Mapping[str, Answer]:
    """What answers each path that not everybody may ask for."""
    pods, devices, decisions = PodHandlers(known), DeviceHandlers(known), DecisionHandlers(known)

    async def explain(query: Query, viewer: Viewer) -> web.Response:
        of_health = query.get("node") or query.get("device")
        return await (devices if of_health else pods).explain(query, viewer)

    return {
        "/explain": explain,
        "/policy": PolicyHandlers(known).policy,
        "/devices": devices.devices,
        "/usage": devices.usage,
        "/fleet": FleetHandlers(known).fleet,
        "/headline": HeadlineHandlers(known).headline,
        "/pods": pods.pods,
        "/status": StatusHandlers(known).status,
        "/what-if": WhatIfHandlers(known).what_if,
        "/decisions": decisions.decisions,
        "/records": decisions.records,
        "/report": decisions.report,
    }


def make_browse_app(
    known: Known, access: Access, *middlewares: Middleware, invitation: Invitation | None = None
) -> web.Application:
    """GET what `answers_of` has, and /changes, for whom `access` knows; the page, which has no
    data, /livez, /readyz, /setup and /metrics for everybody. With an `invitation`, all but the page
    is for whom `access` knows."""
    probes = Probes(known)

    async def readyz(request: web.Request) -> web.StreamResponse:
        try:
            viewer = await access(request) if "verbose" in request.query else None
            why = "" if viewer is None or await viewer.may(DEVICES) else f"not for {viewer}"
        except NotShown as refused:
            why = str(refused)
        return await probes.readyz(request, why)

    app, changes = web.Application(middlewares=middlewares), ChangeHandlers(known, access)
    app.router.add_get("/changes", changes.changes)
    app.on_shutdown.append(changes.stop)
    for path, answer in answers_of(known).items():
        app.router.add_get(path, _for_known(access, answer))
    for path in page_files():
        app.router.add_get(path, page_file)
    for path, probe in (
        ("/livez", probes.livez),
        ("/readyz", readyz),
        ("/setup", probes.setup),
        ("/metrics", probes.metrics),
    ):
        app.router.add_get(path, probe if invitation is None else _guarded(access, probe))
    if invitation is not None:
        app.router.add_get("/token", invitation.redeem)
    return app


def _guarded(access: Access, handler: Handler) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            await access(request)
        except NotShown as refused:
            return refusal(refused)
        return await handler(request)

    return handle


def _for_known(access: Access, answer: Answer) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await answer(request.query, await access(request))
        except NotShown as refused:
            return refusal(refused)

    return handle
