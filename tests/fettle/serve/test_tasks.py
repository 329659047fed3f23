"""The tasks of a process: the failure or end of any of them is raised."""

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


async def test_the_failure_of_a_late_task_is_raised_too(tasks: Tasks) -> None:
    tasks.keep("feed", for_ever())

    async def begin_another() -> None:
        tasks.keep("events", failing(ValueError("no JSON")))

    asyncio.get_running_loop().call_later(0.02, lambda: tasks.open("webhook", begin_another()))
    with pytest.raises(FettleError, match=r"the events failed: ValueError\('no JSON'\)") as caught:
        await watched(tasks)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_failure_before_the_watch_is_raised_by_the_watch(tasks: Tasks) -> None:
    tasks.keep("feed", failing(ClusterError("it is gone")))
    await asyncio.sleep(0.01)
    with pytest.raises(ClusterError, match=r"^it is gone$"):
        await watched(tasks)


async def test_a_kept_task_that_ends_by_itself_is_a_failure(tasks: Tasks) -> None:
    tasks.keep("feed", briefly())
    with pytest.raises(FettleError, match="the feed stopped unexpectedly"):
        await watched(tasks)


async def test_an_opening_task_may_end_but_not_fail(tasks: Tasks) -> None:
    tasks.open("extender", briefly())
    tasks.open("webhook", failing(ClusterError("no port"), after_s=0.02))
    with pytest.raises(ClusterError, match="no port"):
        await watched(tasks)


async def test_the_first_failure_is_raised(tasks: Tasks) -> None:
    for why in ("first", "second"):
        tasks.keep(why, failing(ClusterError(why)))
    await asyncio.sleep(0.01)
    with pytest.raises(ClusterError, match="first"):
        await watched(tasks)


async def test_the_end_waits_for_the_last_task(tasks: Tasks) -> None:
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


async def test_early_tasks_are_cancelled_first(tasks: Tasks) -> None:
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


async def test_the_failure_of_an_early_task_is_raised_too(tasks: Tasks) -> None:
    tasks.keep("steward", failing(ClusterError("no right")), early=True)
    with pytest.raises(ClusterError, match="no right"):
        await watched(tasks)
