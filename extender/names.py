"""The memory that the names of requests are in: kept in order, from one request to the next.

A request's names are so many new strings, in the places that the ones before them were freed from,
the last one freed first. Freed in any other order than the reverse of the one they were made in,
they end up in no order at all within hundreds of kilobytes; and to write and read them there takes
twice as long, since a processor fetches beforehand only what lies in a row.
"""

from fettle.scheduling import Narrowed

TIDY_EVERY = 64
"""Other strings come and go too: so often the places themselves are brought into order."""


class Names:
    """Frees the names of requests."""

    def __init__(self) -> None:
        self._freed = 0

    def free(self, narrowed: Narrowed) -> None:
        """Empty the lists, and free the names unless somebody else has them."""
        names, passed = narrowed
        if passed is not names:
            passed.clear()
        self._freed += 1
        if self._freed % TIDY_EVERY == 0:
            names.sort(key=id)
        names.clear()
