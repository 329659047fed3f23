"""How long a call takes, beside the extender in Go that does nothing.

Each body is about another pod and begins at another node, as the scheduler's do. A tenth of the
nodes is refused. Beside them stands what a call costs at least: one whose reply is known before.
Targets are for compact replies; full ones are timed after them, in processes of their own, so that
neither has the other's memory in the processor's caches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count as numbers
from statistics import median

import aiohttp

from tests.bench import calling, constant, fleets
from tests.bench.figures import Figure, compared
from tests.bench.houses import House

ROUNDS = 5
FULL_ROUNDS = 3
WARMUP = 40
CALLS = {500: 600, 5000: 250}
P50_SHARE = {500: 0.8, 5000: 0.6}
P99_SHARE = 1.0
VERBS = ("filter", "prioritize")

_numbers = numbers()


async def measure(house: House) -> list[Figure]:
    return await _compact(house) + await _full(house)


async def _compact(house: House) -> list[Figure]:
    figures: list[Figure] = []
    async with house.fettle_on_snapshot("compact") as fettle, house.echo() as echo:
        for size in CALLS:
            replies = {verb: await _reply(fettle.extender_url, verb, size) for verb in VERBS}
            folder = house.folder / f"constant-{size}"
            async with constant.serving(folder, replies) as floor:
                for verb in VERBS:
                    urls = [f"{url}/{verb}" for url in (fettle.extender_url, echo.url, floor)]
                    figures += await _apart(house, urls, verb, size)
    return figures


async def _full(house: House) -> list[Figure]:
    figures: list[Figure] = []
    async with house.fettle_on_snapshot("full") as fettle, house.echo() as echo:
        for size in CALLS:
            refused = size // fleets.REFUSED_EVERY
            for verb, listed in (("filter", (size - refused, refused)), ("prioritize", (size, 0))):
                urls = [f"{url}/{verb}" for url in (fettle.extender_url, echo.url)]
                rounds = await _rounds(house, urls, size, FULL_ROUNDS)
                _check(verb, size, rounds[-1][0], listed)
                figures += _figures(f"{verb}, {size} names, full replies", rounds, (0, 1))
    return figures


async def _reply(url: str, verb: str, size: int) -> bytes:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/{verb}", data=_body(next(_numbers), size)) as reply,
    ):
        return await reply.read()


async def _apart(house: House, urls: Sequence[str], verb: str, size: int) -> Iterable[Figure]:
    """One verb alone, about names of which a tenth is refused."""
    rounds = await _rounds(house, urls, size, ROUNDS)
    # Compact replies leave the refused out, and list only unusual scores.
    refused = size // fleets.REFUSED_EVERY
    _check(verb, size, rounds[-1][0], (size - refused if verb == "filter" else refused, 0))
    name = f"{verb}, {size} names"
    figures = list(_figures(name, rounds, (0, 1), size))
    floor = median(outcomes[2].p50_ms for outcomes in rounds)
    baseline = figures[0].baseline
    figures.append(Figure(f"{name}: the reply known beforehand, p50", floor, "ms", baseline))
    return figures


async def _rounds(
    house: House, urls: Sequence[str], size: int, count: int
) -> list[list[calling.Outcome]]:
    rounds = []
    for _ in range(count):
        bodies = (_body(next(_numbers), size) for _ in range(WARMUP + CALLS[size]))
        rounds.append(await _call(house, urls, bodies, size))
    return rounds


async def _call(
    house: House, urls: Sequence[str], bodies: Iterable[bytes], size: int
) -> list[calling.Outcome]:
    return await calling.alternate(house.binary, urls, bodies, count=CALLS[size], warmup=WARMUP)


def _figures(
    name: str,
    rounds: Sequence[Sequence[calling.Outcome]],
    which: tuple[int, int],
    size: int | None = None,
) -> Iterator[Figure]:
    """Ours and the do-nothing extender's, by their places among the outcomes; with targets where a
    size is given."""
    shares = (P50_SHARE[size], P99_SHARE) if size is not None else (None, None)
    for percentile, share in zip(("p50", "p99"), shares, strict=True):
        ours, theirs = compared(
            *([getattr(outcomes[i], f"{percentile}_ms") for outcomes in rounds] for i in which)
        )
        target = share * theirs if share is not None else None
        yield Figure(f"{name}, {percentile}", ours, "ms", theirs, target)


def _body(number: int, size: int) -> bytes:
    """Another pod, and the names from another start on, as the scheduler takes them."""
    names = fleets.names_spread(size)
    start = number * 17 % size
    return fleets.body(f"train-{number}", names[start:] + names[:start])


def _check(verb: str, size: int, outcome: calling.Outcome, expected: tuple[int, int]) -> None:
    """That the work was done which is being timed: so many nodes listed, and refused by name."""
    if (outcome.allowed, outcome.refused) != expected:
        raise calling.CallFailed(
            f"{verb} of {size} names listed {outcome.allowed} and refused {outcome.refused} by name"
        )
