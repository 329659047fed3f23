"""The decisions that are kept: the newest ones in memory, bounded in number and bytes, and a
journal of them on disk. What goes over all of them pauses.

The journal is lines of JSON that are appended, of which the last one about a decision counts. A
file that grew too long is written anew from what is in memory. Whatever is wrong with the folder or
the lines becomes a note, and decisions stay in memory.
"""

import errno
import os
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path

import msgspec

from fettle.logs import Logger
from fettle.model import BadInput
from fettle.pacing import pause
from fettle.records.decisions import ENDED, PLACING, Decision

_BYTES_UNWRITTEN = 600
"""What a decision counts for before it is encoded."""
FILE = "decisions.jsonl"
_DECODER = msgspec.json.Decoder(Decision)
_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk."""

_LOG = Logger(__name__)
_ACCEPTED = "a number and a unit, such as 90s, 30m, 1h or 7d"
MOST_SINCE_DAYS = 3650
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


class DecisionLog:
    """Holds up to `most` decisions, of `max_bytes` as JSON. The oldest ones go first."""

    def __init__(self, most: int, max_bytes: int) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._bytes = 0
        self._by_id: OrderedDict[str, Decision] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._newest: dict[Hashable, Decision] = {}
        self._of_pod: dict[str, Decision] = {}
        self._changed: dict[str, Decision] = {}

    def note(self, decision: Decision) -> Decision:
        """Add a decision, or count it in the last one about its object if it says the same."""
        last = self._newest.get(decision.subject)
        if last is not None and last.said == decision.said:
            last.repeat(decision)
            self.touch(last)
            return last
        self._add(decision)
        self._changed[decision.id] = decision
        return decision

    def touch(self, decision: Decision) -> None:
        """The decision changed, so it is to be written again."""
        self._changed[decision.id] = decision

    def restore(self, decision: Decision) -> None:
        """Add a decision as it was written by an earlier process; a later line replaces it."""
        if (before := self._by_id.get(decision.id)) is not None:
            self._forget(before)
        self._add(decision)

    def _add(self, decision: Decision) -> None:
        self._by_id[decision.id] = decision
        self._newest[decision.subject] = decision
        if decision.uid and decision.verb in PLACING:
            self._of_pod[decision.uid] = decision
        self._resize(decision.id, _BYTES_UNWRITTEN)
        while len(self._by_id) > self._most or (
            self._bytes > self._max_bytes and len(self._by_id) > 1
        ):
            self._forget(next(iter(self._by_id.values())))

    def _forget(self, decision: Decision) -> None:
        del self._by_id[decision.id]
        self._changed.pop(decision.id, None)
        self._bytes -= self._sizes.pop(decision.id)
        if self._newest.get(decision.subject) is decision:
            del self._newest[decision.subject]
        if self._of_pod.get(decision.uid) is decision:
            del self._of_pod[decision.uid]

    def _resize(self, id_: str, size: int) -> None:
        self._bytes += size - self._sizes.get(id_, 0)
        self._sizes[id_] = size

    def of_pod(self, uid: str) -> Decision | None:
        """The last decision on where this pod goes."""
        return self._of_pod.get(uid)

    def open(self) -> list[Decision]:
        """The last decision on each pod that has not ended."""
        return [one for one in self._of_pod.values() if one.became not in ENDED]

    def changed(self) -> list[tuple[Decision, bytes]]:
        """The decisions that changed since the last call, each as a line of JSON."""
        changed, self._changed = self._changed, {}
        lines = []
        for decision in changed.values():
            line = msgspec.json.encode(decision)
            if decision.id in self._by_id:  # it may be forgotten during a pause
                self._resize(decision.id, len(line))
            lines.append((decision, line))
            pause()
        return lines

    def lines(self) -> list[bytes]:
        """All of them as JSON, the oldest first."""
        lines = []
        for one in self:
            lines.append(msgspec.json.encode(one))
            pause()
        return lines

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Decision]:
        """The oldest first."""
        return iter([*self._by_id.values()])

    def select(
        self, since: float, *, pod: str = "", node: str = "", policy: str = ""
    ) -> list[Decision]:
        """Those that were said after `since`, the newest first; what is "" is not asked for."""
        found = []
        for one in self:
            if (
                one.last >= since
                and (not pod or one.key == pod)
                and (not policy or one.policy == policy)
                and (not node or node in self._nodes_of(one))
            ):
                found.append(one)
            pause()
        return sorted(found, key=lambda one: one.last, reverse=True)

    def with_fate(self, decision: Decision) -> Decision:
        """The decision with what became of its pod, which is kept in the last one."""
        last = self._of_pod.get(decision.uid)
        if last is None or last is decision:
            return decision
        return msgspec.structs.replace(
            decision,
            placed=last.placed,
            became=last.became,
            became_at=last.became_at,
            end=last.end,
        )

    def _nodes_of(self, decision: Decision) -> set[str]:
        last = self._of_pod.get(decision.uid)
        placed = {last.placed.node} if last is not None and last.placed is not None else set()
        return {*decision.refused_nodes, *decision.preferred} | placed


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


def seconds_of(age: str) -> float:
    """Raises BadInput that says what is accepted."""
    parts = _PART.findall(age) if _WHOLE.fullmatch(age.strip()) else ()
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not 0 < seconds <= MOST_SINCE_DAYS * 86400:
        raise BadInput(f"since {age[:40]!r}: write {_ACCEPTED}")
    return seconds
