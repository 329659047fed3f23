"""`fettle devices` without a server, against a real API server with 500 nodes and with 5000: from
the start of the command to its end."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from tests.bench import fleets
from tests.bench.figures import Figure
from tests.bench.houses import House

ROUNDS = 3
SMALL = 500
SMALL_S, LARGE_S = 3.0, 15.0


async def measure(house: House) -> list[Figure]:
    async with house.fresh_plane(SMALL) as plane:
        small_s = await _seconds(plane.tester_kubeconfig, house.folder)
    large_s = await _seconds((await house.plane()).tester_kubeconfig, house.folder)
    return [
        Figure(f"{SMALL} nodes: fettle devices, no server", small_s, "s", target=SMALL_S),
        Figure(f"{fleets.NODES} nodes: fettle devices, no server", large_s, "s", target=LARGE_S),
    ]


async def _seconds(kubeconfig: Path, folder: Path) -> float:
    compiled = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)
    await _listed(kubeconfig, compiled)  # which compiles them, once
    return median([await _listed(kubeconfig, compiled) for _ in range(ROUNDS)])


async def _listed(kubeconfig: Path, environment: Mapping[str, str]) -> float:
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fettle", "devices", "--kubeconfig", kubeconfig),
        stdout=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    if await process.wait():
        raise RuntimeError("fettle devices failed")
    return time.monotonic() - began
