"""`python -m tests.bench.attackers NUMBER PORT...`: does the first so many things that the soak
does to listeners, to each of these ports at once, until it is ended.

At the lowest priority: a machine of two processors is also that of the scheduler's stand-in, and
what is to be measured is only what Fettle does for attackers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from random import Random

from tests.soak.attacks import AT_LISTENERS


async def attack(kinds: int, ports: Sequence[int]) -> None:
    async def again_and_again(number: int, port: int) -> None:
        random = Random(number)
        while True:
            await AT_LISTENERS[number](port, random)

    numbers = range(kinds)
    await asyncio.gather(*(again_and_again(number, port) for number in numbers for port in ports))


if __name__ == "__main__":
    os.nice(19)
    first, *others = map(int, sys.argv[1:])
    asyncio.run(attack(first, others))
