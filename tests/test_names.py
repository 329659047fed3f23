"""Names of the code's own: a public class is called what no other is."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_two_public_classes_have_one_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for package in ("fettle", "extender", "webhook", "certs"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
