"""Mode `self`: an authority in a Secret, of which every replica signs its own leaf in memory.

`SelfSigning` runs in every replica: it makes the Secret if it is the first, reads it again and
again, and signs a new leaf at two thirds of its life or when another authority signs. `Rotation` is
the leader's: it replaces the authority, step by step. Where two write at once, one of them gets a
Conflict, and adopts what the other wrote.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

import structlog

from certs import authority, issuing
from certs.issuing import Pair
from fettle.errors import CertificateError, ClusterError, Conflict

POLL_S = 30.0
"""Shorter than `authority.PUBLISH_S`, so that each replica has the next bundle before it counts."""
_ATTEMPTS = 5

_log = structlog.get_logger("fettle.certs")


class Store(Protocol):
    """One Secret. `create` and `replace` raise Conflict when somebody else wrote first."""

    async def read(self) -> dict[str, bytes] | None: ...

    async def create(self, content: dict[str, bytes]) -> None: ...

    async def replace(self, content: dict[str, bytes]) -> None: ...


class Lifetimes(NamedTuple):
    """In seconds."""

    root_s: float = issuing.WEBHOOK_ROOT_S
    leaf_s: float = issuing.LEAF_S


class SelfSigning:
    """Signs leaves for `names` under the authority in the store, which it makes if there is none.

    `leaf` and `bundle` are what was last seen; None before the first `refresh`.
    """

    def __init__(
        self,
        store: Store,
        names: Sequence[str],
        *,
        clock: Callable[[], float],
        lifetimes: Lifetimes = Lifetimes(),  # noqa: B008 (immutable)
    ) -> None:
        self._store = store
        self._names = tuple(names)
        self._clock = clock
        self._lifetimes = lifetimes
        self._issuer = b""
        self.leaf: Pair | None = None
        self.bundle: bytes | None = None

    async def refresh(self) -> Pair | None:
        """A new leaf if it is time for one, else None.

        Raises ClusterError where the store cannot be used, CertificateError where what it holds
        is no authority; the leaf so far stays good until it expires.
        """
        found = await self._ensured()
        self.bundle = found.bundle
        now_s = self._clock()
        if (
            self.leaf is not None
            and self._issuer == found.signing.certificate
            and now_s < issuing.renew_at(self.leaf.certificate)
        ):
            return None
        self.leaf = issuing.leaf(
            found.signing, self._names, now_s=now_s, lifetime_s=self._lifetimes.leaf_s
        )
        self._issuer = found.signing.certificate
        return self.leaf

    async def keep(
        self,
        swap: Callable[[Pair], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Refresh for ever, handing each new leaf to `swap`; trouble is logged and tried again."""
        while True:
            await sleep(POLL_S)
            try:
                if (leaf := await self.refresh()) is not None:
                    swap(leaf)
                    _log.info("new leaf", expires_at=issuing.expires_at(leaf.certificate))
            except (ClusterError, CertificateError) as error:
                _log.warning("certificate not refreshed", reason=str(error))

    def rejection(self, live_bundle: bytes) -> str:
        """Why an API server with this caBundle would not accept us; "" if it would."""
        if self.leaf is None:
            return "there is no certificate yet"
        return issuing.rejection(
            self.leaf.certificate, live_bundle, self._names[0], now_s=self._clock()
        )

    async def _ensured(self) -> authority.Authority:
        """The authority in the store, made by us or by whoever was first.

        One that has expired is replaced by whoever notices: nobody could trust it any more, and
        to wait for a leader would keep replicas from starting.
        """
        for _ in range(_ATTEMPTS):
            content = await self._store.read()
            now_s = self._clock()
            if content:
                found = authority.read(content)
                if now_s < issuing.expires_at(found.signing.certificate):
                    return found
            made = authority.renewed(
                content or {}, self.common_name, now_s=now_s, lifetime_s=self._lifetimes.root_s
            )
            try:
                # A Secret without content is one that was installed empty, for us to fill.
                await (self._store.create(made) if content is None else self._store.replace(made))
            except Conflict:
                continue
        raise CertificateError("the Secret of the certificate authority cannot be filled")

    @property
    def common_name(self) -> str:
        """What an authority made by us is called."""
        return f"fettle CA for {self._names[0]}"


class Rotation:
    """The leader's part. It knows since when the bundle in force has been complete; a new leader
    begins that wait again."""

    def __init__(
        self,
        store: Store,
        common_name: str,
        *,
        clock: Callable[[], float],
        lifetimes: Lifetimes = Lifetimes(),  # noqa: B008 (immutable)
    ) -> None:
        self._store = store
        self._common_name = common_name
        self._clock = clock
        self._lifetimes = lifetimes
        self._published: tuple[bytes, float] | None = None

    async def turn(self, live_bundle: bytes | None) -> bytes | None:
        """One step, to be called every `POLL_S`; what caBundle must hold, None: no Secret yet.

        `live_bundle` is caBundle as it was read from the API server just now.
        """
        if not (content := await self._store.read()):
            return None
        now_s = self._clock()
        before = authority.read(content)
        done = authority.step(
            content,
            now_s=now_s,
            published_at=self._published_at(before.bundle, live_bundle, now_s),
            common_name=self._common_name,
            lifetime_s=self._lifetimes.root_s,
            leaf_lifetime_s=self._lifetimes.leaf_s,
        )
        if done.secret is content:
            return before.bundle
        try:
            await self._store.replace(dict(done.secret))
        except Conflict:
            return before.bundle  # the next turn sees what was written instead
        _log.info("certificate authority", step=done.why)
        return authority.read(done.secret).bundle

    def _published_at(self, bundle: bytes, live: bytes | None, now_s: float) -> float | None:
        if live is None or not _holds(live, bundle):
            self._published = None
            return None
        if self._published is None or self._published[0] != bundle:
            self._published = (bundle, now_s)
        return self._published[1]


def _holds(live: bytes, bundle: bytes) -> bool:
    try:
        return set(issuing.certificates(bundle)) <= set(issuing.certificates(live))
    except CertificateError:
        return False
