"""Makes `fettle/cli/linting/examples.json` from the tables: of each rule a mistake, and what is
different in a near miss. `python -m tests.fettle.lint.examples` writes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import ndiff
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from tests.fettle.lint.builders import Object
from tests.fettle.lint.tables.case import Case
from tests.fettle.lint.tables.refused import (
    CUSTOM,
    JUDGED,
    JUDGED_BY_JOB_SET,
    JUDGED_BY_LEADER_WORKER_SET,
    STATED,
    WARNED_OF,
    Refused,
)
from tests.fettle.lint.tables.refused_details import DETAILS
from tests.fettle.lint.test_tables import CASES

FILE = Path(__file__).parents[3] / "fettle" / "cli" / "linting" / "examples.json"
_ROWS: tuple[Case | Refused, ...] = (
    *CASES,
    *JUDGED,
    *DETAILS,
    *JUDGED_BY_JOB_SET,
    *JUDGED_BY_LEADER_WORKER_SET,
    *WARNED_OF,
    *CUSTOM,
    *STATED,
)
_MOST_LINES, _LONGEST = 45, 1500
"""Longer ones say little."""


def examples() -> dict[str, dict[str, str]]:
    """By rule: `what` is wrong, the `wrong` object, and the lines that `differ` in a sound one."""
    return {rule: made for rule in sorted({row.rule for row in _ROWS}) if (made := _of(rule))}


def _of(rule: str) -> dict[str, str]:
    rows = [row for row in _ROWS if row.rule == rule]
    pairs = product([r for r in rows if r.says], [r for r in rows if not r.says])
    made = [
        (len(differ), len(wrong), str(bad), {"what": bad.what, "wrong": wrong, "differ": differ})
        for bad, good in pairs
        if bad.object["kind"] == good.object["kind"]
        for wrong in [_text(bad.object)]
        for differ in ["\n".join(_differing(wrong, _text(good.object)))]
        if differ and wrong.count("\n") < _MOST_LINES and len(wrong) + len(differ) < _LONGEST
    ]
    return min(made, key=lambda one: one[:3])[3] if made else {}


def _text(made: Object) -> str:
    plain = _plain(json.loads(json.dumps(made)))
    plain.get("metadata", {}).pop("namespace", None)
    return yaml.safe_dump(plain, sort_keys=False, width=90).rstrip()


def _plain(value: Any) -> Any:
    """Without what builders of tests add to each pod."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: _plain(one) for key, one in value.items()}
    return {key: one for key, one in made.items() if (key, one) not in _ADDED}


_ADDED: tuple[tuple[str, Any], ...] = (
    ("labels", {}),
    ("annotations", {}),
    ("terminationGracePeriodSeconds", 1),
    ("requests", {"cpu": "100m"}),
    ("resources", {}),
    ("metadata", {}),
)


def _differing(wrong: str, sound: str) -> Iterator[str]:
    for line in ndiff(wrong.splitlines(), sound.splitlines()):
        if line.startswith(("- ", "+ ")):
            yield line


def written() -> str:
    return json.dumps(examples(), indent=0, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
