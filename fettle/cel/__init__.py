"""CEL selectors of DRA: what an expression says of a device or a node.

The answer is one of four: match, no match, would abort, or undecided. The rest of Fettle asks
`SelectorEngine`, which remembers outcomes and has one worker process evaluate what is missing.
The layout follows cel-go:

- `language/`: `parser` and `macros` make a tree, `checker` refuses what Kubernetes' compiler
  refuses, `compiler` makes a program of closures from `interpreter`. `environment` declares
  variables and functions, `reads` finds the values that an expression needs.
- `library/`: types and values, and the functions on them, a module for each library.
- `runtime/`: the engine, its memory, and the worker process with its protocol.
- `misses/`: why the nearest device does not match, in words for people.
- `objects/`: rules about objects, which are not DRA's: cel-python evaluates them, in a worker of
  their own.

`language/` and `misses/` run only in the worker process. The serving process never loads them.
"""

from typing import TYPE_CHECKING

from fettle.cel.library import semver
from fettle.cel.runtime import rows
from fettle.cel.runtime.protocol import (
    ExpressionRead,
    ObjectExpressions,
    Outcome,
    OutcomeKind,
    RowOutcome,
    undecided,
)
from fettle.cel.runtime.rows import (
    AttributeRead,
    Equation,
    Field,
    Reads,
    RowFingerprint,
    Value,
    split_name,
)

if TYPE_CHECKING:
    from fettle.cel.objects.asking import ObjectJudge, read_expressions
    from fettle.cel.runtime.engine import Engines, SelectorEngine

__all__ = [
    "AttributeRead",
    "Engines",
    "Equation",
    "ExpressionRead",
    "Field",
    "ObjectExpressions",
    "ObjectJudge",
    "Outcome",
    "OutcomeKind",
    "Reads",
    "RowFingerprint",
    "RowOutcome",
    "SelectorEngine",
    "Value",
    "read_expressions",
    "rows",
    "semver",
    "split_name",
    "undecided",
]


def __getattr__(name: str) -> object:
    # Late, since the worker process imports this package too and must stay small.
    found: object
    if name in ("Engines", "SelectorEngine"):
        from fettle.cel.runtime import engine

        found = getattr(engine, name)
        return found
    if name in ("ObjectJudge", "read_expressions"):
        from fettle.cel.objects import asking

        found = getattr(asking, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
