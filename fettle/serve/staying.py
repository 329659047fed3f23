"""The process that stays: it runs the process that serves, and replaces it without a gap.

`fettle serve` is this small process. For new settings it starts a successor, and only when that is
ready it asks the predecessor to end (decision 0035). One that crashed it starts again, a few times.
It imports little, and knows nothing of *watch → inventory → health → verdict → answer*.
"""

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from math import inf
from pathlib import Path

from fettle.model import FettleError
from fettle.serve.channel import ENVIRONMENT, Channel, PastCrashes, inheritance

ENDS_WITHIN_S = 20.0
"""How long a process may take to end before it is killed."""
MOST_RESTARTS = 3
"""How often a process that crashed is started again, before whoever started this one has to."""
FORGOTTEN_AFTER_S = 600.0
"""A process that was ready for so long before it crashed is started again as if it were the first
time."""
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


class _Serving:
    """A process that serves, or is about to."""

    def __init__(
        self,
        command: Sequence[str],
        listening: Mapping[str, Sequence[int]],
        crashes: PastCrashes,
        *,
        succeeds: bool,
    ) -> None:
        ours, its = socket.socketpair()
        with its:
            given = inheritance(
                its.fileno(), succeeds=succeeds, listening=listening, crashes=crashes
            )
            self._process = subprocess.Popen(  # noqa: S603 (our own program)
                command,
                env=os.environ | {ENVIRONMENT: given},
                pass_fds=(its.fileno(), *chain.from_iterable(listening.values())),
            )
        self.channel = Channel(ours)
        self.failure = ""
        self.ready_at = inf

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        self._process.terminate()

    def end(self) -> None:
        """Return once it has ended."""
        self.ask_to_end()
        try:
            self._process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Staying:
    """Runs `command`, which must call `inherited`, until that process ends by itself, crashes too
    often, or a signal asks for it."""

    def __init__(self, command: Sequence[str], signals: socket.socket) -> None:
        """`signals` gives the number of each signal that comes."""
        self._command = command
        self._selector = selectors.DefaultSelector()
        self._signals = signals
        self._selector.register(self._signals, selectors.EVENT_READ)
        self._stopping = False
        self._listening: dict[str, Sequence[int]] = {}
        self._leaving: list[_Serving] = []
        self._successor: _Serving | None = None
        self._crashes = PastCrashes()
        self._restarts = 0
        self._has_served = False
        """Whether any process was ready."""
        self._current = self._start(succeeds=False)

    def run(self) -> int:
        """The exit code; raises FettleError if the process that served says why it ended."""
        while (code := self._current.code) is None or self._is_replaced(code):
            for key, _ in self._selector.select():
                if key.fileobj is self._signals:
                    self._take_signals()
                else:
                    self._take_messages(key.data)
            self._look_after_others()
        for other in filter(None, [self._successor, *self._leaving]):
            other.end()
            other.channel.socket.close()
        self._selector.close()
        self._close_listening()
        if self._stopping and code == -signal.SIGTERM:  # it came before there was a handler
            return 0
        if self._current.failure:
            raise FettleError(self._current.failure)
        if code < 0:
            sys.stderr.write(f"fettle: the serving process {_end(code)}\n")
        return code if code >= 0 else 128 - code

    def _start(self, *, succeeds: bool) -> _Serving:
        started = _Serving(self._command, self._listening, self._crashes, succeeds=succeeds)
        self._selector.register(started.channel.socket, selectors.EVENT_READ, started)
        return started

    def _is_replaced(self, code: int) -> bool:
        """Whether another process takes the place of the current one, which has ended."""
        dead = self._current
        while dead.channel.socket.fileno() >= 0:
            self._take_messages(dead)  # its last one says why it failed
        if self._stopping or code == 0 or dead.failure or not self._has_served:
            return False
        if self._successor is not None:
            self._say(code, "its successor takes its place")
            self._current, self._successor = self._successor, None
        elif self._may_restart(dead.ready_at):
            self._say(code, f"it is started again ({self._restarts} of {MOST_RESTARTS})")
            self._crashes = PastCrashes(self._crashes.number + 1, _end(code))
            self._leave_shared_ports()
            self._current = self._start(succeeds=False)
        else:
            return False
        return True

    def _may_restart(self, ready_at: float) -> bool:
        """Whether it may be started once more, which counts from here on."""
        if time.monotonic() - ready_at >= FORGOTTEN_AFTER_S:
            self._restarts = 0
        self._restarts += 1
        return self._restarts <= MOST_RESTARTS

    def _say(self, code: int, what_then: str) -> None:
        sys.stderr.write(f"fettle: the serving process {_end(code)}; {what_then}\n")

    def _leave_shared_ports(self) -> None:
        """Where another `fettle serve` listens on the same port, let it answer all callers: those
        that wait on sockets of ours would do so in vain."""
        for name, files in [*self._listening.items()]:
            if _are_shared(files):
                _close(self._listening.pop(name))

    def _take_signals(self) -> None:
        for number in self._signals.recv(4096):
            if number == signal.SIGHUP:
                self._reload()
            elif number != signal.SIGCHLD:
                self._stopping = True
                self._close_listening()  # else callers would wait there for nobody
                for process in filter(None, [self._current, self._successor]):
                    process.ask_to_end()

    def _take_messages(self, sender: _Serving) -> None:
        messages = sender.channel.receive()
        if messages is None and sender.channel.socket.fileno() >= 0:  # not closed before
            self._selector.unregister(sender.channel.socket)
            sender.channel.socket.close()
        for word, sentence, files in messages or ():
            if files:
                self._keep(sentence, files)
            if word == "failed":
                sender.failure = sentence
            elif word == "reload" and sender is self._current:
                self._reload()
            elif word == "waiting" and sender is self._successor:
                self._current.channel.send("starting", sentence)
            elif word == "ready":
                self._has_served = True
                sender.ready_at = time.monotonic()
                if sender is self._successor:
                    self._leave(self._current)
                    self._current, self._successor = sender, None

    def _keep(self, name: str, files: Sequence[int]) -> None:
        """Keep the sockets of a listener open between one process and the next: what connects in
        that moment waits there, and is not lost."""
        # A successor that listens on the kept sockets sends these same ones again.
        if name in self._listening or self._stopping:
            _close(files)
        else:
            self._listening[name] = files

    def _close_listening(self) -> None:
        for files in self._listening.values():
            _close(files)
        self._listening.clear()

    def _reload(self) -> None:
        """Start a successor, in place of one that is not ready: it may have read older files."""
        if self._stopping:
            return
        if self._successor is not None:
            self._leave(self._successor)
        self._successor = self._start(succeeds=True)
        self._current.channel.send("starting")

    def _leave(self, process: _Serving) -> None:
        process.ask_to_end()
        self._leaving.append(process)

    def _look_after_others(self) -> None:
        self._leaving = [process for process in self._leaving if process.code is None]
        failed = self._successor
        if failed is not None and (code := failed.code) is not None:
            self._take_messages(failed)
            if failed is self._successor:  # it was not ready before it ended
                self._successor = None
                why = failed.failure or f"the new process {_end(code)}"
                self._current.channel.send("failed", why)


