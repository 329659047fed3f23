"""Replies kept as bytes: a refused pod comes back hundreds of times a second in a busy cluster.

An entry answers the very same request, and holds for one edition of the answers.
"""

from collections import OrderedDict
from typing import NamedTuple

MAX_BYTES = 64 * 2**20
HEAD_BYTES = 512
"""Enough of a request to name its pod: hashing all of it would cost more than most answers do."""


Edition = tuple[int, int]
"""While it is the same (`Answers.edition`), so are all answers."""


class Reply(NamedTuple):
    """`refused`: how many nodes it refuses."""

    request: bytes
    edition: Edition
    body: bytes
    refused: int


class Replies:
    """The least recently used go first, once all bodies and replies take more than MAX_BYTES."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._kept: OrderedDict[tuple[str, bytes], Reply] = OrderedDict()

    def get(self, verb: str, request: bytes, edition: Edition) -> Reply | None:
        """The reply to this very request in this edition, if it is kept."""
        if not self._kept:
            return None
        key = (verb, request[:HEAD_BYTES])
        reply = self._kept.get(key)
        if reply is None or reply.edition != edition or reply.request != request:
            return None
        self._kept.move_to_end(key)
        return reply

    def put(self, verb: str, request: bytes, edition: Edition, body: bytes, refused: int) -> None:
        """Keep a reply, in place of one to a request that begins alike."""
        key = (verb, request[:HEAD_BYTES])
        self._discard(key)
        self._kept[key] = Reply(request, edition, body, refused)
        self._size += len(request) + len(body)
        while self._size > self._max_bytes:
            self._discard(next(iter(self._kept)))

    def _discard(self, key: tuple[str, bytes]) -> None:
        reply = self._kept.pop(key, None)
        if reply is not None:
            self._size -= len(reply.request) + len(reply.body)
