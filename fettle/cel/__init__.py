"""DRA's CEL selectors: match, no match, would abort, or undecided, for an expression on a device.

`engine.SelectorEngine` is what the rest of Fettle uses, with `outcomes`. One way through the rest:
`tokens` and `parsing` (with `macros`) make a tree, `checking` and `validating` refuse what
Kubernetes' compiler refuses, `compiling` makes a program of it, `evaluating` runs that on a row.
`declarations` collects the functions of the libraries, `inspecting` says for people what the
nearest device lacks, in the words of `shortfalls`. All of these run only in the worker process;
nothing on the loop's side imports them.
"""

from typing import TYPE_CHECKING

from fettle.cel.library import semver
from fettle.cel.runtime import rows
from fettle.cel.runtime.outcomes import Outcome, OutcomeKind, undecided
from fettle.cel.runtime.rows import (
    AttributeRead,
    Equation,
    Field,
    Reads,
    RowFingerprint,
    Value,
    split,
)

if TYPE_CHECKING:
    from fettle.cel.runtime.engine import SelectorEngine

__all__ = [
    "AttributeRead",
    "Equation",
    "Field",
    "Outcome",
    "OutcomeKind",
    "Reads",
    "RowFingerprint",
    "SelectorEngine",
    "Value",
    "rows",
    "semver",
    "split",
    "undecided",
]


def __getattr__(name: str) -> object:
    # Late, since the worker process imports this package too and must stay small.
    if name == "SelectorEngine":
        from fettle.cel.runtime.engine import SelectorEngine

        return SelectorEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
