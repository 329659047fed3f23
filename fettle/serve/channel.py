"""What the process that stays and the process that serves tell each other, as lines of JSON.

To the one that stays: `listening` (a listener's name, with its sockets, for successors), `ready`,
`waiting` (for what, before it is ready), `reload`, and `failed` with the error. To the one that
serves: `starting`, for its successor, and `failed`.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

ENVIRONMENT = "FETTLE_SERVE_CHANNEL"
_MOST_SOCKETS = 64


class Message(NamedTuple):
    """A word from above, a sentence or "", and the numbers of files that came with it."""

    word: str
    sentence: str = ""
    files: Sequence[int] = ()


class PastCrashes(NamedTuple):
    """Of processes that served and were started again, since `fettle serve` began."""

    number: int = 0
    last: str = ""
    """How the last one ended."""


class Channel:
    """One process's end. Messages are short, so that sending them never has to wait.

    At the end of a process that serves: `succeeds` if another one serves until this one is ready;
    `listening` are the sockets on which the one before listens or listened, by the listener's name.
    """

    def __init__(
        self,
        end: socket.socket,
        *,
        succeeds: bool = False,
        listening: Mapping[str, Sequence[socket.socket]] | None = None,
        crashes: PastCrashes = PastCrashes(),  # noqa: B008 (immutable)
    ) -> None:
        self.socket = end
        self.succeeds = succeeds
        self.listening = listening or {}
        self.crashes = crashes
        self._rest = b""

    def send(self, word: str, sentence: str = "", files: Sequence[int] = ()) -> None:
        """Does nothing once the other process has ended."""
        line = json.dumps([word, sentence]).encode() + b"\n"
        with suppress(OSError):
            if files:
                socket.send_fds(self.socket, [line], files)
            else:
                self.socket.sendall(line)

    def receive(self) -> list[Message] | None:
        """What has come, once the socket is readable; None if the other process has ended."""
        try:
            received, files, _, _ = socket.recv_fds(self.socket, 65536, _MOST_SOCKETS)
        except OSError:
            received = b""
        if not received:
            return None
        *lines, self._rest = (self._rest + received).split(b"\n")
        messages = [Message(*json.loads(line)) for line in lines]
        if files:  # the kernel ends what is received at once with the message that brings files
            messages[-1] = messages[-1]._replace(files=files)
        return messages


def inheritance(
    end: int, *, succeeds: bool, listening: Mapping[str, Sequence[int]], crashes: PastCrashes
) -> str:
    """The value of ENVIRONMENT for a process that inherits these files."""
    return json.dumps(
        {"end": end, "succeeds": succeeds, "listening": listening, "crashes": crashes}
    )


def inherited() -> Channel | None:
    """This process's end; None if it was not started by one that stays."""
    given = os.environ.pop(ENVIRONMENT, "")
    if not given:
        return None
    what = json.loads(given)
    listening = {name: [_own(n) for n in files] for name, files in what["listening"].items()}
    return Channel(
        _own(what["end"]),
        succeeds=what["succeeds"],
        listening=listening,
        crashes=PastCrashes(*what["crashes"]),
    )


def _own(number: int) -> socket.socket:
    """A socket that this process inherited, and that its own children do not."""
    found = socket.socket(fileno=number)
    found.set_inheritable(False)
    return found
