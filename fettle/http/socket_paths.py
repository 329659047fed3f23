"""Unix sockets to listen on: only their owner can open one."""

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path


def bound_to(path: Path) -> socket.socket:
    """A socket at this path, in place of one on which nobody listens. Raises OSError."""
    if is_answered(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
    # Others find it only once it is theirs no more.
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    found = socket.socket(socket.AF_UNIX)
    try:
        found.bind(str(beside))
        beside.chmod(0o600)
        beside.rename(path)
    except OSError:
        found.close()
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    return found


def is_answered(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
