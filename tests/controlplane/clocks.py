"""A clock of Fettle's that a test sets, so that hours pass in a moment."""

from __future__ import annotations

import time
from pathlib import Path

from tests.controlplane.fettle_process import REPOSITORY

_SITE = """\
import os, time

real, said_in = time.time, os.environ["TEST_CLOCK"]


def jumped():
    try:
        with open(said_in) as file:
            return real() + float(file.read() or 0)
    except (OSError, ValueError):
        return real()


time.time = jumped
"""


class Clock:
    """Ahead of the real one by what its file says."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE)
        self.env = {"PYTHONPATH": f"{site}:{REPOSITORY}", "TEST_CLOCK": str(self._file)}
        """For the process that has this clock."""
        self.jump(0.0)

    def jump(self, ahead_s: float) -> None:
        """From now on it is so far ahead of the real one."""
        self._ahead_s = ahead_s
        beside = self._file.with_suffix(".new")
        beside.write_text(str(ahead_s))
        beside.replace(self._file)

    def set(self, at: float) -> None:
        """Now it is this Unix time there."""
        self.jump(at - time.time())

    def now(self) -> float:
        return time.time() + self._ahead_s
