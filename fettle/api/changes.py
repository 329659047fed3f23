"""What a feed tells the writer: objects that came, went or cannot be read, and how fresh it is."""

from typing import NamedTuple, Protocol

from fettle.api import core
from fettle.api.kinds import Kind, WireObject


class Pools(NamedTuple):
    """Pools of devices: of this driver and name, None for any. `anywhere`: nodes that see no such
    pool may have one all the same."""

    driver: str | None = None
    pool: str | None = None
    anywhere: bool = False

    def include(self, driver: str, pool: str) -> bool:
        return self.driver in (None, driver) and self.pool in (None, pool)


class Put(NamedTuple):
    """An object as it is now."""

    kind: Kind
    object: WireObject


class Gone(NamedTuple):
    """An object was deleted; `key` is `namespace/name`, or `name` where cluster-scoped."""

    kind: Kind
    key: str


class SalvagedNode(NamedTuple):
    """A Node without its unreadable parts: `broken` names them, such as `status.conditions` or, if
    a section is not an object at all, `status`.
    """

    node: core.Node
    broken: frozenset[str]


class Bad(NamedTuple):
    """An object cannot be read: it is quarantined under its key until it is put or gone.

    `node` is the node it speaks for as far as can be told, else ""; `pools` are those whose devices
    may be other than they seem without it; `left` is what of a Node can be read.
    """

    kind: Kind
    key: str
    reason: str
    node: str = ""
    pools: tuple[Pools, ...] = ()
    left: SalvagedNode | None = None


class ListStarted(NamedTuple):
    """A full list follows; what it does not put before `ListEnded` is gone."""

    kind: Kind


class ListEnded(NamedTuple):
    """The list is complete: the kind is synced."""

    kind: Kind


class Contact(NamedTuple):
    """The source of this kind spoke (event or bookmark)."""

    kind: Kind


class Lost(NamedTuple):
    """The source of this kind cannot be read at present; `note` is one sentence for people."""

    kind: Kind
    note: str


class Unserved(NamedTuple):
    """The cluster does not serve this kind at all; it counts as synced and empty."""

    kind: Kind
    note: str


Change = Put | Gone | Bad | ListStarted | ListEnded | Contact | Lost | Unserved


class Sink(Protocol):
    """Takes changes in order; waits while the writer is behind."""

    async def send(self, changes: list[Change]) -> None: ...
