"""Where the names of requests lie in memory."""

import random
from itertools import pairwise

from extender.names import TIDY_EVERY, Names
from fettle.api import extender as wire
from fettle.scheduling import Narrowed

NAMES = [f"gpu-h100-{number:05d}.zone-a.internal" for number in range(2000)]
NEAR = 256


def decoded() -> list[str]:
    body = b'{"Pod":{"metadata":{}},"NodeNames":["' + '","'.join(NAMES).encode() + b'"]}'
    names = wire.decode_args(body).node_names
    assert names == NAMES
    return names


def jumps(names: list[str]) -> int:
    """How often the next name lies somewhere else."""
    places = [id(name) for name in names]
    return sum(abs(a - b) > NEAR for a, b in pairwise(places))


def test_names_that_were_scattered_come_to_lie_in_a_row_again() -> None:
    names = decoded()
    random.Random(7).shuffle(names)
    del names
    assert jumps(decoded()) > len(NAMES) / 2
    memory = Names()
    for _ in range(2 * TIDY_EVERY):
        names = decoded()
        refused = set(random.Random(7).sample(names, 200))
        narrowed = Narrowed(names, [n for n in names if n not in refused])
        del refused
        memory.free(narrowed)
    assert jumps(decoded()) < len(NAMES) / 4


def test_freed_lists_are_empty_also_where_all_names_passed() -> None:
    names = decoded()
    narrowed = Narrowed(names, names)
    Names().free(narrowed)
    assert narrowed == ([], [])
