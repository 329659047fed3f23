"""What a rule is, and what it finds."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar, NamedTuple

import msgspec

from fettle.lint.cluster import Cluster
from fettle.lint.manifests import Field, Manifest


class Severity(StrEnum):
    """What follows from a finding. Undecided says that a rule could not judge; it never denies."""

    DENY = "Deny"
    WARN = "Warn"
    UNDECIDED = "Undecided"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake: `field` is its path, `message` what is wrong, `fix` what to write instead.

    `possible`: it may work all the same, even with the present inventory; strict mode lets it be.
    """

    rule: str
    severity: Severity
    field: str
    message: str
    fix: str = ""
    possible: bool = False

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        return f"{self.rule} {self.field}: {self.message}{fix}"


class Rule(ABC):
    """Finds one kind of mistake in any object; in those it has nothing to say about, nothing.

    The docstring's first line says what the mistake is and `today` what Kubernetes does with it;
    both go into docs/rules.md. `strict`: denies only in strict mode; `denies_if`: denies only in
    this case. `denies_pods`: worth denying
    even a pod, whose workload was accepted before. `inventory`: rests on what the cluster has, and
    says nothing without. `absence`: it misses an object by its name, which may have been created a
    moment ago. `seen`: `tests/controlplane/test_rules.py` shows it on the real thing.
    `on_node`: a driver or a kubelet does it, which no control plane can show.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    today: ClassVar[str]
    strict: ClassVar[bool] = False
    denies_if: ClassVar[str] = ""
    denies_pods: ClassVar[bool] = False
    inventory: ClassVar[bool] = False
    absence: ClassVar[bool] = False
    seen: ClassVar[bool] = False
    on_node: ClassVar[bool] = False

    @property
    def mistake(self) -> str:
        """One sentence: the first line of the docstring."""
        return (self.__doc__ or "").partition("\n")[0]

    @abstractmethod
    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        """The mistakes, and None wherever others may have their turn between two long steps."""

    def finding(
        self,
        field: Field,
        message: str,
        fix: str = "",
        severity: Severity | None = None,
        *,
        possible: bool = False,
    ) -> Finding:
        """A finding of this rule, of its own severity unless another one is given."""
        return Finding(
            rule=self.id,
            severity=severity or self.severity,
            field=field.path,
            message=message,
            fix=fix,
            possible=possible,
        )


class Check(NamedTuple):
    """As a rule is described; see `fettle.lint.findings.Rule`."""

    id: str
    name: str
    severity: Severity
    mistake: str
    today: str

    def finding(self, field: Field, message: str, fix: str = "") -> Finding:
        return Finding(
            rule=self.id, severity=self.severity, field=field.path, message=message, fix=fix
        )
