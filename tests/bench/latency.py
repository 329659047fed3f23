"""How long a call takes, beside the extender in Go that does nothing.

Each body is about another pod and begins at another node, as the scheduler's do. A tenth of the
nodes is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count as numbers
from statistics import median

from tests.bench import calling, fleets
from tests.bench.figures import Figure
from tests.bench.houses import House

ROUNDS = 5
WARMUP = 40
CALLS = {500: 600, 5000: 250}
P50_SHARE = {500: 0.8, 5000: 0.6}
P99_SHARE = 1.0

_numbers = numbers()


async def measure(house: House) -> list[Figure]:
    figures: list[Figure] = []
    async with house.fettle_on_snapshot() as fettle, house.echo() as echo:
        for verb in ("filter", "prioritize"):
            urls = (f"{fettle.extender_url}/{verb}", f"{echo.url}/{verb}")
            for size in CALLS:
                rounds = [await _fresh(house, urls, size) for _ in range(ROUNDS)]
                name = f"{verb}, {size} names"
                _check(verb, size, rounds[-1][0])
                figures += _figures(name, rounds, P50_SHARE[size], P99_SHARE)
    return figures


def _figures(
    name: str,
    rounds: list[list[calling.Outcome]],
    p50_share: float | None = None,
    p99_share: float | None = None,
) -> Iterator[Figure]:
    for percentile, share in (("p50", p50_share), ("p99", p99_share)):
        ours, theirs = (
            median(getattr(outcomes[i], f"{percentile}_ms") for outcomes in rounds) for i in (0, 1)
        )
        target = share * theirs if share is not None else None
        yield Figure(f"{name}, {percentile}", ours, "ms", theirs, target)


async def _fresh(house: House, urls: tuple[str, str], size: int) -> list[calling.Outcome]:
    bodies = (_body(next(_numbers), size) for _ in range(WARMUP + CALLS[size]))
    return await calling.alternate(house.binary, urls, bodies, count=CALLS[size], warmup=WARMUP)


def _body(number: int, size: int) -> bytes:
    """Another pod, and the names from another start on, as the scheduler takes them."""
    names = fleets.names_spread(size)
    start = number * 17 % size
    return fleets.body(f"train-{number}", names[start:] + names[:start])


def _check(verb: str, size: int, outcome: calling.Outcome) -> None:
    """That the work was done which is being timed."""
    refused = size // fleets.REFUSED_EVERY
    expected = (size - refused, refused) if verb == "filter" else (size, 0)
    if (outcome.allowed, outcome.refused) != expected:
        raise calling.CallFailed(
            f"{verb} of {size} names allowed {outcome.allowed} and refused {outcome.refused}"
        )
