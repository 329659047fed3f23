"""Splits the chunks of a watch's body into its lines, each one event. Pure."""

from fettle.model import Unreachable

LONGEST = 64 * 1024 * 1024
"""Bytes of one line. The largest object a cluster stores has a few MiB; more is no watch."""


class Lines:
    """Keeps what came of an unfinished line as parts, so that a long one is copied only once."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._parts: list[bytes] = []
        self._kept = 0
        self._longest = longest

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; empty ones are left out."""
        head, newline, rest = chunk.partition(b"\n")
        self._keep(head)
        if not newline:
            return []
        *lines, tail = (b"".join(self._parts), *rest.split(b"\n"))
        self._parts, self._kept = [], 0
        self._keep(tail)
        return [line for line in lines if line.strip()]

    def _keep(self, part: bytes) -> None:
        self._kept += len(part)
        if self._kept > self._longest:
            raise Unreachable(f"a watch sent a line of more than {self._longest} bytes")
        if part:
            self._parts.append(part)
