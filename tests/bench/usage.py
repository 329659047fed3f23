"""What processes use, as Linux accounts for it."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, user and system, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Memory that a process and its children hold now."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return _status_mb(pid, "VmRSS") + sum(resident_mb(int(child)) for child in children)


def peak_mb(pid: int) -> float:
    """The most memory that a process ever held, without its children."""
    return _status_mb(pid, "VmHWM")


def _status_mb(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has no {field}: it ended")
