"""The tasks of a process: whichever ends is heard of."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fettle.model import ClusterError, FettleError
from fettle.serve.tasks import Tasks


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    made = Tasks()
    yield made
    await made.end()


async def for_ever() -> None:
    await asyncio.Event().wait()


async def failing(error: Exception, after_s: float = 0.0) -> None:
    await asyncio.sleep(after_s)
    raise error


async def briefly() -> None:
    await asyncio.sleep(0)


async def watched(tasks: Tasks) -> None:
    async with asyncio.timeout(20):
        await tasks.watch()


async def test_a_task_that_begins_late_is_heard_of_too(tasks: Tasks) -> None:
    tasks.keep("feed", for_ever())

    async def begin_another() -> None:
        tasks.keep("events", failing(ValueError("no JSON")))

    asyncio.get_running_loop().call_later(0.02, lambda: tasks.open("webhook", begin_another()))
    with pytest.raises(FettleError, match=r"the events failed: ValueError\('no JSON'\)") as caught:
        await watched(tasks)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_task_that_failed_before_anybody_watched_is_heard_of(tasks: Tasks) -> None:
    tasks.keep("feed", failing(ClusterError("it is gone")))
    await asyncio.sleep(0.01)
    with pytest.raises(ClusterError, match=r"^it is gone$"):
        await watched(tasks)


async def test_a_task_that_comes_to_its_end_is_heard_of(tasks: Tasks) -> None:
    tasks.keep("feed", briefly())
    with pytest.raises(FettleError, match="the feed stopped unexpectedly"):
        await watched(tasks)


async def test_what_opens_may_come_to_its_end_but_not_fail(tasks: Tasks) -> None:
    tasks.open("extender", briefly())
    tasks.open("webhook", failing(ClusterError("no port"), after_s=0.02))
    with pytest.raises(ClusterError, match="no port"):
        await watched(tasks)


async def test_the_first_failure_is_told(tasks: Tasks) -> None:
    for why in ("first", "second"):
        tasks.keep(why, failing(ClusterError(why)))
    await asyncio.sleep(0.01)
    with pytest.raises(ClusterError, match="first"):
        await watched(tasks)


async def test_ending_waits_for_the_last_of_them(tasks: Tasks) -> None:
    ended = []

    async def tidy(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append(name)

    tasks.open("webhook", tidy("webhook"))
    tasks.keep("feed", tidy("feed"))
    await asyncio.sleep(0)
    await tasks.end_openings()
    assert ended == ["webhook"]
    await tasks.end()
    assert ended == ["webhook", "feed"]


async def test_what_no_answer_needs_is_ended_first(tasks: Tasks) -> None:
    ended = []

    async def tidy(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    tasks.keep("feed", tidy("feed"))
    tasks.keep("steward", tidy("steward"), early=True)
    await asyncio.sleep(0)
    await tasks.end_early()
    assert ended == ["steward"]
    await tasks.end()
    assert ended == ["steward", "feed"]


async def test_what_no_answer_needs_is_heard_of_too(tasks: Tasks) -> None:
    tasks.keep("steward", failing(ClusterError("no right")), early=True)
    with pytest.raises(ClusterError, match="no right"):
        await watched(tasks)
