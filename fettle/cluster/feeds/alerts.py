"""Takes Alertmanager's webhook: alerts that fire are evidence by the rows of the table `alerts`, or
by the rule of ours that they were made from.

What Alertmanager does not repeat stands until it says that it is resolved, or for some hours.
"""

import asyncio
import hmac
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

from fettle.api import Finding, Measured, Sample, Unmeasured
from fettle.cluster import Measuring
from fettle.config import AlertmanagerSettings
from fettle.health import SignalRules, metrics
from fettle.model import BadInput

MOST_BYTES = 8 * 2**20
LOOK_S = 2.0
_BEARER = "Bearer "

_LOG = structlog.get_logger(__name__)


class Alert(msgspec.Struct, frozen=True, rename="camel"):
    """One alert, as far as it is read."""

    status: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    version: str = ""
    alerts: tuple[Alert, ...] = ()


class Alerts:
    """Takes messages while it is this process's turn; `keep` it until cancelled."""

    def __init__(
        self,
        settings: AlertmanagerSettings,
        rules: SignalRules,
        send: Callable[[Finding], Awaitable[None]],
        measuring: Measuring,
        is_ours: Callable[[], Awaitable[bool]],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._rules = rules
        self._send = send
        self._measuring = measuring
        self._is_ours = is_ours
        self._elapsed = elapsed
        self._takes = False
        self._heard_at: dict[str, float] = {}
        self._unknown: Counter[str] = Counter()

    async def keep(self) -> None:
        """Know whose turn it is, and let fade what is not repeated any more."""
        try:
            while True:
                await self._look()
                await asyncio.sleep(LOOK_S)
        finally:
            self._turn(takes=False)

    async def _look(self) -> None:
        self._turn(takes=await self._is_ours())
        before = self._elapsed() - self._settings.stale_after_seconds
        for rule in [rule for rule, at in self._heard_at.items() if at < before]:
            del self._heard_at[rule]
            await self._send(Unmeasured(rule))

    def _turn(self, *, takes: bool) -> None:
        if takes is not self._takes:
            self._takes = takes
            self._measuring.begin(polls=takes, now=time.time())
            # What was stored of alerts fades too, if nobody repeats it.
            told = self._measuring.rules_that_told() if takes else ()
            self._heard_at = dict.fromkeys(told, self._elapsed())

    async def take(self, body: bytes) -> dict[str, int]:
        """One message; how many alerts of it count, and how many no row names. Raises BadInput."""
        firing: dict[str, list[Sample]] = {}
        over: dict[str, list[Sample]] = {}
        unknown = 0
        for alert in _read(body).alerts:
            rule = metrics.rule_of_alert(self._rules, alert.labels)
            if not rule:
                unknown += 1
                self._unknown[alert.labels.get("alertname", "")[:100]] += 1
                continue
            into = over if alert.status == "resolved" else firing
            into.setdefault(rule, []).append(_sample(alert))
        for rule in sorted(firing.keys() | over.keys()):
            self._heard_at[rule] = self._elapsed()
            fires, ends = tuple(firing.get(rule, ())), tuple(over.get(rule, ()))
            await self._send(Measured(rule, fires, over=ends, complete=False))
        counted = sum(map(len, [*firing.values(), *over.values()]))
        return {"counted": counted, "unknown": unknown}

    def make_app(self) -> web.Application:
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post("/alerts", self._post)
        return app

    async def _post(self, request: web.Request) -> web.Response:
        if (why := await asyncio.to_thread(self._why_refused, request)) != "":
            return web.Response(status=401, text=why)
        if not self._takes:
            # Alertmanager tries again, and on a new connection it may reach the leader.
            response = web.Response(
                status=503, text="another replica leads and takes alerts; try again"
            )
            response.force_close()
            return response
        try:
            return web.json_response(await self.take(await request.read()))
        except BadInput as error:
            return web.Response(status=error.status, text=str(error))

    def _why_refused(self, request: web.Request) -> str:
        if not self._settings.bearer_token_file:
            return ""  # the listener is on loopback, or has asked for a client certificate
        try:
            token = Path(self._settings.bearer_token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            _LOG.error("alerts are refused: the token cannot be read", reason=str(error))
            return "the token to compare with cannot be read; see the log"
        given = request.headers.get("Authorization", "")
        if token and hmac.compare_digest(given.encode(), f"{_BEARER}{token}".encode()):
            return ""
        return (
            "present the bearer token of alertmanager.bearerTokenFile (http_config, authorization)"
        )

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        if not self._unknown:
            return []
        names = ", ".join(f"{name} ({n})" for name, n in self._unknown.most_common(5))
        return [f"alerts that no row of the table alerts names, so they count for nothing: {names}"]


def _read(body: bytes) -> _Message:
    try:
        message = msgspec.json.decode(body, type=_Message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"this is not a message of Alertmanager's webhook: {error}") from error
    if message.version != "4":
        raise BadInput(
            f"version {message.version[:20]!r} of Alertmanager's webhook is not known here; "
            "version 4 is"
        )
    return message


def _sample(alert: Alert) -> Sample:
    """An alert has no number, but the rules that we print put it into an annotation. Without it the
    value is NaN, which weighs as little as the rule allows."""
    value = math.nan
    with suppress(ValueError):
        value = float(alert.annotations.get("value", ""))
    summary = alert.annotations.get("summary") or alert.annotations.get("description", "")
    labels = {**alert.labels, "summary": summary}
    return Sample(labels, value if math.isfinite(value) else math.nan)
