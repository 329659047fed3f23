"""How far work on one node may go, and that others have their turn meanwhile.

All that takes long in the allocator is a generator: it yields after each small piece of work, some
microseconds each, and never knows what time it is. Here pieces are made into stretches, after which
those who drive the generator may do something else; and what takes too long is ended.
"""

import time
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

import msgspec

from fettle.dra.allocator.outcomes import Unfinished
from fettle.pacing import SLICE_S, pause

Clock = Callable[[], float]
T = TypeVar("T")

Work = Generator[None, None, T]
"""What comes to a T in small pieces."""

STRETCH_S = SLICE_S / 3
"""So long others wait between two pauses, and the last piece; theirs is not the only work."""


class Budget(msgspec.Struct, frozen=True):
    """How far one search may go: steps as upstream counts them, and seconds of work, of whatever
    kind.

    After `prune_after` devices that were taken in vain it is asked whether going on is of any use;
    None: never.
    """

    steps: int = 20_000
    seconds: float = 0.25
    prune_after: int | None = 16


AMPLE = Budget()


def paced(work: Work[T], seconds: float, clock: Clock = time.perf_counter) -> Work[T]:
    """The same work in stretches; raises Unfinished where all of them take longer."""
    spent, since = 0.0, clock()
    while True:
        try:
            next(work)
        except StopIteration as end:
            returned: T = end.value
            return returned
        if (took := clock() - since) > STRETCH_S:
            spent += took
            if spent > seconds:
                work.close()
                raise Unfinished(f"no result within {seconds:g} s")
            yield
            since = clock()


def each(works: Iterable[Work[T]]) -> Work[list[T]]:
    """What all of them come to, one after the other."""
    results: list[T] = []
    for work in works:
        results.append((yield from work))  # noqa: PERF401  a comprehension cannot pause
    return results


def run(work: Work[T]) -> T:
    """What the work comes to, where it is not to be had in stretches: with a pause after each if it
    is part of what goes `in_slices`."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            returned: T = end.value
            return returned
        pause()
