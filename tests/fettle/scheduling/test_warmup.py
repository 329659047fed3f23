"""Selectors of classes are evaluated before a pod asks, and only on what slices changed."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fettle.api.resource import Device, DeviceAttribute
from fettle.cel import Outcome, OutcomeKind, SelectorEngine
from fettle.cel.runtime.supervisor import COMMAND
from fettle.cluster import NodeView, Publisher
from fettle.config import Settings
from fettle.model import BUILT_IN, Placement, Requirement
from fettle.scheduling import warmup
from fettle.scheduling.answers import Answers
from fettle.scheduling.warmup import NODES_AT_ONCE
from tests.fettle import building as b
from tests.fettle.others import own_time

MODEL = f'device.attributes["{b.DRIVER}"].model == "H100"'


class Watched(SelectorEngine):
    """Records the devices of each evaluation, the pause before it, whether the last one completed,
    and whether it was told what to keep. `clock` is for upper bounds of pauses."""

    asked: list[str]
    calls = 0
    pauses_s: list[float]
    own_pauses_s: list[float]
    complete = False
    stood = False
    clock: Callable[[], float] = time.monotonic
    _done_at = 0.0
    _own_done_at = 0.0

    async def evaluate(
        self,
        expressions: Iterable[str],
        devices: Iterable[tuple[str, Device]],
        quick: asyncio.Event | None = None,
    ) -> bool:
        devices = list(devices)
        self.asked += [device.name for _, device in devices]
        pause_s, own_pause_s = time.monotonic() - self._done_at, self.clock() - self._own_done_at
        self.complete = await super().evaluate(expressions, devices, quick)
        self._done_at, self._own_done_at = time.monotonic(), self.clock()
        self.calls += 1
        if devices:
            self.pauses_s.append(pause_s)
            self.own_pauses_s.append(own_pause_s)
        return self.complete

    def pin(self, expressions: Collection[str]) -> None:
        super().pin(expressions)
        self.stood = True


@pytest.fixture
async def engine() -> AsyncIterator[Watched]:
    engine = watched(COMMAND)
    await engine.start()
    yield engine
    await engine.close()


def watched(command: Sequence[str], **bounds: Any) -> Watched:
    engine = Watched(command=command, **bounds)
    engine.asked, engine.pauses_s, engine.own_pauses_s = [], [], []
    return engine


def node(model: str, name: str = "n") -> NodeView:
    attributes = {"model": DeviceAttribute(string=model)}
    pool = b.pool(b.device("gpu-0", pool=name, attributes=attributes), name=name)
    return b.node(name, pools=(b.looked_at(pool),))


def taken(node: NodeView) -> NodeView:
    """The same node, with its device allocated."""
    (pool,) = node.pools
    devices = tuple(msgspec.structs.replace(d, allocated=True) for d in pool.devices)
    pool = msgspec.structs.replace(pool, devices=devices, fingerprint=b"another")
    return msgspec.structs.replace(node, pools=(pool,))


def joined(node: NodeView) -> NodeView:
    """The same node, with one more device in another slice of its pool."""
    (pool,) = node.pools
    attributes = {"model": DeviceAttribute(string="B200")}
    added = b.device("gpu-1", pool="n", attributes=attributes)
    pool = b.looked_at(msgspec.structs.replace(pool, devices=(*pool.devices, added)))
    return msgspec.structs.replace(node, pools=(pool,))


async def test_changed_slices_are_evaluated_again_but_not_new_allocations(
    engine: Watched,
) -> None:
    publisher = Publisher()
    answers = Answers(publisher, engine, Settings())
    work = asyncio.ensure_future(answers.keep_ready())

    async def asked_after(number: int, *nodes: NodeView) -> list[str]:
        """Each view with a class takes one evaluation, even if it is of nothing."""
        engine.asked.clear()
        view = b.view(*nodes, classes={"gpu": b.device_class("gpu", MODEL)})
        view = msgspec.structs.replace(view, generation=number, basis=number)
        publisher.publish(view, frozenset({"n"}))
        async with asyncio.timeout(20):
            while engine.calls < number:
                await asyncio.sleep(0.005)
        return list(engine.asked)

    first = node("H100")
    assert await asked_after(1, first) == ["gpu-0"]
    assert await asked_after(2, taken(first)) == []
    assert await asked_after(3, joined(first)) == ["gpu-1"]
    assert await asked_after(4, node("A100")) == ["gpu-0"]
    assert await asked_after(5) == []
    assert await asked_after(6, node("A100")) == ["gpu-0"]
    work.cancel()


class Large(dict[str, NodeView]):
    """A mapping of nodes that fails if it is iterated for one changed node."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all nodes were gone through")


