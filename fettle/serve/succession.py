"""The serving process's part in being replaced: it notices changed files, asks for a successor, and
says what became of it. A successor says when it is ready."""

import asyncio
import hashlib
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from fettle.config import load_settings
from fettle.logs import Logger
from fettle.model import SettingsError
from fettle.pacing import keep
from fettle.serve.channel import Channel, PastCrashes
from fettle.serve.readiness import Readiness

FILES_POLL_S = 2.0
READY_POLL_S = 0.05

_LOG = Logger(__name__)


class Succession:
    """Without a `channel`, nobody can replace this process. `replaces`: it is itself a successor,
    and its predecessor serves until this one is ready."""

    def __init__(self, channel: Channel | None = None) -> None:
        self._channel = channel
        self.replaces = channel is not None and channel.succeeds
        self.crashes = channel.crashes if channel is not None else PastCrashes()
        self.failure = ""
        """Why new settings are not in use."""
        self._starting: str | None = None

    def receive(self, on_orphaned: Callable[[], None]) -> None:
        """Take messages on the running loop; call `on_orphaned` when the other process ends."""
        channel, loop = self._channel, asyncio.get_running_loop()
        if channel is None:
            return
        if self.crashes.number and not self.replaces:
            _LOG.error(self._crashes_told())

        def read_messages() -> None:
            messages = channel.receive()
            if messages is None:
                _LOG.warning("the process that started this one has ended, so this one stops too")
                loop.remove_reader(channel.socket)
                on_orphaned()
            for word, sentence, _ in messages or ():
                self._handle_message(word, sentence)

        loop.add_reader(channel.socket, read_messages)

    def listening(self, name: str) -> Sequence[socket.socket]:
        """The sockets on which the predecessor's listener of that name listens."""
        return self._channel.listening.get(name, ()) if self._channel is not None else ()

    def opened(self, name: str, sockets: Sequence[int]) -> None:
        """A listener has opened, on these sockets, which a successor may get."""
        if self._channel is not None:
            self._channel.send("listening", name, sockets)

    def ask(self) -> None:
        """Ask for a successor, which reads all files anew."""
        if self._channel is not None:
            _LOG.info("asking for a successor, which reads all files anew")
            self._channel.send("reload")

    async def announce(self, readiness: Readiness) -> None:
        """Say that this process is ready once it is, and until then what it waits for."""
        said = ""
        while self._channel is not None and (problems := readiness.all_problems()):
            if (why := "; ".join(problems)) != said:
                self._channel.send("waiting", said := why)
            await asyncio.sleep(READY_POLL_S)
        if self._channel is not None:
            self._channel.send("ready")

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        found = []
        if self.crashes.number:
            found.append(f"crashes: {self._crashes_told()}")
        if self.failure:
            found.append(f"settings: not reloaded, the old ones stay: {self.failure}")
        if self._starting is not None:
            waits = f", which is not ready yet: {self._starting}" if self._starting else ""
            found.append(f"settings: a successor reads them anew{waits}")
        return found

    def _crashes_told(self) -> str:
        times = "once" if self.crashes.number == 1 else f"{self.crashes.number} times"
        return (
            f"the serving process was started again {times} after a crash; "
            f"the last one {self.crashes.last}"
        )

    def _handle_message(self, word: str, sentence: str) -> None:
        self._starting = sentence if word == "starting" else None
        # What failed stays told while another successor tries: it may take long, or be replaced.
        if word == "failed":
            self.failure = sentence
            _LOG.error("settings not reloaded, the old ones stay", reason=sentence)


class SettingsFiles:
    """The settings file and the files that it names. Make it before they are read.

    A change is recognised by content: kubelets swap symbolic links. TLS files are not among these,
    since `certs/` reads them again itself.
    """

    def __init__(self, settings: Path | None, poll_s: float = FILES_POLL_S) -> None:
        self._poll_s = poll_s
        self._settings = settings
        self._read = self._digest()

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` once for each new content, once it has been the same for a moment: until
        then somebody may still be writing."""
        before = handled = self._read

        async def look() -> None:
            nonlocal before, handled
            await asyncio.sleep(self._poll_s)
            now = await asyncio.to_thread(self._digest)
            if now == before and now != handled:
                handled = now
                on_change()
            before = now

        await keep("watch of the settings", look)

    def _digest(self) -> bytes:
        found = hashlib.sha256()
        for path in self._paths():
            found.update(f"{path}\0".encode(errors="surrogateescape"))
            with suppress(OSError):  # a file that is missing differs from one that is empty
                found.update(hashlib.sha256(path.read_bytes()).digest())
        return found.digest()

    def _paths(self) -> Iterator[Path]:
        if self._settings is None:
            return
        yield self._settings
        with suppress(SettingsError):
            settings = load_settings(self._settings)
            if settings.health.rules_file is not None:
                yield Path(settings.health.rules_file)
            if settings.lint.driver_schemas is not None:
                yield from sorted(Path(settings.lint.driver_schemas).glob("*.json"))
