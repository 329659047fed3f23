"""A costly expression delays no other: real workers, and the order in which they are asked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fettle.api.resource import Device
from fettle.cel.runtime.engine import LINGERING, SelectorEngine
from fettle.cel.runtime.memory import GIVEN_UP_S
from tests.fettle.cel.devices import DRIVER, device
from tests.fettle.cel.engines import SPINNING, A, fleet, worker

TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
DEVICES = fleet(80)


def costly(number: int) -> str:
    """Takes 14 ms or more for each device; the API server accepts it."""
    loops = f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, a + b + c + d >= 0))))"
    return f'{loops} && {A}.uuid != "{number}"'


def known(engine: SelectorEngine, texts: list[str]) -> int:
    return sum(engine.outcome(t, DRIVER, d) is not None for t in texts for _, d in DEVICES)


@contextlib.asynccontextmanager
async def flooded(engine: SelectorEngine, count: int) -> AsyncIterator[list[str]]:
    """While costly expressions are evaluated, each in a call of its own, and have proved costly."""
    texts = [costly(number) for number in range(count)]
    await engine.start()
    calls = [asyncio.create_task(engine.evaluate([text], DEVICES)) for text in texts]
    while not all(known(engine, [text]) for text in texts):
        await asyncio.sleep(0.01)
    yield texts
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.long
async def test_a_new_expression_is_decided_before_those_that_proved_costly() -> None:
    engine = SelectorEngine()
    try:
        async with flooded(engine, 60) as texts:
            before = known(engine, texts)
            trivial = f'{A}.uuid != "x"'
            await engine.evaluate([trivial], DEVICES)
            assert known(engine, [trivial]) == len(DEVICES)
            assert known(engine, texts) - before <= 12  # of 4800: a row or two for each question
    finally:
        await engine.close()


@pytest.mark.long
async def test_a_new_expression_is_decided_before_new_ones_with_many_loops() -> None:
    engine = SelectorEngine()
    await engine.start()
    texts = [costly(number) for number in range(200)]
    calls = [asyncio.create_task(engine.evaluate([text], DEVICES)) for text in texts]
    try:
        while not known(engine, texts):
            await asyncio.sleep(0.01)
        before = known(engine, texts)
        trivial = f'{A}.uuid != "x"'
        await engine.evaluate([trivial], DEVICES)
        assert known(engine, [trivial]) == len(DEVICES)
        assert known(engine, texts) - before <= 12
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await engine.close()


@pytest.mark.long
async def test_within_one_call_costly_expressions_come_last() -> None:
    engine = SelectorEngine()
    try:
        texts = [costly(0), f'{A}.uuid != "x"', costly(1), f'{A}.uuid != "y"']
        quick = asyncio.Event()
        call = asyncio.create_task(engine.evaluate(texts, DEVICES, quick))
        await quick.wait()
        assert known(engine, [texts[1], texts[3]]) == 2 * len(DEVICES)
        assert known(engine, [texts[0], texts[2]]) < len(DEVICES)
        assert not call.done()
        await call
        assert known(engine, texts) == 4 * len(DEVICES)
    finally:
        await engine.close()


async def test_only_a_few_calls_wait_for_costly_expressions_and_the_others_return() -> None:
    engine = SelectorEngine()
    try:
        async with flooded(engine, 30):
            running = [t for t in asyncio.all_tasks() if "evaluate" in repr(t.get_coro())]
            assert 0 < len(running) <= LINGERING
    finally:
        await engine.close()


async def test_work_that_is_left_when_the_engine_closes_starts_no_worker() -> None:
    engine = SelectorEngine()
    await engine.start()
    calls = [asyncio.create_task(engine.evaluate([costly(n)], DEVICES)) for n in range(10)]
    while not known(engine, [costly(0)]):
        await asyncio.sleep(0.01)
    await engine.close()
    await asyncio.gather(*calls, return_exceptions=True)
    assert engine.worker_pid is None
    assert engine.worker_starts == 1


async def test_two_calls_for_the_same_expression_share_the_work(tmp_path: Path) -> None:
    counts = tmp_path / "judged"
    counting = worker(f"""
        sound = worker.judge
        def judge(prepared, row):
            with open({str(counts)!r}, "a") as file:
                file.write("x")
            return sound(prepared, row)
        worker.judge = judge
    """)
    engine = SelectorEngine(command=counting)
    try:
        both = [engine.evaluate([costly(0)], DEVICES[:5]) for _ in range(2)]
        await asyncio.gather(*both)
        assert counts.read_text() == "x" * 5
    finally:
        await engine.close()


async def test_the_nearest_miss_leaves_out_costly_expressions() -> None:
    engine = SelectorEngine()
    try:
        cheap, dear = f'{A}.uuid == "x"', f'{costly(0)} && {A}.uuid == "x"'
        await engine.evaluate([cheap, dear], DEVICES[:3])
        assert await engine.nearest([cheap], DEVICES[:3]) == 'uuid "GPU-0" != "x"'
        assert await engine.nearest([dear], DEVICES[:3]) == ""
    finally:
        await engine.close()


async def test_a_row_that_takes_too_long_costs_no_worker() -> None:
    engine = SelectorEngine(command=SPINNING)
    try:
        await engine.evaluate(["true"], [("spin.example.com", DEVICES[0][1]), DEVICES[0]])
        assert engine.worker_starts == 1
    finally:
        await engine.close()


async def test_an_expression_that_takes_too_long_on_several_devices_is_given_up_for_a_time() -> (
    None
):
    now = 0.0
    whole = f'{A}.exists(n, n == "uuid")'
    engine = SelectorEngine(command=SPINNING, clock=lambda: now)

    def reasons() -> list[str]:
        outcomes = (engine.outcome(whole, "spin.example.com", of) for _, of in DEVICES)
        return [outcome.reason if outcome is not None else "" for outcome in outcomes]

    try:
        spinning: list[tuple[str, Device]] = [("spin.example.com", of) for _, of in DEVICES]
        await engine.evaluate([whole], spinning)
        assert reasons() == ["it takes too long"] * len(DEVICES)
        now += GIVEN_UP_S + 1
        assert reasons() == [""] * len(DEVICES)
        await engine.evaluate([whole], spinning)
        assert reasons() == ["it takes too long"] * len(DEVICES)
    finally:
        await engine.close()


async def test_a_new_device_of_a_known_expression_is_decided_before_costly_expressions() -> None:
    engine = SelectorEngine()
    try:
        text = f'{A}.uuid != "x"'
        await engine.evaluate([text], DEVICES)
        async with flooded(engine, 20) as texts:
            before = known(engine, texts)
            changed = device({"uuid": {"string": "GPU-changed"}})
            await engine.evaluate([text], [(DRIVER, changed)])
            assert engine.outcome(text, DRIVER, changed) is not None
            assert known(engine, texts) - before <= 6
    finally:
        await engine.close()
