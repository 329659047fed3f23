"""Decisions of Fettle's, and what became of their pods; those of several processes as those of one.
Repetitions of a decision are counted in it.

In JSON the fields are an interface: the journal, `/decisions` and `fettle decisions -o json` have
them. Times are in Unix seconds.
"""

import secrets
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from enum import StrEnum
from itertools import count
from typing import NamedTuple

import msgspec

from fettle.model import Mode
from fettle.pacing import pause


class Verb(StrEnum):
    """What decided. `seen`: no scheduler asked about the pod, which only observing can cause."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"
    SEEN = "seen"
    MUTATE = "mutate"
    VALIDATE = "validate"
    STEWARD = "steward"


PLACING = frozenset((Verb.FILTER, Verb.PRIORITIZE, Verb.SEEN))
"""Those that decide where a pod goes."""


class Decided(StrEnum):
    """What Fettle said; in mode `observe`, and for refusals and denials in `steer`, what it would
    have said. Of the steward: whether it wrote."""

    PASSED = "passed"
    NARROWED = "narrowed"
    REFUSED = "refused"
    INJECTED = "injected"
    DENIED = "denied"
    WROTE = "wrote"
    WOULD_WRITE = "wouldWrite"


class Act(NamedTuple):
    """One thing that the steward writes about an object, or would write.

    `what`: a stable code, such as `Evict`. `why`: in words. `key`: `namespace/name`, or the name of
    what has no namespace. `owner`: the controller, such as `Job/train`.
    """

    what: str
    why: str
    kind: str
    key: str
    uid: str = ""
    owner: str = ""
    policy: str = ""
    mode: Mode = Mode.ENFORCE


class Became(StrEnum):
    """What became of a pod. `deleted`: somebody ended it, or it is gone."""

    PENDING = "pending"
    BOUND = "bound"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETED = "deleted"


ENDED = frozenset((Became.SUCCEEDED, Became.FAILED, Became.DELETED))


class Recorded(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base of what is recorded, hidden from the garbage collector. What is left out has its
    default."""


class Placed(Recorded, kw_only=True, gc=False):
    """Where a pod was bound, and what Fettle said of that node for it at that time."""

    node: str
    """Its name."""
    at: float
    """When."""
    reasons: tuple[str, ...] = ()
    """Codes of refusals, also of those that an open breaker set aside."""
    why: str = ""
    """The first of them in words."""
    refused_devices: tuple[str, ...] = ()
    """What they were about."""
    devices: int = 0
    """How many devices the pod holds there."""
    withheld: int = 0
    """How many of them are refused."""
    undecided: bool = False
    """It could not be judged."""
    sound: bool = False
    """There was no evidence against the node or these devices."""


class Decision(Recorded, kw_only=True, gc=False):
    """What one verb said about one object, with repetitions."""

    id: str
    """Of this row; stays while repetitions are counted."""
    verb: Verb
    """What was asked; `seen` is a pod that no scheduler asked about, `steward` what was written."""
    kind: str = "Pod"
    """Of the object."""
    key: str
    """`namespace/name` of the object, or what is known of its name before it has one."""
    uid: str = ""
    """Of the object."""
    owner: str = ""
    """Its controller, such as `Job/train`."""
    policy: str = ""
    """The policy that applied."""
    mode: Mode = Mode.ENFORCE
    """The mode that applied."""
    decided: Decided
    """What was said. In `observe`, and for refusals and denials in `steer`, what would have been.
    Of the steward: whether it wrote."""
    first: float
    """When this was first said."""
    last: float
    """When this was last said."""
    count: int = 1
    """How often this was said. Numbers of nodes are the last ones."""
    nodes: int = 0
    """How many nodes were asked about."""
    refused: int = 0
    """How many of them were refused."""
    reasons: dict[str, int] = {}
    """How many nodes by reason code. Of the webhook: findings by rule. Of the steward: what it
    wrote."""
    why: str = ""
    """One of the reasons in words."""
    refused_nodes: tuple[str, ...] = ()
    """The names of up to 30 of them."""
    preferred: dict[str, int] = {}
    """Three nodes with the best score, as the scheduler was told it."""
    undecided: dict[str, int] = {}
    """Nodes that could not be judged, by code."""
    ranked: int = 0
    """How often prioritize was asked."""
    waits_until: float | None = None
    """When a pod that is refused takes Degraded devices too, if it ever will."""
    allowed_at: float | None = None
    """When a node was first allowed for a pod that would have been refused everywhere."""
    placed: Placed | None = None
    """Where the pod was bound, and what Fettle said of that node then."""
    became: Became | None = None
    """What became of the pod. `deleted`: it is gone, or somebody ended it by a deletion,
    preemption, eviction or drain. A pod of which a container had crashed before is `failed`."""
    became_at: float = 0.0
    """Since when."""
    end: str = ""
    """Why it ended: first of all the fault of its device, if a container ended within a minute of
    it."""

    @property
    def subject(self) -> Hashable:
        """Equal for decisions by one verb about one object."""
        return self.verb, self.uid or (self.kind, self.key)

    @property
    def said(self) -> Hashable:
        """Equal for repetitions of a decision."""
        return self.policy, self.mode, self.decided, frozenset(self.reasons)

    def repeat(self, again: "Decision") -> None:
        """Count a repetition."""
        self.count += again.count
        self.last = again.last
        self.nodes, self.refused, self.reasons = again.nodes, again.refused, again.reasons
        self.refused_nodes, self.undecided = again.refused_nodes, again.undecided
        self.preferred = again.preferred


def wordless(decision: Decision) -> Decision:
    """Without what may name devices, and pods of other namespaces: reasons keep their codes."""
    placed = decision.placed
    if placed is not None:
        placed = msgspec.structs.replace(placed, why="", refused_devices=())
    return msgspec.structs.replace(decision, why="", end="", placed=placed)


_PROCESS = secrets.token_hex(4)
_NUMBERS = count(1)


def new_id() -> str:
    """An id that no other decision has, of this process or another."""
    return f"{_PROCESS}-{next(_NUMBERS)}"


def merged(records: Iterable[Sequence[Decision]]) -> list[Decision]:
    """What all decided, the oldest first.

    A process that no scheduler asks about a pod takes it for one that nobody was asked about, which
    it notes as `seen`. That counts only where it is so, and once.
    """
    found: dict[str, Decision] = {}
    seen_by: dict[str, dict[int, float]] = defaultdict(dict)
    asked: set[str] = set()
    of: dict[str, int] = {}
    for process, decisions in enumerate(records):
        for one in decisions:
            found[one.id] = one
            of.setdefault(one.id, process)
            if one.verb is Verb.SEEN:
                since = seen_by[one.uid].get(process, one.first)
                seen_by[one.uid][process] = min(since, one.first)
            elif one.verb in (Verb.FILTER, Verb.PRIORITIZE):
                asked.add(one.uid)
            pause()

    def counts(one: Decision) -> bool:
        if one.verb is not Verb.SEEN:
            return True
        first = min(seen_by[one.uid], key=lambda process: seen_by[one.uid][process])
        return one.uid not in asked and of[one.id] == first

    return sorted(filter(counts, found.values()), key=lambda one: one.first)
