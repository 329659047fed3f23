"""Outcomes of Kubernetes' own CEL evaluator, read in place: none may be contradicted.

`FETTLE_CONFORMANCE` names the folder; by default it is `shared/conformance` beside the repository.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fettle.cel.language.environment import STORED, Environment
from tests.conformance.selection import answer
from tests.oracle import features

FOLDER = Path(
    os.environ.get("FETTLE_CONFORMANCE")
    or Path(__file__).parents[2].parent / "shared" / "conformance"
)
FILES = sorted(FOLDER.glob("cel_*.json"))
MOST_UNDECIDED = 0.03

Case = dict[str, Any]


def environment(case: Case, seen: Case) -> Environment:
    """What the expression was compiled for: as stored, or as newly written under feature gates."""
    if case.get("envType", "StoredExpressions") == "StoredExpressions":
        return STORED
    lists = seen.get("listTypeAttributes")
    return Environment(bool(case.get("enableConsumableCapacity")), bool(lists))


def device(case: Case, content: Case) -> Case:
    """What a case is about: a device of its own, as a rule, or that of its file."""
    own = {"driver", "attributes", "capacity", "allowMultipleAllocations"} & case.keys()
    return case if own or "device" not in content else content["device"]


def expected(seen: Case) -> str:
    if seen.get("compileError"):
        return "compile_error"
    if seen.get("matchError"):
        return "runtime_error"
    return "match" if seen.get("match") else "no_match"


def verdict(case: Case, device: Case) -> tuple[str, str]:
    """`right`, `undecided` or `wrong` over all that Kubernetes said of a case, and the detail."""
    for seen in case.get("observed") or [case]:
        given = answer(case["expression"], device, environment(case, seen))
        if given.startswith("undecided"):
            return "undecided", given
        if given != expected(seen):
            return "wrong", f"{case['expression'][:200]}: {given}, Kubernetes: {expected(seen)}"
    return "right", ""


@pytest.mark.skipif(not FILES, reason=f"no cel_*.json in {FOLDER}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_outcome_contradicts_kubernetes(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    verdicts = [verdict(case, device(case, content)) for case in content["cases"]]
    figures = Counter(kind for kind, _ in verdicts)
    right, undecided, wrong = (figures[kind] for kind in ("right", "undecided", "wrong"))
    with capsys.disabled():
        print()
        for case, (kind, detail) in zip(content["cases"], verdicts, strict=True):
            if kind == "undecided":
                print(f"  {detail}: {', '.join(sorted(features.used(case['expression'])))}")
        print(f"{path.stem}: {right} right, {undecided} undecided, {wrong} wrong")
    assert [detail for kind, detail in verdicts if kind == "wrong"] == []
    unknown = [d for kind, d in verdicts if kind == "undecided" and not features.is_known(d)]
    assert unknown == [], "undecided for a reason that is not documented"
    assert undecided <= MOST_UNDECIDED * len(verdicts)
