"""Who may call a listener that asks for client certificates: those whose certificate has one of the
names in the settings. A certificate is looked at once, when its connection is made."""

import ssl
import time
from collections.abc import Callable, Collection

import structlog
from cachetools import TTLCache

from certs import issuing
from certs.serving import ListenerTLS

SETTING = "extender.tls.clientNames"
TOLD_EVERY_S = 3600.0
MOST_TOLD = 20
"""How many names are told of in that time. Whoever signs certificates can invent names."""
_SHOWN = 100
"""How many characters of a name are shown."""

_LOG = structlog.get_logger("fettle.certs")


class KnownCallers:
    """Makes a caller of each connection.

    One is `allowed` by the common name, which Kubernetes takes for the user's name, or by a DNS
    name. `count` is given the kind of each refusal: `name`. `timer` is in seconds.
    """

    def __init__(
        self,
        allowed: Collection[str],
        count: Callable[[str], None],
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allowed = frozenset(allowed)
        self._count = count
        self._told: TTLCache[tuple[str, str], bool] = TTLCache(MOST_TOLD, TOLD_EVERY_S, timer)

    @classmethod
    def of(
        cls, tls: ListenerTLS, allowed: Collection[str], count: Callable[[str], None]
    ) -> "KnownCallers | None":
        """None where callers present no certificate."""
        serving = tls.certificate
        if serving is None or serving.client_ca is None:
            return None
        return cls(allowed, count)

    def __call__(self, connection: ssl.SSLObject) -> "KnownCaller":
        return KnownCaller(self, connection)

    def refused(self, kind: str, name: str, reason: str) -> str:
        """Count it, and log it once for each name. Returns the reason."""
        self._count(kind)
        self._told.expire()
        if (kind, name) not in self._told and len(self._told) < MOST_TOLD:
            self._told[kind, name] = True
            _LOG.warning("caller refused", of="extender", reason=reason)
        return reason


class KnownCaller:
    """The caller at the other end of one connection."""

    def __init__(self, callers: KnownCallers, connection: ssl.SSLObject) -> None:
        self._callers = callers
        names = issuing.names_in(connection.getpeercert(binary_form=True) or b"")
        self._name = repr(names[0][:_SHOWN]) if names else ""
        self.in_force = not callers.allowed.isdisjoint(names)

    def refusal(self) -> str:
        """Why the request of a caller that is not in force is not answered."""
        reason = (
            f"the client certificate is for {self._name}, which is not among the names in {SETTING}"
            if self._name
            else "the client certificate has neither a common name nor a DNS name, so it is not "
            f"among the names in {SETTING}"
        )
        return self._callers.refused("name", self._name, reason)
