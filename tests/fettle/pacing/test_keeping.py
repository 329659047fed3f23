"""Something is done again and again, whatever it raises, and it is said while it fails."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise

from structlog.testing import capture_logs

from fettle.pacing import KeptPart, KeptParts, Pauses, keep, part
from tests.waiting import until

KeptBy = Callable[[Pauses], KeptParts]


class Looks:
    """Fails on those looks that it is told to fail on."""

    def __init__(self, *fails: int) -> None:
        self.count = 0
        self._fails = fails

    async def look(self) -> None:
        self.count += 1
        if self.count in self._fails:
            raise KeyError(f"look {self.count}")

    async def reach(self, count: int) -> None:
        await until(lambda: self.count >= count)


@asynccontextmanager
async def kept(task: asyncio.Task[None]) -> AsyncIterator[None]:
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()


async def test_a_failure_is_counted_and_the_next_look_comes(parts: KeptParts) -> None:
    looks = Looks(1, 2, 4)
    async with kept(asyncio.create_task(keep("marks", looks.look))):
        await looks.reach(6)
    (one,) = parts
    assert (one.name, one.errors, one.problem) == ("marks", 3, "")


async def test_while_it_fails_the_notes_name_it_and_why(parts: KeptParts) -> None:
    looks = Looks(*range(1, 6))
    async with kept(asyncio.create_task(keep("marks", looks.look))):
        await until(lambda: parts.notes() == ["failing: marks: KeyError('look 4')"])
        await until(lambda: parts.notes() == [])


async def test_each_run_of_failures_is_logged_once_with_its_traceback(
    kept_by: KeptBy,
) -> None:
    kept_by(Pauses(first_s=0.01, longest_s=0.02, logged_every_s=0.0))
    looks = Looks(1, 2, 3, 6, 7)
    with capture_logs() as logs:
        async with kept(asyncio.create_task(keep("marks", looks.look))):
            await looks.reach(9)
    assert [str(one["exc_info"]) for one in logs] == ["'look 1'", "'look 6'"]
    assert {one["part"] for one in logs} == {"marks"}


async def test_what_fails_now_and_then_does_not_fill_the_log(parts: KeptParts) -> None:
    looks = Looks(*range(1, 20, 2))
    with capture_logs() as logs:
        async with kept(asyncio.create_task(keep("marks", looks.look))):
            await looks.reach(20)
    assert len(logs) == 1
    assert [one.errors for one in parts] == [10]


async def test_after_a_failure_it_looks_again_though_nothing_wakes_it() -> None:
    looks, news = Looks(2, 3), asyncio.Event()

    async def wait() -> None:
        await news.wait()
        news.clear()

    async with kept(asyncio.create_task(keep("marks", looks.look, when=wait))):
        for count in (1, 4, 5):
            await asyncio.sleep(0.02)
            news.set()
            await looks.reach(count)
            await asyncio.sleep(0.05)
            assert looks.count == count


async def test_a_wait_that_fails_is_kept_too(parts: KeptParts) -> None:
    looks = Looks()

    async def wait() -> None:
        raise KeyError("wait")

    async with kept(asyncio.create_task(keep("marks", looks.look, when=wait))):
        await looks.reach(3)
    assert next(iter(parts)).errors >= 2


async def test_a_look_that_lasts_counts_as_one_that_succeeded(
    kept_by: KeptBy,
) -> None:
    parts = kept_by(Pauses(first_s=0.01, longest_s=0.02, goes_on_s=0.02))
    tries = 0

    async def read() -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise KeyError("at first")
        await asyncio.Event().wait()

    async with kept(asyncio.create_task(keep("reading", read))):
        await until(lambda: bool(parts.notes()))
        await until(lambda: not parts.notes())
    assert tries == 2


async def test_pauses_grow_up_to_a_bound_and_begin_anew_after_a_success(
    kept_by: KeptBy,
) -> None:
    kept_by(Pauses(first_s=0.02, longest_s=0.08))
    began, times = asyncio.get_running_loop().time(), []
    looks = Looks(1, 2, 3, 4, 6)

    async def look() -> None:
        times.append(asyncio.get_running_loop().time() - began)
        await looks.look()

    async with kept(asyncio.create_task(keep("marks", look))):
        await looks.reach(7)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    for pause, least in zip(pauses, (0.02, 0.04, 0.08, 0.08, 0.0, 0.02), strict=False):
        assert least <= pause + 0.001


async def test_who_does_not_do_it_any_more_does_not_fail_at_it(parts: KeptParts) -> None:
    looks = Looks(*range(1, 1000))
    async with kept(asyncio.create_task(keep("marks", looks.look))):
        await until(lambda: bool(parts.notes()))
    assert parts.notes() == []
    assert all(one.errors for one in parts)


async def test_each_process_has_its_own_parts() -> None:
    processes = [KeptParts(), KeptParts()]

    async def start(parts: KeptParts) -> KeptPart:
        parts.enter()
        return part("marks", lambda: None)

    made = [await asyncio.create_task(start(parts)) for parts in processes]
    assert [[*parts] for parts in processes] == [[one] for one in made]


def test_what_is_attempted_and_fails_is_noted_and_its_caller_goes_on(parts: KeptParts) -> None:
    objects = {"a": 1}
    one = part("objects", objects.__getitem__)
    one.attempt("b")
    assert (one.errors, parts.notes()) == (1, ["failing: objects: KeyError('b')"])
    one.attempt("a")
    assert (one.errors, parts.notes()) == (1, [])


def test_of_two_parts_of_one_name_each_does_its_own_and_the_count_goes_on(parts: KeptParts) -> None:
    done: list[str] = []
    first, second = part("marks", done.append), part("marks", {}.__getitem__)
    second.attempt("a")
    first.attempt("b")
    assert (done, [one.errors for one in parts]) == (["b"], [1])
    assert part("marks", done.append).errors == 1


def test_of_steps_those_before_a_failure_are_done(parts: KeptParts) -> None:
    def steps(last: int) -> Iterator[None]:
        for number in range(3):
            if number == last:
                raise KeyError(number)
            yield

    one = part("nodes", steps)
    assert len([*one.attempt_steps(2)]) == 2
    assert parts.notes() == ["failing: nodes: KeyError(2)"]
    assert len([*one.attempt_steps(9)]) == 3
    assert parts.notes() == []
