"""The tasks of a process: whichever ends is heard of."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fettle.cli.parts import Parts
from fettle.errors import ClusterError, FettleError


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    made = Parts()
    yield made
    await made.end()


async def for_ever() -> None:
    await asyncio.Event().wait()


async def failing(error: Exception, after_s: float = 0.0) -> None:
    await asyncio.sleep(after_s)
    raise error


async def briefly() -> None:
    await asyncio.sleep(0)


async def watched(parts: Parts) -> None:
    async with asyncio.timeout(20):
        await parts.watch()


async def test_a_part_that_begins_late_is_heard_of_too(parts: Parts) -> None:
    parts.keep("feed", for_ever())

    async def begin_another() -> None:
        parts.keep("events", failing(ValueError("no JSON")))

    asyncio.get_running_loop().call_later(0.02, lambda: parts.open("webhook", begin_another()))
    with pytest.raises(FettleError, match=r"the events failed: ValueError\('no JSON'\)") as caught:
        await watched(parts)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_part_that_failed_before_anybody_watched_is_heard_of(parts: Parts) -> None:
    parts.keep("feed", failing(ClusterError("it is gone")))
    await asyncio.sleep(0.01)
    with pytest.raises(ClusterError, match=r"^it is gone$"):
        await watched(parts)


async def test_a_part_that_comes_to_its_end_is_heard_of(parts: Parts) -> None:
    parts.keep("feed", briefly())
    with pytest.raises(FettleError, match="the feed stopped unexpectedly"):
        await watched(parts)


async def test_what_opens_may_come_to_its_end_but_not_fail(parts: Parts) -> None:
    parts.open("extender", briefly())
    parts.open("webhook", failing(ClusterError("no port"), after_s=0.02))
    with pytest.raises(ClusterError, match="no port"):
        await watched(parts)


async def test_the_first_failure_is_told(parts: Parts) -> None:
    for why in ("first", "second"):
        parts.keep(why, failing(ClusterError(why)))
    await asyncio.sleep(0.01)
    with pytest.raises(ClusterError, match="first"):
        await watched(parts)


async def test_ending_waits_for_the_last_of_them(parts: Parts) -> None:
    ended = []

    async def tidy(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append(name)

    parts.open("webhook", tidy("webhook"))
    parts.keep("feed", tidy("feed"))
    await asyncio.sleep(0)
    await parts.end_openings()
    assert ended == ["webhook"]
    await parts.end()
    assert ended == ["webhook", "feed"]


async def test_what_no_answer_needs_is_ended_first(parts: Parts) -> None:
    ended = []

    async def tidy(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    parts.keep("feed", tidy("feed"))
    parts.keep("steward", tidy("steward"), early=True)
    await asyncio.sleep(0)
    await parts.end_early()
    assert ended == ["steward"]
    await parts.end()
    assert ended == ["steward", "feed"]


async def test_what_no_answer_needs_is_heard_of_too(parts: Parts) -> None:
    parts.keep("steward", failing(ClusterError("no right")), early=True)
    with pytest.raises(ClusterError, match="no right"):
        await watched(parts)
