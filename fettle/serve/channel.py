"""What the process that stays and the process that serves tell each other, as lines of JSON.

To the one that stays: `ready`, `waiting` (for what, before it is ready), `reload`, and `failed`
with the error. To the one that serves: `starting`, for its successor, and `failed`.
"""

import json
import os
import socket
from contextlib import suppress

ENVIRONMENT = "FETTLE_SERVE_CHANNEL"
"""The number of the serving process's socket; a `+` after it says that it succeeds another one."""

Message = tuple[str, str]
"""A word from above, and a sentence or ""."""


class Channel:
    """One end. Messages are short, so that sending them never has to wait.

    At the end of a successor, `succeeds` is true.
    """

    def __init__(self, end: socket.socket, *, succeeds: bool = False) -> None:
        self.socket = end
        self.succeeds = succeeds
        self._rest = b""

    def send(self, word: str, sentence: str = "") -> None:
        """Does nothing once the other process has ended."""
        with suppress(OSError):
            self.socket.sendall(json.dumps([word, sentence]).encode() + b"\n")

    def receive(self) -> list[Message] | None:
        """What has come, once the socket is readable; None if the other process has ended."""
        try:
            received = self.socket.recv(65536)
        except OSError:
            received = b""
        if not received:
            return None
        *lines, self._rest = (self._rest + received).split(b"\n")
        return [(word, sentence) for word, sentence in map(json.loads, lines)]


def inherited() -> Channel | None:
    """The end that this process was started with; None if nobody started it for that."""
    given = os.environ.pop(ENVIRONMENT, "")
    if not given:
        return None
    end = socket.socket(fileno=int(given.removesuffix("+")))
    end.set_inheritable(False)
    return Channel(end, succeeds=given.endswith("+"))
