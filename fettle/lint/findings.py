"""What a rule is, and what it finds: a finding with a severity, a field and a fix."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import ClassVar, NamedTuple

import msgspec

from fettle.lint.cluster import Cluster
from fettle.lint.manifests import Field, Manifest
from fettle.lint.names import is_mark


class Severity(StrEnum):
    """What follows from a finding. Undecided: the rule could not decide, which never denies."""

    DENY = "Deny"
    WARN = "Warn"
    UNDECIDED = "Undecided"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake: `field` is its path, `message` what is wrong, `fix` what to write instead.

    `possible`: it may work with the present inventory, so strict mode does not deny it.
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
    """Finds one kind of mistake in any object; finds nothing in objects that it is not about.

    The first line of the docstring says what the mistake is, `today` what Kubernetes does with it;
    both go into docs/rules.md.

    `strict`: also denies in strict mode. `denies_if`, `warns_if`: denies, or only warns, in this
    case. `denies_pods`: denies even a pod whose workload was accepted. `inventory`: depends on what
    the cluster has, and finds less without it, or nothing. `absence`: reports a missing object,
    which may have been created a moment ago. `reproduced`: `tests/controlplane/test_rules.py` shows
    the failure on a real control plane. `on_node`: a driver or a kubelet fails, which no control
    plane can show.
    """

    id: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    today: ClassVar[str]
    strict: ClassVar[bool] = False
    denies_if: ClassVar[str] = ""
    warns_if: ClassVar[str] = ""
    denies_pods: ClassVar[bool] = False
    inventory: ClassVar[bool] = False
    absence: ClassVar[bool] = False
    reproduced: ClassVar[bool] = False
    on_node: ClassVar[bool] = False

    @property
    def mistake(self) -> str:
        """One sentence, the first line of the docstring."""
        return (self.__doc__ or "").partition("\n")[0]

    @abstractmethod
    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding | None]:
        """The mistakes; None is a point between two long steps where other work may run."""

    def finding(
        self,
        field: Field,
        message: str,
        fix: str = "",
        severity: Severity | None = None,
        *,
        possible: bool = False,
    ) -> Finding:
        """A finding of this rule, with the rule's severity unless another is given."""
        return Finding(
            rule=self.id,
            severity=severity or self.severity,
            field=field.path,
            message=message,
            fix=fix,
            possible=possible,
        )


COMPLETE_GROUPS = frozenset(
    ("", "apps", "batch", "resource.k8s.io", "jobset.x-k8s.io", "leaderworkerset.x-k8s.io")
)
"""Whose workloads make their pods and Jobs of the templates as they are."""


class Refusal(Rule):
    """A rule about what the API server refuses. Only `fettle lint` has it: the webhook never sees
    such an object.

    Of an object that exists (`metadata.uid`), it says nothing: that was accepted, and has fields
    that only the API server may set. It only warns of what somebody completes: workloads of other
    projects, whose controllers do, and objects in whose name or namespace something is put in.
    """

    severity = Severity.DENY
    today = "The API server refuses the object, or what is made from it."

    @abstractmethod
    def found(self, manifest: Manifest) -> Iterator[Finding]:
        """The mistakes, with the rule's severity."""

    def check(self, manifest: Manifest, cluster: Cluster | None = None) -> Iterator[Finding]:
        if manifest.root.text("metadata", "uid"):
            return
        marked = is_mark(manifest.name) or is_mark(manifest.namespace)
        for finding in self.found(manifest):
            if manifest.group in COMPLETE_GROUPS and not marked:
                yield finding
            else:
                yield msgspec.structs.replace(finding, severity=Severity.WARN)


def of_request(by_option: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """The findings on the options of one request: they deny only if each option has one that does,
    since a claim works if one of its alternatives does."""
    hopeless = all(any(f.severity is Severity.DENY for f in found) for found in by_option)
    for finding in (finding for found in by_option for finding in found):
        if hopeless or finding.severity is not Severity.DENY:
            yield finding
        else:
            yield msgspec.structs.replace(finding, severity=Severity.WARN, possible=True)


class Check(NamedTuple):
    """A mistake that is reported besides the rules; its fields are described as those of a rule."""

    id: str
    name: str
    severity: Severity
    mistake: str
    today: str

    def finding(
        self, field: Field, message: str, fix: str = "", severity: Severity | None = None
    ) -> Finding:
        return Finding(
            rule=self.id,
            severity=severity or self.severity,
            field=field.path,
            message=message,
            fix=fix,
        )
