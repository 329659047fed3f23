"""The decisions on disk: lines of JSON that are appended, of which the last one about a decision
counts. A file that grew too long is written anew from what is in memory.

Whatever is wrong with the folder or the lines becomes a note, and decisions stay in memory.
"""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from fettle.logs import Logger
from fettle.records.decisions import Decision

FILE = "decisions.jsonl"
_DECODER = msgspec.json.Decoder(Decision)
_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk."""

_LOG = Logger(__name__)


class Journal:
    """In the folder; None: there is none. The file may grow to `max_bytes`."""

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        self._path = folder / FILE if folder is not None else None
        self._max_bytes = max_bytes
        self._size = 0
        self._unreadable = 0
        self._problem = ""
        self._advice = ""

    def notes(self) -> list[str]:
        """For `/readyz?verbose` and `/decisions`."""
        if self._path is None:
            return ["records: in memory only, a restart forgets them (setting records.directory)"]
        if self._problem:
            return [
                f"records: in memory only, a restart forgets them: {self._problem}; {self._advice}"
            ]
        found = [f"records: in {self._path}"]
        if self._unreadable:
            found.append(f"records: {self._unreadable} lines could not be read and were left out")
        return found

    def load(self) -> list[Decision]:
        """What is on disk, in its order."""
        if self._path is None:
            return []
        found = []
        try:
            with self._path.open("rb") as file:
                for line in file:
                    try:
                        found.append(_DECODER.decode(line))
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                        self._unreadable += bool(line.strip())
                self._size = file.tell()
        except FileNotFoundError:
            pass
        except OSError as error:
            self._failed("cannot be read", error)
        if self._unreadable:
            _LOG.warning("records: lines cannot be read", file=str(self._path), n=self._unreadable)
        return found

    def append(self, lines: Iterable[bytes]) -> bool:
        """Whether they were written."""
        if self._path is None:
            return True
        data = b"".join(line + b"\n" for line in lines)
        try:
            with self._path.open("ab") as file:
                if file.tell() and not self._ends_in_newline():
                    data = b"\n" + data  # a process that died in the middle of a line
                file.write(data)
                self._size = file.tell()
        except OSError as error:
            self._failed("cannot be written", error)
            return False
        self._worked()
        return True

    @property
    def too_long(self) -> bool:
        return self._size > self._max_bytes

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Put these lines in place of all."""
        if self._path is None:
            return
        beside = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            with beside.open("wb") as file:
                file.writelines(line + b"\n" for line in lines)
                self._size = file.tell()
            beside.replace(self._path)
        except OSError as error:
            self._failed("cannot be written", error)
            self._size = 0  # the next try is after as many lines again

    def _ends_in_newline(self) -> bool:
        assert self._path is not None
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _failed(self, what: str, error: OSError) -> None:
        problem = f"{self._path} {what}: {error.strerror}"
        self._advice = (
            "free some space there, or name another folder in records.directory"
            if error.errno in _FULL
            else "make it a folder that Fettle's user can write"
        )
        if problem != self._problem:
            self._problem = problem
            _LOG.warning("records stay in memory", reason=problem)

    def _worked(self) -> None:
        if self._problem:
            self._problem = ""
            _LOG.info("records are written again", file=str(self._path))
