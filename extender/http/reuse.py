"""What one request leaves for the next, for speed alone: whole replies."""

import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from cachetools import LRUCache

from fettle.records import Decision

MAX_BYTES = 64 * 2**20
HEAD_BYTES = 512
"""Enough of a request to name its pod: to hash all of it would cost more than most answers do."""

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
