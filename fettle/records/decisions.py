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
    """Where a pod was bound, and what Fettle said of that node for it at that time.

    - `reasons`: codes of refusals, also of those that an open breaker set aside; `why`: the first
      in words. `refused_devices`: what these were about.
    - `devices`: how many devices the pod holds there; `withheld`: how many of them are refused.
    - `sound`: there was no evidence against the node or these devices.
    """

    node: str
    at: float
    reasons: tuple[str, ...] = ()
    why: str = ""
    refused_devices: tuple[str, ...] = ()
    devices: int = 0
    withheld: int = 0
    undecided: bool = False
    sound: bool = False


class Decision(Recorded, kw_only=True, gc=False):
    """- `key`: `namespace/name` of the object, or what is known of its name before it has one.
    - `owner`: the controller, such as `Job/train`.
    - `count`: how often this was said from `first` to `last`; numbers of nodes are the last ones.
    - `nodes`: how many were asked about; `reasons`: how many of them were refused by which code,
      or, of the webhook, findings by rule, of the steward, what it wrote. `why`: one of the
      reasons in words.
    - `refused_nodes`: the names of some. `preferred`: some with the best score, and that score.
    - `ranked`: how often prioritize was asked.
    - `undecided`: what could not be judged, by code, with numbers of nodes.
    - `allowed_at`: when a node was first allowed for a pod that would have been refused everywhere.
    - `waits_until`: when a pod that is refused takes Degraded devices too, if it ever will.
    - `became_at`: when the pod came to be what it `became`; `end`: why it ended.
    """

    id: str
    verb: Verb
    kind: str = "Pod"
    key: str
    uid: str = ""
    owner: str = ""
    policy: str = ""
    mode: Mode = Mode.ENFORCE
    decided: Decided
    first: float
    last: float
    count: int = 1
    nodes: int = 0
    refused: int = 0
    reasons: dict[str, int] = {}
    why: str = ""
    refused_nodes: tuple[str, ...] = ()
    preferred: dict[str, int] = {}
    undecided: dict[str, int] = {}
    ranked: int = 0
    waits_until: float | None = None
    allowed_at: float | None = None
    placed: Placed | None = None
    became: Became | None = None
    became_at: float = 0.0
    end: str = ""

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
