"""Who may call a listener that asks for client certificates: those whose certificate has one of the
names in the settings, if there are any, as long as the client CA is the one that verified it.

A certificate is looked at once, when its connection is made. kube-scheduler and the API server keep
one for days, so a client CA that was taken away ends it with its next request.
"""

import ssl
import time
from collections.abc import Callable, Collection

from cachetools import TTLCache

from certs import issuing
from certs.serving import ListenerTLS, ServingCertificate, trust_of
from fettle.logs import Logger

TOLD_EVERY_S = 3600.0
MOST_TOLD = 20
"""How many names are told of in that time. Whoever signs certificates can invent names."""
_SHOWN = 100
"""How many characters of a name are shown."""

_LOG = Logger("fettle.certs")


def _uncounted(_kind: str) -> None: ...


class KnownCallers:
    """Makes a caller of each connection of a listener that is served with this certificate.

    A caller is `allowed` by the common name, which Kubernetes takes for the user's name, or by a
    DNS name; without `allowed`, by any certificate. `count` is given the kind of each refusal:
    `name` or `client_ca`. `timer` is in seconds.
    """

    def __init__(
        self,
        serving: ServingCertificate,
        allowed: Collection[str] | None = None,
        count: Callable[[str], None] = _uncounted,
        *,
        listener: str = "extender",
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.serving = serving
        self.allowed = None if allowed is None else frozenset(allowed)
        self.listener = listener
        self.clock = clock
        self._count = count
        self._number = 0
        self._last = ""
        """Why the last one was refused."""
        self._told: TTLCache[tuple[str, str], bool] = TTLCache(MOST_TOLD, TOLD_EVERY_S, timer)

    @classmethod
    def of(
        cls,
        listener: str,
        tls: ListenerTLS,
        allowed: Collection[str] | None = None,
        count: Callable[[str], None] = _uncounted,
    ) -> "KnownCallers | None":
        """None where callers present no certificate."""
        serving = tls.certificate
        if serving is None or serving.client_ca is None:
            return None
        return cls(serving, allowed, count, listener=listener)

    def __call__(self, connection: ssl.SSLObject) -> "KnownCaller":
        return KnownCaller(self, connection)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`."""
        if not self._number:
            return []
        requests = "1 request was" if self._number == 1 else f"{self._number} requests were"
        return [
            f"{self.listener}: {requests} refused for the caller's certificate; the last: "
            f"{self._last}"
        ]

    def refused(self, kind: str, name: str, reason: str) -> str:
        """Count it, and log it once for each name. Returns the reason."""
        self._count(kind)
        self._number, self._last = self._number + 1, reason
        self._told.expire()
        if (kind, name) not in self._told and len(self._told) < MOST_TOLD:
            self._told[kind, name] = True
            _LOG.warning("caller refused", of=self.listener, reason=reason)
        return reason


class KnownCaller:
    """The caller at the other end of one connection."""

    def __init__(self, callers: KnownCallers, connection: ssl.SSLObject) -> None:
        self._callers = callers
        self._serving = callers.serving
        self._trust = trust_of(connection.context)
        self._certificate = connection.getpeercert(binary_form=True) or b""
        names = issuing.names_in(self._certificate)
        self._name = repr(names[0][:_SHOWN]) if names else ""
        self._is_allowed = callers.allowed is None or not callers.allowed.isdisjoint(names)
        self._generation = self._trust.generation if self._is_allowed else -1

    @property
    def in_force(self) -> bool:
        """Whether each request may be answered and the connection kept."""
        return self._generation == self._serving.trust.generation

    def refusal(self) -> str:
        """Why the request of a caller that is not in force is not answered; "" if it is, as the
        last one: the client CA has changed, and trusts this certificate, too."""
        settings = f"{self._callers.listener}.tls"
        if not self._is_allowed:
            reason = (
                f"the client certificate is for {self._name}, which is not among the names in "
                f"{settings}.clientNames"
                if self._name
                else "the client certificate has neither a common name nor a DNS name, so it is "
                f"not among the names in {settings}.clientNames"
            )
            return self._callers.refused("name", self._name, reason)
        now, before = self._serving.trust, self._trust.certificates
        if before and before <= now.certificates:
            return ""
        if issuing.is_issued_by(self._certificate, now.client_ca, now_s=self._callers.clock()):
            return ""
        reason = (
            f"the client certificate, for {self._name}, was signed by an authority that is no "
            f"longer in {settings}.clientCaFile"
        )
        return self._callers.refused("client_ca", self._name, reason)
