"""How tests wait, with a bound."""

import asyncio
from collections.abc import Callable

PATIENCE_S = 20.0
"""Longer than anything takes here, on a loaded machine too."""


async def until(true: Callable[[], object]) -> None:
    """Returns once something is true; raises TimeoutError if it does not become so."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.005)