@pytest.mark.parametrize("gone", [True, False])
async def test_one_changed_or_removed_node_costs_no_work_on_the_others(
    gone: bool, engine: Watched
) -> None:
    publisher = Publisher()
    answers = Answers(publisher, engine, Settings())
    view = b.view(node("H100"), node("H100", "m"), classes={"gpu": b.device_class("gpu", MODEL)})
    publisher.publish(view, frozenset(view.nodes))
    work = asyncio.gather(answers.keep_ready(), answers.keep_complete())
    nodes = {"m": node("H100", "m")} if gone else {"n": node("A100"), "m": node("H100", "m")}

    async def looked_at(calls: int) -> None:
        async with asyncio.timeout(20):
            while engine.calls < calls and not work.done():
                await asyncio.sleep(0.005)

    await looked_at(1)
    later = msgspec.structs.replace(view, generation=2, basis=2, nodes=Large(nodes))
    publisher.publish(later, frozenset({"n"}))
    await looked_at(2)
    assert engine.calls == 2
    assert not work.done()
    work.cancel()


async def test_selectors_of_classes_and_policies_stay_known_whatever_pods_ask() -> None:
    engine = watched(COMMAND, expressions=4)
    await engine.start()
    publisher = Publisher()
    required = 'device.driver != "old"'
    placement = Placement(requires=(Requirement(expression=required),))
    view = b.view(
        node("H100"),
        classes={"gpu": b.device_class("gpu", MODEL)},
        policies={"own": msgspec.structs.replace(BUILT_IN["inference"], placement=placement)},
    )
    publisher.publish(view, frozenset(view.nodes))
    work = asyncio.ensure_future(Answers(publisher, engine, Settings()).keep_ready())
    device = b.device("gpu-0", attributes={"model": DeviceAttribute(string="H100")}).device
    async with asyncio.timeout(20):
        while not engine.stood:
            await asyncio.sleep(0.005)
    await engine.evaluate([f"{i} == {i}" for i in range(10)], [(b.DRIVER, device)])
    known = [engine.outcome(e, b.DRIVER, device) for e in (MODEL, required)]
    assert known == [Outcome(OutcomeKind.MATCH)] * 2
    work.cancel()
    await engine.close()


async def test_one_pool_is_evaluated_for_all_with_the_same_fingerprint(engine: Watched) -> None:
    publisher = Publisher()
    answers = Answers(publisher, engine, Settings())
    nodes = [node(("H100", "A100", "B200")[i % 3], f"n{i}") for i in range(3 * NODES_AT_ONCE)]
    view = b.view(*nodes, classes={"gpu": b.device_class("gpu", MODEL)})
    view = msgspec.structs.replace(view, generation=1, basis=1)
    publisher.publish(view, frozenset(view.nodes))
    work = asyncio.ensure_future(answers.keep_ready())
    async with asyncio.timeout(20):
        while engine.calls < 3:
            await asyncio.sleep(0.005)
    work.cancel()
    matches = [
        engine.outcome(MODEL, b.DRIVER, device.device) == Outcome(OutcomeKind.MATCH)
        for each in nodes
        for pool in each.pools
        for device in pool.devices
    ]
    assert matches == [True, False, False] * NODES_AT_ONCE
    # Once for what it reads is not known yet, once for it is.
    assert len(engine.asked) <= 6


@pytest.mark.long
async def test_a_failed_evaluation_is_retried_with_growing_pauses_until_it_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "RETRY_S", 0.02)
    monkeypatch.setattr(warmup, "LONGEST_RETRY_S", 0.64)
    program = tmp_path / "python"
    engine = watched((str(program), *COMMAND[1:]))
    publisher = Publisher()
    work = asyncio.ensure_future(Answers(publisher, engine, Settings()).keep_ready())

    def show(number: int, selector: str) -> None:
        view = b.view(node("H100"), classes={"gpu": b.device_class("gpu", selector)})
        view = msgspec.structs.replace(view, generation=number, basis=number)
        publisher.publish(view, frozenset({"n"}))

    async def tried(times: int) -> list[float]:
        """The pauses between that many evaluations and the next."""
        async with asyncio.timeout(20):
            while len(engine.pauses_s) <= times:
                await asyncio.sleep(0.005)
        return engine.pauses_s[1 : times + 1]

    async with own_time() as engine.clock:
        show(1, MODEL)
        first, second, third = await tried(3)
        assert (first >= 0.02, second >= 0.08, third >= 0.32) == (True, True, True)
        program.write_text(f'#!/bin/sh\nexec {COMMAND[0]} "$@"\n')
        program.chmod(0o755)
        async with asyncio.timeout(20):
            while not engine.complete:
                await asyncio.sleep(0.005)
        assert engine.pauses_s[-1] >= 0.64
        assert engine.own_pauses_s[-1] < 1.28

        program.unlink()
        assert engine.worker_pid is not None
        os.kill(engine.worker_pid, signal.SIGKILL)
        engine.pauses_s.clear()
        engine.own_pauses_s.clear()
        show(2, MODEL.replace("H100", "A100"))
        await tried(1)
        assert engine.own_pauses_s[1] < 0.64
    work.cancel()
    await engine.close()
