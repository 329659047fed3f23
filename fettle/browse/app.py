"""The second listener, for people and machines: explanations, policies, devices, pods, decisions,
the report, probes and metrics. It reads the newest view and changes nothing."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fettle.browse.access import DEVICES, Access, Viewer, refusal
from fettle.browse.decisions import DecisionHandlers
from fettle.browse.devices import DeviceHandlers
from fettle.browse.known import Known
from fettle.browse.pods import PodHandlers
from fettle.browse.policies import PolicyHandlers
from fettle.browse.probes import Probes
from fettle.browse.reviews import NotShown

Answer = Callable[[web.Request, Viewer], Awaitable[web.Response]]


def make_browse_app(known: Known, access: Access, *middlewares: Middleware) -> web.Application:
    """GET /explain, /policy, /devices, /pods, /decisions, /records for whom `access` knows;
    /livez, /readyz and /metrics for everybody."""
    pods, devices, probes = PodHandlers(known), DeviceHandlers(known), Probes(known)
    decisions = DecisionHandlers(known)

    async def explain(request: web.Request, viewer: Viewer) -> web.Response:
        of_health = request.query.get("node") or request.query.get("device")
        return await (devices if of_health else pods).explain(request, viewer)

    async def readyz(request: web.Request) -> web.StreamResponse:
        try:
            viewer = await access(request) if "verbose" in request.query else None
            why = "" if viewer is None or await viewer.may(DEVICES) else f"not for {viewer}"
        except NotShown as refused:
            why = str(refused)
        return await probes.readyz(request, why)

    app = web.Application(middlewares=middlewares)
    app.router.add_get("/explain", _for_known(access, explain))
    app.router.add_get("/policy", _for_known(access, PolicyHandlers(known).policy))
    app.router.add_get("/devices", _for_known(access, devices.devices))
    app.router.add_get("/pods", _for_known(access, pods.pods))
    app.router.add_get("/decisions", _for_known(access, decisions.decisions))
    app.router.add_get("/records", _for_known(access, decisions.records))
    app.router.add_get("/livez", probes.livez)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", probes.metrics)
    return app


def _for_known(access: Access, answer: Answer) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await answer(request, await access(request))
        except NotShown as refused:
            return refusal(refused)

    return handle
