"""`python -m tests.oracle.keeping` writes `cases/`: small cases, and what Kubernetes says of them.

They show without Go what the random cases show with it. What once differed is written into
`cases/differences.json` by hand, with anything for `expected`; this fills it in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tests.controlplane import building
from tests.oracle import allocations
from tests.oracle.client import Allocated, Oracle
from tests.oracle.expressions import Grammar, device
from tests.oracle.grammar import TEMPLATES
from tests.oracle.requests import TOPICS
from tests.oracle.running import allocation_case

Json = dict[str, Any]
FOLDER = Path(__file__).parent / "cases"
SEED = "kept"
TRIED = 6000


def read(name: str) -> list[Json]:
    kept: list[Json] = msgspec.json.decode((FOLDER / name).read_bytes())
    return kept


def write(name: str, kept: Iterable[Json]) -> None:
    """One case a line."""
    lines = b",\n".join(msgspec.json.encode(case) for case in kept)
    (FOLDER / name).write_bytes(b"[\n" + lines + b"\n]\n")


def allocation_cases(oracle: Oracle) -> list[Json]:
    """For each topic and each way to end, the smallest case found."""
    smallest: dict[tuple[str, str], Json] = {}
    cases = [allocation_case(SEED, number) for number in range(TRIED)]
    for case, said in zip(cases, oracle.allocations(cases), strict=True):
        if said.interrupted or said.panic:
            continue
        kept = {"case": case, "expected": _told(said)}
        for topic in case["topics"]:
            key = (topic, _ending(case, said))
            if key not in smallest or _size(kept) < _size(smallest[key]):
                smallest[key] = kept
    assert {topic for topic, _ in smallest} == set(TOPICS)
    unique = {msgspec.json.encode(kept): kept for kept in smallest.values()}
    return list(unique.values())


def _told(said: Allocated) -> Json:
    return {"results": said.results, "error": said.error, "steps": said.steps}


def _ending(case: Json, said: Allocated) -> str:
    if said.error:
        return "error"
    if said.results is None:
        return "none after a search" if said.steps > 4 else "none"
    straight = allocations.straight(case, said.results)
    return "fits" if said.steps == straight else "fits after going back"


def _size(kept: Json) -> int:
    return len(msgspec.json.encode(kept))


def selections(oracle: Oracle) -> list[Json]:
    """For each function and operator, the shortest expression found that has a value, or any."""
    shortest: dict[str, tuple[bool, int, Json]] = {}
    for number in range(TRIED):
        random, grammar = Random(f"{SEED}:{number}"), Grammar()
        expression, on = grammar.expression(random), device(random)
        said = oracle.select(expression, [on])
        if said.panic:
            continue
        (word,) = said.words()
        kept = {"expression": expression, "device": on, "expected": word}
        rank = (word not in ("match", "no_match"), len(expression), kept)
        for template in grammar.used:
            if template not in shortest or rank[:2] < shortest[template][:2]:
                shortest[template] = rank
    assert set(shortest) == {t for templates in TEMPLATES.values() for t in templates}
    unique = {kept["expression"]: kept for _, _, kept in shortest.values()}
    return list(unique.values())


def differences(oracle: Oracle) -> list[Json]:
    asked: list[Json] = []
    for kept in read("differences.json"):
        if "case" in kept:
            asked.append({**kept, "expected": _told(oracle.allocate(kept["case"]))})
        else:
            (word,) = oracle.select(kept["expression"], [kept["device"]]).words()
            asked.append({**kept, "expected": word})
    return asked


def main() -> int:
    binary = building.binary()
    if binary is None:
        print(building.GO_ABSENT, file=sys.stderr)
        return 2
    with Oracle(binary) as oracle:
        write("allocations.json", allocation_cases(oracle))
        write("selections.json", selections(oracle))
        write("differences.json", differences(oracle))
    return 0


if __name__ == "__main__":
    sys.exit(main())
