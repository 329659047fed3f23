"""What several processes of Fettle have recorded, as one: each of them knows only what it was asked
itself.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fettle.cli.calling import Answered, fetch
from fettle.model import FettleError

AS_SHIPPED = ("http://127.0.0.1:8090", "http://127.0.0.1:8091")
"""Where the two static pods of `deploy/scheduler/` listen. There may be only one."""


class OfAll(NamedTuple):
    """By server: what it answered. `notes`: sentences about those that did not."""

    by_server: dict[str, Any]
    notes: list[str]

    def all_notes(self) -> list[str]:
        """Those of the servers too, each with whose it is, if there are several."""
        several = len(self.by_server) > 1
        told = [
            f"{server}: {note}" if several else note
            for server, answer in self.by_server.items()
            for note in answer["notes"]
        ]
        return [*told, *self.notes]


def ask_all(given: Sequence[str], path: str, query: dict[str, str]) -> OfAll:
    """Ask these servers, or those of AS_SHIPPED, of which one is enough. Raises FettleError if none
    answers, or one refuses to."""
    servers = tuple(given) or AS_SHIPPED
    found: dict[str, Any] = {}
    failed: dict[str, FettleError] = {}
    for server in servers:
        try:
            found[server] = fetch(server, path, query)
        except Answered:
            raise
        except FettleError as error:
            failed[server] = error
    if not found:
        raise next(iter(failed.values()))
    missing = failed.values() if servers != AS_SHIPPED else ()
    return OfAll(found, [f"what it decided is not here: {error}" for error in missing])
