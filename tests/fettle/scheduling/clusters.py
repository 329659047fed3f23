"""A cluster whose views a test publishes, and the answers over them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher
from fettle.config import ExtenderSettings, Settings
from fettle.dra import Alternative, Claim, Request
from fettle.dra.claims import Constraint
from fettle.model import BUILT_IN
from fettle.pacing import working_s
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand
from fettle.scheduling.kept_tables import SHARED
from tests.fettle import building as b

PATIENT = Settings(extender=ExtenderSettings(wait_seconds=10.0))
"""Settings with which calls wait for selectors, however slow this machine is."""


class Cluster:
    """Publishes views one after another, and says what changed as the writer does."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        working_s: Callable[[], float] = working_s,
    ) -> None:
        self.publisher = Publisher()
        self.engine = SelectorEngine()
        """Evaluates nothing until it is started."""
        self.answers = Answers(self.publisher, self.engine, Settings(), clock, working_s=working_s)

    def show(self, nodes: dict[str, NodeView], **fields: Any) -> None:
        before = self.publisher.view
        after = b.view(*nodes.values(), **fields)
        after = msgspec.structs.replace(
            after, generation=before.generation + 1, basis=before.basis + 1
        )
        names = {*before.nodes, *after.nodes}
        changed = {n for n in names if before.nodes.get(n) is not after.nodes.get(n)}
        self.publisher.publish(after, frozenset(changed))


def kept_complete(answers: Answers) -> AbstractAsyncContextManager[None]:
    """While the answers complete tables in the background."""
    return kept(answers.keep_complete())


@asynccontextmanager
async def kept(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """While this goes on in the background; an error there fails the test."""
    keeping = asyncio.create_task(work)
    try:
        yield
        assert not keeping.done()
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


def share(answers: Answers, demand: Demand) -> None:
    """Answer as many pods as make the demand worth judging for all nodes."""
    answers.table(demand)
    for _ in range(SHARED):
        answers.note_nodes_given(demand, POD)


def claim_view() -> dict[str, Any]:
    template = b.template(
        {
            "metadata": {"name": "t", "namespace": "default"},
            "spec": {
                "spec": {
                    "devices": {
                        "requests": [{"name": "r", "exactly": {"deviceClassName": b.DRIVER}}]
                    }
                }
            },
        }
    )
    return {"templates": {"default/t": template}, "classes": {b.DRIVER: b.device_class()}}


POD = b.pod(
    {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "annotations": {"fettle.dev/policy": "training"},
        },
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
    }
)


def anything(count: int = 1, in_flight: int = 0, *constraints: Constraint) -> Demand:
    requests = (Request("r", (Alternative("r", "any", count=count),)),)
    return Demand(
        BUILT_IN["training"], claims=(Claim("gpu", requests, constraints),), in_flight=in_flight
    )
