"""Random cases asked of Kubernetes' own allocator and CEL: right, undecided, wrong.

`FETTLE_ORACLE_CASES` says how many of each; a million takes one or two hours. The seed is printed,
and `python -m tests.oracle` makes any case again and writes down what differs.
"""

from __future__ import annotations

import asyncio
import random
import sys

from tests.bench.cases import cases
from tests.bench.figures import Figure
from tests.bench.houses import House
from tests.controlplane import building
from tests.oracle.client import Oracle
from tests.oracle.expressions import Grammar
from tests.oracle.running import Tally, allocate, select

DEFAULT = 4000


async def measure(_house: House) -> list[Figure]:
    count = cases("oracle", DEFAULT)
    seed = f"{random.SystemRandom().getrandbits(32):08x}"
    return await asyncio.to_thread(_compared, seed, count)


def _compared(seed: str, count: int) -> list[Figure]:
    binary = building.binary()
    if binary is None:
        raise RuntimeError(building.GO_ABSENT)
    with Oracle(binary) as oracle:
        allocations = allocate(oracle, seed, count)
        # Each expression is asked about two devices, each answer counts.
        selectors = select(oracle, Grammar(), seed, count // 2)
    figures = []
    for name, tally in (("allocations", allocations), ("selectors", selectors)):
        print(tally.line(name), file=sys.stderr)
        figures += _figures(name, tally)
    return figures


def _figures(name: str, tally: Tally) -> list[Figure]:
    undecided = sum(tally.undecided.values())
    right = tally.cases - undecided - tally.wrong
    share = 100.0 * undecided / tally.cases
    return [
        Figure(f"{name}: as Kubernetes says", right, "cases"),
        Figure(f"{name}: undecided", share, "%", target=3.0),
        Figure(f"{name}: wrong", tally.wrong, "cases", target=0.0),
    ]
