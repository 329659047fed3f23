"""Takes Alertmanager's webhook: alerts that fire are evidence by the rows of the table `alerts`, or
by the rule of ours that they were made from.

An alert stands until Alertmanager says that it is resolved; if it is not repeated, for some hours.
"""

import asyncio
import hmac
import math
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from fettle.api import Alert, Alerted, Finding, Sample, Unmeasured
from fettle.cluster import Measuring
from fettle.config import AlertmanagerSettings
from fettle.health import SignalRules, metrics
from fettle.logs import Logger
from fettle.model import BadInput
from fettle.pacing import keep, run_within

MOST_BYTES = 8 * 2**20
LOOK_S = 2.0
SEEK_S = 30.0
"""How often the devices of alerts are looked for that were not known yet."""
_BEARER = "Bearer "
_FIRING, _RESOLVED = "firing", "resolved"

_LOG = Logger(__name__)


class _SentAlert(msgspec.Struct, frozen=True, rename="camel"):
    """One alert, as far as it is read."""

    status: str = ""
    fingerprint: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    version: str = ""
    alerts: tuple[msgspec.Raw, ...] = ()


class AlertCounts(Protocol):
    """What is counted."""

    def received(self, **results: int) -> None: ...


class Alerts:
    """Takes messages while it is this process's turn; `keep` it until cancelled."""

    def __init__(
        self,
        settings: AlertmanagerSettings,
        rules: SignalRules,
        send: Callable[[Finding], Awaitable[None]],
        measuring: Measuring,
        is_ours: Callable[[], Awaitable[bool]],
        counted: AlertCounts,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._rules = rules
        self._send = send
        self._measuring = measuring
        self._is_ours = is_ours
        self._counted = counted
        self._elapsed = elapsed
        self._takes = False
        self._fired_at: dict[metrics.MetricSource, float] = {}
        self._sought_at = elapsed()
        self._unknown: Counter[str] = Counter()
        self._malformed: Counter[str] = Counter()
        """Why alerts could not be read."""

    async def keep(self) -> None:
        """Know whose turn it is, and let fade what is not repeated any more."""
        try:
            await keep("turn of alerts", self.look, every_s=LOOK_S)
        finally:
            self._turn(takes=False)

    async def look(self) -> None:
        self._turn(takes=await self._is_ours())
        before = self._elapsed() - self._settings.stale_after_seconds
        for source in [source for source, at in self._fired_at.items() if at < before]:
            del self._fired_at[source]
            await self._send(Unmeasured(source.rule, source.alert))
        if self._elapsed() - self._sought_at >= SEEK_S and (lost := self._measuring.lost_alerts()):
            self._sought_at = self._elapsed()
            await self._send(Alerted(lost))

    def _turn(self, *, takes: bool) -> None:
        if takes is not self._takes:
            self._takes = takes
            self._measuring.begin(polls=takes, now=time.time())
            # What was stored of alerts fades too, if nobody repeats it.
            sources = self._measuring.reporting_alerts() if takes else ()
            self._fired_at = dict.fromkeys(sources, self._elapsed())

    async def handle(self, body: bytes) -> dict[str, int]:
        """One message; how many of its alerts are about devices that are known (`placed`) or not
        (`unplaced`), how many no row names (`unknown`), and how many cannot be read
        (`malformed`). Raises BadInput if that are all."""
        alerts = []
        unknown = 0
        raw = _read(body).alerts
        read, odd = _read_alerts(raw)
        if odd and not read:
            raise BadInput(f"none of the {len(odd)} alerts can be read: {odd[0]}")
        self._malformed.update(odd)
        for sent in read:
            rule = metrics.rule_of_alert(self._rules, sent.labels)
            if not rule:
                unknown += 1
                self._unknown[sent.labels.get("alertname", "")[:100]] += 1
                continue
            fires = sent.status == _FIRING
            alert = Alert(rule, _fingerprint(sent), _sample(sent), fires)
            source = metrics.MetricSource(rule, alert.fingerprint)
            if fires:
                self._fired_at[source] = self._elapsed()
            else:
                self._fired_at.pop(source, None)
            alerts.append(alert)
        placed = await run_within(partial(self._measuring.are_placed, alerts))
        if alerts:
            await self._send(Alerted(tuple(alerts)))
        found = {
            "placed": placed,
            "unplaced": len(alerts) - placed,
            "unknown": unknown,
            "malformed": len(odd),
        }
        self._counted.received(**found)
        return found

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
            return web.json_response(await self.handle(await request.read()))
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
        if token and hmac.compare_digest(
            given.encode(errors="surrogateescape"), f"{_BEARER}{token}".encode()
        ):
            return ""
        return (
            "present the bearer token of alertmanager.bearerTokenFile (http_config, authorization)"
        )

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        found = [f"alerts: {note}" for note in self._measuring.notes(alerts=True)]
        if self._unknown:
            names = ", ".join(f"{name} ({n})" for name, n in self._unknown.most_common(5))
            found.append(
                f"alerts that no row of the table alerts names, so they count for nothing: {names}"
            )
        if self._malformed:
            whys = "; ".join(f"{why} ({n})" for why, n in self._malformed.most_common(3))
            found.append(f"alerts that cannot be read, so they count for nothing: {whys}")
        return found


def _read_alerts(raw: tuple[msgspec.Raw, ...]) -> tuple[list[_SentAlert], list[str]]:
    """Those that can be read, and why the others cannot: one that is odd takes none along."""
    read: list[_SentAlert] = []
    odd: list[str] = []
    for each in raw:
        try:
            sent = msgspec.json.decode(each, type=_SentAlert)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            odd.append(str(error)[:100])
            continue
        if sent.status in (_FIRING, _RESOLVED):
            read.append(sent)
        else:
            odd.append(f"status {sent.status[:20]!r} is neither {_FIRING} nor {_RESOLVED}")
    return read, odd


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


_FINGERPRINT = re.compile(r"[0-9A-Za-z_-]{1,64}")


def _fingerprint(alert: _SentAlert) -> str:
    """Alertmanager's name for the labels of an alert; others may send none."""
    if _FINGERPRINT.fullmatch(alert.fingerprint):
        return alert.fingerprint
    labels = msgspec.json.encode(alert.labels, order="sorted")
    return blake2b(labels, digest_size=8).hexdigest()


def _sample(alert: _SentAlert) -> Sample:
    """An alert has no number, but the rules that we print put it into an annotation. Without it the
    value is NaN, which weighs as little as the rule allows."""
    value = math.nan
    with suppress(ValueError):
        value = float(alert.annotations.get("value", ""))
    said = map(alert.annotations.get, ("summary", "description", "message"))
    summary = next(filter(None, said), "")
    labels = {**alert.labels, "summary": summary}
    return Sample(labels, value if math.isfinite(value) else math.nan)
