"""Keys and certificates where OpenSSL can read them, which it does from files only. Where the
system can have files in memory, nothing is written to disk.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def written(content: bytes) -> Iterator[str]:
    """The path of a file with this content, which is gone afterwards."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("fettle-key"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as named:  # not Linux: a user's own machine
        named.write(content)
        named.flush()
        yield named.name
