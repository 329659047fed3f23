"""The rows of the table `objects`: which objects they are about, and what these say in CEL."""

import re
from typing import NamedTuple

import msgspec

from fettle.cel import ObjectExpressions
from fettle.health.signals.rule_rows import RuleRow, Share
from fettle.model import EvidenceKind, Family

_API_VERSION = re.compile(r"([a-z0-9.-]{1,253}/)?v[0-9][a-z0-9]{0,30}")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_HOLE = re.compile(r"\{([^{}]+)\}")
_OWN_GROUP = "fettle.dev"


class ObjectKind(NamedTuple):
    """A kind of object, as a manifest names it."""

    api_version: str
    kind: str

    @property
    def group(self) -> str:
        """Of Kubernetes' core ""."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


_QUOTED = 120


def quoted(expression: str) -> str:
    """An expression as people read it in a sentence; of a long one the beginning."""
    is_whole = len(expression) <= _QUOTED
    return repr(expression if is_whole else f"{expression[:_QUOTED]}…")


class ObjectRow(RuleRow, frozen=True, kw_only=True):
    """Objects of any kind, and what CEL over `resource` and `now` reads of them.
    Such as `{name: our-ticket, apiVersion: repair.example.com/v1, kind: Ticket, node:
    resource.spec.node, when: resource.status.phase == 'Open', family: driver, weight: 0.8}`.

    - `when`: true if the object is a fault. `node`: the name of the node that it is about, or a
      list of names.
    - `device`: the device, or a list, as in a hold: `DRIVER/POOL/DEVICE` or `RESOURCE UNIT`.
      Without it, or if it is empty, the fact is about the node.
    - `message`: what people read. CEL in braces is evaluated.
    - `evidence`: `level`, `latched` or `unknown`: what is `kind` in other rows.
    - `namespaces`: those whose word counts in full. What an object of another one says, a tenant
      may have caused. An object without a namespace always counts in full.
    """

    api_version: str = msgspec.field(name="apiVersion")
    kind: str
    when: str
    node: str
    family: Family
    weight: Share
    device: str = ""
    message: str = ""
    evidence: EvidenceKind = EvidenceKind.LEVEL
    namespaces: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _API_VERSION.fullmatch(self.api_version):
            raise ValueError(
                f"apiVersion: {self.api_version!r} is none; write it as a manifest has it, such as "
                "cluster.x-k8s.io/v1beta2"
            )
        if not _KIND.fullmatch(self.kind):
            raise ValueError(f"kind: {self.kind!r} is none; write it as a manifest has it")
        if self.of.group == _OWN_GROUP:
            raise ValueError("apiVersion: what Fettle writes itself is never evidence")
        if self.evidence is EvidenceKind.DECAYING:
            raise ValueError("evidence: what an object says stands: level, latched or unknown")

    @property
    def of(self) -> ObjectKind:
        return ObjectKind(self.api_version, self.kind)

    @property
    def expressions(self) -> ObjectExpressions:
        return ObjectExpressions(self.when, self.node, self.device, self.message)

    @property
    def by_field(self) -> tuple[tuple[str, str], ...]:
        """Its expressions, each with its field."""
        fields = {"when": self.when, "node": self.node, "device": self.device}
        own = tuple((field, text) for field, text in fields.items() if text)
        return (*own, *(("message", text) for text in _HOLE.findall(self.message)))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for _, text in self.by_field)

    def trusts(self, namespace: str) -> bool:
        """Whether the word of an object there counts in full; "" is that of one without any."""
        return not namespace or namespace in self.namespaces