def _end(code: int) -> str:
    """How a process ended that did not say why."""
    if code >= 0:
        return f"ended with exit code {code}"
    memory = ", as when memory runs out" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{memory}"


def _close(files: Sequence[int]) -> None:
    for number in files:
        os.close(number)


def stay(command: Sequence[str]) -> None:
    """Run it until it ends, then exit; raises FettleError if it says why."""
    with _signals() as signals:
        code = Staying(command, signals).run()
    sys.exit(code)


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Where the number of each signal that comes can be read."""
    ours, its = socket.socketpair()
    its.setblocking(False)
    handled = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    with ours, its:
        woken = signal.set_wakeup_fd(its.fileno())
        before = {number: signal.signal(number, lambda *_: None) for number in handled}
        try:
            yield ours
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)


def _are_shared(files: Sequence[int]) -> bool:
    """Whether somebody else listens where these sockets do, as the second of two static pods does;
    False where there is no Linux."""
    ours = {str(os.fstat(number).st_ino) for number in files}
    found = [*_listening()]
    addresses = {address for address, inode in found if inode in ours}
    return any(address in addresses and inode not in ours for address, inode in found)


def _listening() -> Iterator[tuple[str, str]]:
    """The address and the inode of each socket that listens in this network namespace."""
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                _, address, _, state, _, _, _, _, _, inode, *_ = line.split()
                if state == _LISTENS:
                    yield address, inode
