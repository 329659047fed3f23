"""What tests set, they hand over as an argument: few still patch a constant or function of ours.
What they share lies in modules without tests: few still import it from another test module. They
see what others see: few still look at a private member. What was decided is a value or a code: few
still assert a whole sentence."""

import ast
from collections.abc import Iterator
from pathlib import Path

MOST = 53
"""Left from before. Take some away; a new one is an argument instead. What belongs to Python or to
others, such as the clock of a library, may be patched, and counts too."""
MOST_SHARED = 61
"""Imports from test modules, left from before. A new builder goes beside the tests."""
MOST_PRIVATE = 20
"""Private members that tests touch, left from before. A new test asks what is public, or that is
made so."""
LONG = 60
MOST_SENTENCES = 177
"""Asserts on texts of over 60 characters, left from before. The words of a reason are in the table
of `tests/fettle/explain/test_wording.py`; elsewhere its type, code or fields are asserted."""
_OF_PYTHON = frozenset(("_replace", "_asdict", "_fields", "_field_defaults", "_exit"))


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


def test_no_more_private_members_are_touched_than_before() -> None:
    found = [
        f"{file}:{node.lineno} {node.attr}"
        for file in sorted(Path(__file__).parent.rglob("*.py"))
        for node in _private(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert len(found) <= MOST_PRIVATE, found


def test_no_more_sentences_are_asserted_than_before() -> None:
    found = [
        f"{file}:{node.lineno}"
        for file in sorted(Path(__file__).parent.rglob("*.py"))
        for node in _long_texts(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert len(found) <= MOST_SENTENCES, found


def _long_texts(module: ast.Module) -> Iterator[ast.expr]:
    """In asserts; of an f-string, its own parts count together."""
    for statement in ast.walk(module):
        if isinstance(statement, ast.Assert):
            texts = [*ast.walk(statement.test)]
            parts = {
                id(p) for text in texts if isinstance(text, ast.JoinedStr) for p in text.values
            }
            for text in texts:
                if id(text) not in parts and len(_text(text)) > LONG:
                    assert isinstance(text, ast.expr)
                    yield text


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _private(module: ast.Module) -> Iterator[ast.Attribute]:
    """Those of others: what a module says of itself or another of its own class is its own."""
    touched: list[ast.Attribute] = []
    own = {
        node.name
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            if ast.unparse(node.value) in ("self", "cls"):
                own.add(node.attr)
            elif not node.attr.endswith("__") and node.attr not in _OF_PYTHON:
                touched.append(node)
    return (node for node in touched if node.attr not in own)
