"""The served application, called as the API server calls it."""

import io
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient
from prometheus_client import CollectorRegistry

from fettle.client import Event
from fettle.cluster import View
from fettle.config import LintSettings, Settings, WebhookSettings, settings
from fettle.config.settings import SchedulerSettings
from fettle.lint import RULES, Evaluator, Linter, Rule
from fettle.model import Policy
from fettle.observing import LastRequests
from fettle.records import Recorder
from tests.fettle.others import WatchedPublisher
from tests.webhook.reviews import UID, Object, encoded, review
from webhook.app import ReviewWaits, make_app
from webhook.cluster_features import ALL_PRESERVED, PreservedFields


class Served:
    """A client of the application, what it counts and tells, and where its views come from."""

    def __init__(
        self,
        client: "TestClient[Any, Any]",
        registry: CollectorRegistry,
        publisher: WatchedPublisher,
        events: list[Event],
    ) -> None:
        self.client = client
        self.publisher = publisher
        self.events = events
        self._registry = registry

    async def post(self, path: str, body: bytes) -> ClientResponse:
        return await self.client.post(path, data=io.BytesIO(body))

    async def ask(self, path: str, object: Object | None, **request: Any) -> Object:
        reply = await self.post(path, encoded(review(object, **request)))
        assert reply.status == 200
        assert reply.content_type == "application/json"
        response: Object = (await reply.json())["response"]
        assert response["uid"] == UID
        return response

    def publish(self, view: View) -> None:
        """The next view."""
        generation = self.publisher.view.generation + 1
        self.publisher.publish(msgspec.structs.replace(view, generation=generation), frozenset())

    def reviews(self, webhook: str, result: str) -> float:
        return self.counted("reviews", webhook=webhook, result=result)

    def undecided(self, webhook: str, reason: str) -> float:
        return self.counted("undecided", webhook=webhook, reason=reason)

    def counted(self, name: str, **labels: str) -> float:
        return self._registry.get_sample_value(f"fettle_webhook_{name}_total", labels) or 0.0

    def series(self, name: str) -> set[tuple[str, ...]]:
        """The labels of all series of a counter."""
        samples = (s for family in self._registry.collect() for s in family.samples)
        return {
            tuple(s.labels.values()) for s in samples if s.name == f"fettle_webhook_{name}_total"
        }


Serve = Callable[..., Awaitable[Served]]


PATIENCE_S = 60.0


@pytest.fixture
def serve(aiohttp_client: Any, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """The deadline is far off, beyond what may be set, where a test does not set it: how fast this
    machine is decides nothing.
    """
    monkeypatch.setattr(settings, "API_SERVER_WAITS_S", 2 * PATIENCE_S)

    async def start(
        known: View | None = None,
        rules: tuple[Rule, ...] = RULES,
        preserved: PreservedFields | None = ALL_PRESERVED,
        policies: tuple[Policy, ...] = (),
        incomplete_kinds: frozenset[str] = frozenset(),
        lint: LintSettings | None = None,
        scheduler: SchedulerSettings | None = None,
        last: LastRequests | None = None,
        evaluator: Evaluator | None = None,
        to_strangers: bool = False,
        recorder: Recorder | None = None,
        waits: ReviewWaits | None = None,
        **webhook: Any,
    ) -> Served:
        publisher, registry = WatchedPublisher(), CollectorRegistry()
        events: list[Event] = []
        chosen = Settings(
            webhook=WebhookSettings(**{"deadline_seconds": PATIENCE_S, **webhook}),
            policies=policies,
            lint=lint or LintSettings(),
            scheduler=scheduler or SchedulerSettings(),
        )
        made = make_app(
            publisher,
            chosen,
            registry=registry,
            linter=Linter(rules, evaluator),
            preserved=lambda: preserved,
            events=events.append if chosen.webhook.events else None,
            incomplete_kinds=lambda: incomplete_kinds,
            last=last,
            recorder=recorder,
            to_strangers=to_strangers,
            waits=waits,
        )
        served = Served(await aiohttp_client(made), registry, publisher, events)
        if known is not None:
            served.publish(known)
        return served

    return start
