"""Outcomes of Kubernetes' own evaluator, read in place: none may be contradicted.

`FETTLE_CONFORMANCE` names the folder; by default it is `shared/conformance` beside the repository.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fettle.selectors import rows
from fettle.selectors.engine import SelectorEngine
from fettle.selectors.outcomes import Kind
from fettle.wire.resource import Device
from tests.fettle.selectors.devices import device

FOLDER = Path(
    os.environ.get("FETTLE_CONFORMANCE")
    or Path(__file__).parents[3].parent / "shared" / "conformance"
)
FILES = sorted(FOLDER.glob("cel_*.json"))


def _device(case: dict[str, Any]) -> tuple[str, Device]:
    more = {"allowMultipleAllocations": case.get("allowMultipleAllocations")}
    return case.get("driver", ""), device(case.get("attributes"), case.get("capacity"), **more)


def _expected(case: dict[str, Any]) -> Kind | None:
    """What Kubernetes made of it; None where it was not asked as the scheduler asks."""
    if case.get("envType", "StoredExpressions") != "StoredExpressions":
        return None
    seen = case["observed"][-1] if "observed" in case else case
    if seen.get("compileError") or seen.get("matchError"):
        return Kind.WOULD_ABORT
    return Kind.MATCH if seen["match"] else Kind.NO_MATCH


@pytest.mark.skipif(not FILES, reason=f"no cel_*.json in {FOLDER}")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_no_outcome_contradicts_kubernetes(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    figures: Counter[str] = Counter()
    wrong: list[str] = []
    engine = SelectorEngine()
    try:
        for case in content["cases"]:
            driver, of = _device(case if "attributes" in case else content["device"])
            expected, expression = _expected(case), case["expression"]
            await engine.evaluate([expression], [(driver, of)])
            outcome = engine.outcome(expression, driver, of)
            assert outcome is not None
            if expected is None or outcome.undecided:
                figures["undecided"] += 1
            elif outcome.kind is expected:
                figures["right"] += 1
            else:
                figures["wrong"] += 1
                wrong.append(f"{expression[:200]}: {outcome}, Kubernetes: {expected}")
    finally:
        await engine.close()
    with capsys.disabled():
        right, undecided = figures["right"], figures["undecided"]
        print(f"\n{path.stem}: {right} right, {undecided} undecided, {figures['wrong']} wrong")
    assert not wrong


def test_the_data_says_what_a_device_is() -> None:
    assert rows.problem(*_device({"driver": "d", "attributes": {"a": {"int": 1}}})) == ""
