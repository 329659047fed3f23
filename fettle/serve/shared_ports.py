"""Whether another process listens on the same port, as the second of two static pods does."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS = "0A"


def are_shared(files: Sequence[int]) -> bool:
    """Whether somebody else listens where these sockets do; False where there is no Linux."""
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
