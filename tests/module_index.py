"""The list of modules in docs/where-to-change.md, made of the first sentence of each docstring and
the names of bounds, times and weights.

`python -m tests.module_index` fails where a module is in no row; `--write` makes the list again.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "where-to-change.md"
PACKAGES = ("fettle", "extender", "webhook", "certs")
_LIST = re.compile(r"(?<=<!-- modules -->\n).*(?=<!-- /modules -->)", re.DOTALL)
_SENTENCE = re.compile(r".+?[.!?](?=\s|$)")


def modules(root: Path) -> list[Path]:
    """All that hold something, relative to the root."""
    found = [file for package in PACKAGES for file in (root / package).rglob("*.py")]
    return sorted((f.relative_to(root) for f in found if f.read_text().strip()), key=_order)


def listed(root: Path) -> str:
    """The list, after a line that links to its rooms. Raises ValueError if a module has no
    docstring."""
    found = modules(root)
    rooms = " · ".join(
        f"[{room}](#{room.replace('/', '')})" for room, _ in groupby(found, key=_heading)
    )
    parts = [f"By room: {rooms}", ""]
    for heading, group in groupby(found, key=_heading):
        parts.append(f"### `{heading}/`\n\n| module | what it knows | numbers |\n|---|---|---|")
        parts += [*(_row(root, module) for module in group), ""]
    return "\n".join(parts)


def complaint(page: str, wanted: str) -> str:
    """Which rows the page lacks or has too many; "" if none."""
    old, new = (set(text.splitlines()) for text in (_LIST.findall(page)[0], wanted))
    rows = [f"- {row}" for row in sorted(old - new)] + [f"+ {row}" for row in sorted(new - old)]
    again = "make it again: python -m tests.module_index --write"
    return "\n".join([*rows, f"docs/where-to-change.md is not current, {again}"]) if rows else ""


def _heading(module: Path) -> str:
    return str(Path(*module.parent.parts[:2]))


def _order(module: Path) -> tuple[int, str, str]:
    return PACKAGES.index(module.parts[0]), _heading(module), str(module).replace("__init__.py", "")


def _row(root: Path, module: Path) -> str:
    tree = ast.parse((root / module).read_text())
    docstring = ast.get_docstring(tree)
    sentence = _SENTENCE.match(" ".join((docstring or "").split()))
    if not sentence:
        raise ValueError(f"{module} has no docstring: its first sentence says what it knows")
    name = str(module).removesuffix("__init__.py")
    told = sentence[0].replace("|", r"\|")
    numbers = ", ".join(f"`{name}`" for name in _numbers(tree) if name[0] != "_")
    return f"| `{name}` | {told} |{f' {numbers} ' if numbers else ' '}|"


def _numbers(tree: ast.Module) -> Iterator[str]:
    """Constants that are numbers, such as `IDLE_S = 2 * 60.0`."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(
            target := statement.targets[0], ast.Name
        ):
            parts = list(ast.walk(statement.value))
            literals = [part.value for part in parts if isinstance(part, ast.Constant)]
            sums = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
            if all(isinstance(part, sums) for part in parts) and all(
                type(value) in (int, float) for value in literals
            ):
                yield target.id


def main() -> None:
    try:
        page, wanted = PAGE.read_text(), listed(ROOT)
    except ValueError as error:
        sys.exit(str(error))
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(_LIST.sub(lambda _: wanted, page))
        return
    if told := complaint(page, wanted):
        sys.exit(told)
    print(f"All {len(modules(ROOT))} modules are in docs/where-to-change.md.")


if __name__ == "__main__":
    main()
