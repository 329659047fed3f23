"""`python -m tests.oracle`: many random cases against Kubernetes' own code, until told to stop.

The last lines say how many were wrong or undecided; each difference is printed with its number,
and `--first N --cases 1` with the same seed makes that one again.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.controlplane import building
from tests.oracle.client import Oracle
from tests.oracle.costly import Costly
from tests.oracle.expressions import Grammar
from tests.oracle.running import Tally, allocate, select

PARTS = ("allocation", "cel", "costly")


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--cases", type=int, default=100_000, help="of each part")
    parser.add_argument("--seed", default=None, help="default: a fresh one, which is printed")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--write", type=Path, help="folder for the differences, one file each")
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    arguments = _arguments(given)
    seed = arguments.seed or f"{random.SystemRandom().getrandbits(32):08x}"
    binary = building.binary()
    if binary is None:
        print(building.GO_ABSENT, file=sys.stderr)
        return 2
    wrong = 0
    with Oracle(binary) as oracle:
        for part in arguments.parts or PARTS:
            print(f"{part}: seed {seed}", flush=True)
            if part == "allocation":
                tally = allocate(oracle, seed, arguments.cases, first=arguments.first)
            else:
                grammar = Costly() if part == "costly" else Grammar()
                tally = select(oracle, grammar, seed, arguments.cases, first=arguments.first)
            _tell(part, tally, arguments.write)
            wrong += tally.wrong
    return bool(wrong)


def _tell(part: str, tally: Tally, folder: Path | None) -> None:
    for found in tally.found:
        text = msgspec.json.format(msgspec.json.encode(found)).decode()
        print(text)
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{part}_{tally.seed}_{found.number}.json").write_text(text + "\n")
    print(tally.line(part), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
