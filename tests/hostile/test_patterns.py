"""Every pattern of the code reads a long text in a time that grows with its length."""

import ast
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import pytest

import certs
import extender
import fettle
import webhook
from tests.test_documents import ROOT


class Look(NamedTuple):
    """A pattern, and whether it is only held against the beginning of a text."""

    pattern: "re.Pattern[Any]"
    from_start: bool

    def __call__(self, text: Any) -> None:
        (self.pattern.fullmatch if self.from_start else self.pattern.search)(text)


LENGTHS = (16, 20, 24, 28, 32, 100, 400, 2_000, 10_000, 40_000)
TOO_SLOW_S = 0.05


ELSEWHERE = (
    "fettle.cel.",
    "fettle.cli.",
    "fettle.health.signals.promql",
    "fettle.client.connection",
)
"""Selectors are read in a process of their own, which is killed at its deadline. The others read
what the caller or an administrator wrote: files, rules, settings."""


def patterns() -> Iterator[tuple[str, Look]]:
    """Those that modules hold and use on what others write, by their names."""
    for package in (fettle, extender, webhook, certs):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__") or found.name.startswith(ELSEWHERE):
                continue
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                if isinstance(value, re.Pattern):
                    used = set(re.findall(rf"\b{name}\.(\w+)\b", inspect.getsource(module)))
                    whole = bool(used) and used <= {"fullmatch", "match", "pattern"}
                    yield f"{found.name}.{name}", Look(value, whole)


def alphabet(pattern: "re.Pattern[Any]") -> list[str]:
    """Characters and words that the pattern tells apart, and one that it does not know."""
    source = pattern.pattern
    parsed = parser.parse(source.decode("latin-1") if isinstance(source, bytes) else source)
    found: dict[str, None] = {}

    def visit(tokens: Any) -> None:
        word = ""
        for operator, value in tokens:
            name = str(operator)
            if name in ("LITERAL", "NOT_LITERAL"):
                word += chr(value)
                found[chr(value)] = None
                continue
            if len(word) > 1:
                found[word] = None
            word = ""
            if name == "IN":
                for kind, inner in value:
                    found.update(_of_class(str(kind), inner))
            for inner in value if isinstance(value, list | tuple) else (value,):
                for each in inner if isinstance(inner, list) else (inner,):
                    if isinstance(each, parser.SubPattern):
                        visit(each)
        if len(word) > 1:
            found[word] = None

    visit(parsed)
    return [*found, "\x01"]


def _of_class(kind: str, inner: Any) -> dict[str, None]:
    if kind == "LITERAL":
        return {chr(inner): None}
    if kind == "RANGE":
        return {chr(inner[0]): None}
    return {{"CATEGORY_DIGIT": "7", "CATEGORY_SPACE": " "}.get(str(inner), "q"): None}


def slowest(look: Look, piece: str) -> float:
    """Seconds of processor time over texts of this piece, as long as they stay short."""
    worst = 0.0
    for length in LENGTHS:
        text = piece * (length // len(piece))
        for end in ("", "\x01"):
            is_bytes = isinstance(look.pattern.pattern, bytes)
            whole = (text + end).encode() if is_bytes else text + end
            began = time.process_time()
            look(whole)
            worst = max(worst, time.process_time() - began)
        if worst > TOO_SLOW_S:
            break
    return worst


def sources() -> Iterator[Path]:
    for package in (fettle, extender, webhook, certs):
        for path in Path(package.__path__[0]).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if not ".".join(parts).startswith(ELSEWHERE):
                yield path


def test_no_function_makes_a_pattern_that_is_not_tried_here() -> None:
    """Ruff refuses other functions of `re`; RE2 reads what rules give."""
    assert [
        f"{path}:{call.lineno} compiles a pattern in a function"
        for path in sources()
        if "re.compile" in (text := path.read_text())
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "re.compile"
    ] == []


@pytest.mark.long
@pytest.mark.parametrize(
    "look", [pytest.param(found, id=name) for name, found in dict(patterns()).items()]
)
def test_a_pattern_reads_a_hostile_text_in_linear_time(look: Look) -> None:
    singles = alphabet(look.pattern)
    pairs = [a + b for a in singles for b in singles]
    for piece in (*singles, *pairs[:400]):
        took = slowest(look, piece)
        if took > TOO_SLOW_S:  # once more: the machine may have been busy
            took = min(took, slowest(look, piece))
        assert took <= TOO_SLOW_S, f"{piece!r} again and again takes {took:.2f} s"
