"""What tests set, they hand over as an argument: few still patch a constant or function of ours.
What they share lies in modules without tests: few still import it from another test module."""

import ast
from pathlib import Path

MOST = 53
"""Left from before. Take some away; a new one is an argument instead. What belongs to Python or to
others, such as the clock of a library, may be patched, and counts too."""
MOST_SHARED = 65
"""Imports from test modules, left from before. A new builder goes beside the tests."""


def test_no_more_constants_are_patched_than_before() -> None:
    found = [
        f"{file}:{call.lineno}"
        for file in sorted(Path(__file__).parent.rglob("*.py"))
        if ".setattr(" in (text := file.read_text(encoding="utf-8"))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("patch.setattr")
    ]
    assert len(found) <= MOST, found


def test_no_more_is_imported_from_test_modules_than_before() -> None:
    found = [
        f"{file}:{node.lineno}"
        for file in sorted(Path(__file__).parent.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for module in {node.module or "", *(f"{node.module}.{name.name}" for name in node.names)}
        if module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")
    ]
    assert len(found) <= MOST_SHARED, found
