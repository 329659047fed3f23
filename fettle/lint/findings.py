"""What a rule is, what it finds, and what it may ask about the cluster."""

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from fettle.lint.raw import Raw
from fettle.wire import resource


class Severity(StrEnum):
    """What follows from a finding. Undecided says that a rule could not judge; it never denies."""

    DENY = "Deny"
    WARN = "Warn"
    UNDECIDED = "Undecided"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake: `field` is its path, `message` what is wrong, `fix` what to write instead."""

    rule: str
    severity: Severity
    field: str
    message: str
    fix: str = ""

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        return f"{self.rule} {self.field}: {self.message}{fix}"


class Context(Protocol):
    """What a rule may ask. `namespace` is that of objects which do not name their own.

    None: it does not exist, or is not known; a rule cannot tell which, so it is undecided.
    """

    @property
    def namespace(self) -> str: ...

    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None: ...

    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None: ...


class Rule(Protocol):
    """Finds one kind of mistake in any object; in those it has nothing to say about, nothing."""

    id: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]

    def check(self, object: Raw, context: Context) -> Iterable[Finding]: ...
