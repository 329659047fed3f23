"""What one request leaves for the next, for speed alone: whole replies, the reply to what is asked
next, and the memory that names were in."""

import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from cachetools import LRUCache

from extender.http.replies import Replies
from fettle.api import extender as wire
from fettle.records import Decision
from fettle.scheduling import Answers, Demand, Leaning, Narrowed

MAX_BYTES = 64 * 2**20
HEAD_BYTES = 512
"""Enough of a request to name its pod: to hash all of it would cost more than most answers do."""
UNASKED = 3
"""After this many filter calls in a row without a prioritize, none is prepared."""
TIDY_EVERY = 64
"""Sort the names by memory address after this many replies: other strings mix up their order."""

Edition = tuple[int, int]
"""While `Answers.edition` is the same, so are all answers."""


class KeptReply(NamedTuple):
    """`refused`: how many nodes it refuses; `decision`: where that is recorded. From `until` on, in
    Unix seconds, the pod takes what it is refused now."""

    request: bytes
    edition: Edition
    body: bytes
    refused: int
    decision: Decision
    until: float = inf


class KeptReplies:
    """Replies to filter calls that refuse every node. Such a pod comes back hundreds of times a
    second in a busy cluster. All requests and replies together take `max_bytes` at most; those not
    used for longest go first."""

    def __init__(self, max_bytes: int = MAX_BYTES, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._kept: LRUCache[bytes, KeptReply] = LRUCache(max_bytes, getsizeof=_size)

    def get(self, request: bytes, edition: Edition) -> KeptReply | None:
        """The reply to this very request in this edition of the answers, if it is kept."""
        if not self._kept:
            return None
        reply = self._kept.get(request[:HEAD_BYTES])
        if reply is None or reply.edition != edition or reply.request != request:
            return None
        return reply if reply.until == inf or self._now() < reply.until else None

    def keep(self, reply: KeptReply) -> None:
        """Keep a reply, in place of one to a request that begins alike."""
        if _size(reply) <= self._kept.maxsize:
            self._kept[reply.request[:HEAD_BYTES]] = reply


def _size(reply: KeptReply) -> int:
    return len(reply.request) + len(reply.body)


class PreparedReply(NamedTuple):
    """`uid` is the pod's."""

    request: bytes
    edition: Edition
    body: bytes
    uid: str


class NextPrioritize:
    """The reply to the prioritize call that kube-scheduler makes after filter, about the same pod
    and the nodes that filter let pass. It is prepared while the scheduler reads filter's reply."""

    def __init__(self, answers: Answers, replies: Replies) -> None:
        self._answers = answers
        self._replies = replies
        self._prepared: PreparedReply | None = None
        self._unasked = 0

    def prepare(
        self,
        demand: Demand,
        request: bytes,
        names: list[str],
        edition: Edition,
        uid: str,
        leaning: Leaning,
    ) -> None:
        """After a filter `request` that let these names pass, by answers of this edition."""
        if self._unasked >= UNASKED or edition != self._answers.edition:
            return
        self._unasked += 1
        expected = wire.with_names(request, names)
        if expected is not None and (table := self._answers.at_once(demand, names)) is not None:
            body = self._replies.scores(table, names, leaning)
            self._prepared = PreparedReply(expected, edition, body, uid)

    def forget(self) -> None:
        self._prepared = None

    def take(self, request: bytes) -> PreparedReply | None:
        """The reply to this prioritize request, if it was prepared and still holds."""
        prepared, self._prepared = self._prepared, None
        self._unasked = 0
        if prepared is None or prepared.edition != self._answers.edition:
            return None
        return prepared if prepared.request == request else None


class NameMemory:
    """Frees the names of requests in an order that keeps their memory in a row.

    A request's names are so many new strings, in the places that the last ones were freed from, the
    last one freed first. Freed in any order but the reverse of the one they were made in, they are
    soon scattered over hundreds of kilobytes. To write and read them takes twice as long then,
    since a processor fetches ahead only what lies in a row.
    """

    def __init__(self) -> None:
        self._freed = 0

    def free(self, narrowed: Narrowed) -> None:
        """Empty the lists, and free the names unless somebody else has them."""
        names, passed, _ = narrowed
        if passed is not names:
            passed.clear()
        self._freed += 1
        if self._freed % TIDY_EVERY == 0:
            names.sort(key=id)
        names.clear()
