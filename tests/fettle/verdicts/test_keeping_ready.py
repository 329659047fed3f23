"""Selectors of classes are evaluated before anybody asks, and on what slices changed only."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import msgspec
import pytest

from fettle.selectors.engine import SelectorEngine
from fettle.settings import Settings
from fettle.verdicts.answering import Answers
from fettle.view import NodeView, Publisher
from fettle.wire.resource import Device, DeviceAttribute
from tests.fettle import building as b

MODEL = f'device.attributes["{b.DRIVER}"].model == "H100"'


class Watched(SelectorEngine):
    """Notes the devices that it is asked about."""

    asked: list[str]

    async def evaluate(
        self,
        expressions: Iterable[str],
        devices: Iterable[tuple[str, Device]],
        quick: asyncio.Event | None = None,
    ) -> bool:
        devices = list(devices)
        self.asked += [device.name for _, device in devices]
        return await super().evaluate(expressions, devices, quick)


@pytest.fixture
async def engine() -> AsyncIterator[Watched]:
    engine = Watched()
    engine.asked = []
    await engine.start()
    yield engine
    await engine.close()


def node(model: str) -> NodeView:
    attributes = {"model": DeviceAttribute(string=model)}
    pool = b.pool(b.device("gpu-0", pool="n", attributes=attributes), name="n")
    return b.node("n", pools=(b.looked_at(pool),))


def taken(node: NodeView) -> NodeView:
    """The same, a claim having its device."""
    (pool,) = node.pools
    devices = tuple(msgspec.structs.replace(d, allocated=True) for d in pool.devices)
    pool = msgspec.structs.replace(pool, devices=devices, look=b"another")
    return msgspec.structs.replace(node, pools=(pool,))


async def test_what_claims_take_is_not_evaluated_again_and_what_slices_change_is(
    engine: Watched,
) -> None:
    publisher = Publisher()
    answers = Answers(publisher, engine, Settings())
    work = asyncio.ensure_future(answers.keep_ready())

    async def asked_after(turn: int, *nodes: NodeView) -> list[str]:
        engine.asked.clear()
        view = b.view(*nodes, classes={"gpu": b.device_class("gpu", MODEL)})
        view = msgspec.structs.replace(view, generation=turn, basis=turn)
        publisher.publish(view, frozenset({"n"}))
        await asyncio.sleep(0.3)
        return list(engine.asked)

    first = node("H100")
    assert await asked_after(1, first) == ["gpu-0"]
    assert await asked_after(2, taken(first)) == []
    assert await asked_after(3, node("A100")) == ["gpu-0"]
    assert await asked_after(4) == []
    assert await asked_after(5, node("A100")) == ["gpu-0"]
    work.cancel()
