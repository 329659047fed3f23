"""Outcomes of Kubernetes' own allocator, read in place: none may be contradicted, step for step.

`FETTLE_CONFORMANCE` names the folder; by default it is `shared/conformance` beside the repository.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.conformance.allocation import GATES, agree, answer, expected, gates

FOLDER = Path(
    os.environ.get("FETTLE_CONFORMANCE")
    or Path(__file__).parents[2].parent / "shared" / "conformance"
)
FILES = sorted(FOLDER.glob("allocator_*.json"))
MODELLED = GATES.keys() - {
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAOptionalNodeOperations",
}
"""But for alpha gates of 1.37 and gates of later versions: what needs those may be undecided."""


@pytest.mark.skipif(not FILES, reason=f"no allocator_*.json in {FOLDER}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_allocation_contradicts_kubernetes(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures: Counter[str] = Counter()
    wrong: list[str] = []
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        said, wanted = answer(case), expected(case)
        told = f"{case['name']}: {said.kind} ({said.reason}) after {said.steps}, not {wanted}"
        if said.kind == "undecided":
            figures["undecided"] += 1
            if gates(case) <= MODELLED:
                wrong.append(told)
        elif agree(case, said, wanted) and said.steps == wanted.steps:
            figures["right"] += 1
        else:
            figures["wrong"] += 1
            wrong.append(told)
    with capsys.disabled():
        right, undecided = figures["right"], figures["undecided"]
        print(f"\n{path.stem}: {right} right, {undecided} undecided, {figures['wrong']} wrong")
    assert not wrong


@pytest.mark.skipif(not FILES, reason=f"no allocator_*.json in {FOLDER}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_ending_hopeless_searches_early_changes_no_outcome(path: Path) -> None:
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        whole, pruned = answer(case), answer(case, prune=True)
        assert agree(case, whole, pruned), case["name"]
        assert pruned.steps <= whole.steps
