"""`python -m tests.bench [section...]`: a missed target is a result, a section that cannot run is
an error."""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from tests.bench import (
    admission,
    allocation,
    attack,
    churn,
    claims,
    direct,
    evictions,
    figures,
    latency,
    linting,
    marks,
    measuring,
    mutants,
    oracle,
    page_delay,
    pages,
    partitions,
    refusals,
    remembering,
    saturation,
    scale,
    sources,
    taints,
    throughput,
    verdicts,
)
from tests.bench.houses import House

RESULTS = Path(__file__).parents[2] / "build" / "bench.json"

SECTIONS: Mapping[str, Callable[[House], Awaitable[list[figures.Figure]]]] = {
    "verdicts": verdicts.measure,
    "allocation": allocation.measure,
    "refusals": refusals.measure,
    "latency": latency.measure,
    "attack": attack.measure,
    "scale": scale.measure,
    "direct": direct.measure,
    "memory": remembering.measure,
    "metrics": measuring.measure,
    "sources": sources.measure,
    "taints": taints.measure,
    "marks": marks.measure,
    "evictions": evictions.measure,
    "partitions": partitions.measure,
    "churn": churn.measure,
    "claims": claims.measure,
    "pages": pages.measure,
    "page-delay": page_delay.measure,
    "throughput": throughput.measure,
    "unasked": throughput.measure_unasked,
    "saturation": saturation.measure,
    "admission": admission.measure,
    "mutants": mutants.measure,
    "linting": linting.measure,
    "oracle": oracle.measure,
}


async def _measure(names: Sequence[str], folder: Path) -> tuple[list[figures.Figure], list[str]]:
    """The figures of these sections, and the names of those that could not run."""
    measured: list[figures.Figure] = []
    failed: list[str] = []
    async with House(folder) as house:
        for name in names:
            began = time.monotonic()
            print(f"{name} ...", file=sys.stderr, flush=True)
            try:
                measured += await SECTIONS[name](house)
            except Exception:
                traceback.print_exc()
                failed.append(name)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return measured, failed


def main(arguments: Sequence[str]) -> int:
    names = list(arguments) or list(SECTIONS)
    if unknown := [name for name in names if name not in SECTIONS]:
        print(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    with TemporaryDirectory(prefix="fettle-bench-") as folder:
        measured, failed = asyncio.run(_measure(names, Path(folder)))
    console = Console(width=None if sys.stdout.isatty() else 120)
    figures.show(measured, console)
    figures.write(measured, RESULTS)
    print(f"written to {RESULTS}")
    if failed:
        print(f"could not run: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
