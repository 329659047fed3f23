"""Mode `self`: signs leaves under a certificate authority in a Secret, and rotates the authority.

Every replica runs a `LeafSigner`. It fills the Secret if that is empty, reads it again and again,
and keeps its leaf in memory. The leader rotates the webhook's authority, step by step, with
`Rotation`. The extender's needs no leader: `LongLivedSigner` announces its successor long before
that signs. If two replicas write at once, one gets a Conflict and adopts what the other wrote.
Nobody writes while this machine's clock and the API server's disagree.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from certs import authority, issuing
from certs.authority import MANIFEST, Authority, RotationStep, Secret
from certs.issuing import CLOCK_SKEW_S, DAY_S, Pair
from fettle.logs import Logger
from fettle.model import AuthorityError, CertificateError, ClusterError, Conflict, NotFound
from fettle.pacing import keep

POLL_S = 30.0
"""Shorter than `authority.PUBLISH_S`: each replica has the next bundle before it must be in use."""
_ATTEMPTS = 5
"""Each fails only if another replica wrote meanwhile."""
_HOUR_S = 3600.0

_log = Logger("fettle.certs")


class Clocks(NamedTuple):
    """This machine's clock and the API server's, in Unix seconds. Others check certificates, so
    these go by the API server's. But whoever replaces an authority that all share must be sure of
    the time: both clocks must agree.

    `server` is None before its first answer, and where a proxy takes the `Date` out of answers.
    """

    own: Callable[[], float]
    server: Callable[[], float | None]

    def now_s(self) -> float:
        """The API server's; without it, this machine's."""
        server_s = self.server()
        return self.own() if server_s is None else server_s

    def disagreement(self) -> str:
        """Such as "this machine's clock is 2 days ahead of the API server's"; "" if they agree."""
        if (server_s := self.server()) is None:
            return ""
        ahead_s = self.own() - server_s
        if abs(ahead_s) <= CLOCK_SKEW_S:
            return ""
        side = "ahead of" if ahead_s > 0 else "behind"
        return f"this machine's clock is {_in_words(abs(ahead_s))} {side} the API server's"


def _in_words(seconds: float) -> str:
    unit_s, unit = (DAY_S, "day") if seconds >= 2 * DAY_S else (_HOUR_S, "hour")
    number = round(seconds / unit_s)
    return f"{number} {unit}{'' if number == 1 else 's'}"


class AuthorityStore(Protocol):
    """One Secret. `replace` raises Conflict if somebody else wrote first, NotFound if it is gone.

    `full_name` is such as "Secret fettle-system/fettle-webhook-ca".
    """

    @property
    def full_name(self) -> str: ...

    async def read(self) -> dict[str, bytes] | None: ...

    async def replace(self, content: dict[str, bytes]) -> None: ...


class Lifetimes(NamedTuple):
    """In seconds."""

    root_s: float = issuing.WEBHOOK_ROOT_S
    leaf_s: float = issuing.LEAF_S


class LeafSigner:
    """Signs leaves for `names` under the authority in the store. It makes that if there is none.

    `leaf` and `authority` are the latest ones; None before the first `refresh`. `trouble` says why
    they cannot be refreshed now; "" if they can. `clocks` are those that they go by.
    """

    def __init__(
        self,
        store: AuthorityStore,
        names: Sequence[str],
        *,
        clock: Callable[[], float],
        server_clock: Callable[[], float | None],
        lifetimes: Lifetimes = Lifetimes(),  # noqa: B008 (immutable)
    ) -> None:
        self._store = store
        self._names = tuple(names)
        self.clocks = Clocks(clock, server_clock)
        self._lifetimes = lifetimes
        self._issuer = b""
        self.leaf: Pair | None = None
        self.authority: Authority | None = None
        self.trouble = ""

    @property
    def bundle(self) -> bytes | None:
        """What callers must trust."""
        return self.authority.bundle if self.authority is not None else None

    async def refresh(self) -> Pair | None:
        """A new leaf at two thirds of the old one's life, or if another authority signs; else None.

        Raises ClusterError if the store cannot be used, and AuthorityError if it holds no
        authority. The old leaf then stays in use until it expires.
        """
        self.authority = await self._ensured()
        now_s = self.clocks.now_s()
        signer = self._signer(self.authority, now_s)
        if (
            self.leaf is not None
            and self._issuer == signer.certificate
            and issuing.is_valid(self.leaf.certificate, now_s)
            and now_s < issuing.renew_at(self.leaf.certificate)
        ):
            return None
        with authority.errors_naming(self._store.full_name):
            self.leaf = issuing.leaf(
                signer, self._names, now_s=now_s, lifetime_s=self._lifetimes.leaf_s
            )
        self._issuer = signer.certificate
        return self.leaf

    async def keep(
        self,
        swap: Callable[[Pair], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Renew again and again, until cancelled."""
        pause_s = min(POLL_S, self._lifetimes.leaf_s / 10)
        await keep(
            f"certificates by {self._store.full_name}",
            partial(self.renew, swap),
            when=lambda: sleep(pause_s),
        )

    async def renew(self, swap: Callable[[Pair], None]) -> None:
        """Refresh now, and give a new leaf to `swap`; sets `trouble` instead of raising."""
        try:
            if (leaf := await self.refresh()) is not None:
                swap(leaf)
                _log.info("certificate renewed", expires_at=issuing.expires_at(leaf.certificate))
            self.trouble = ""
        except (ClusterError, CertificateError) as error:
            self.trouble = str(error)

    def rejection(self, live_bundle: bytes) -> str:
        """Why an API server with this caBundle would not accept us; "" if it would."""
        if self.leaf is None:
            return "there is no certificate yet"
        if not live_bundle:
            return "no caBundle is written yet"
        return issuing.rejection(
            self.leaf.certificate, live_bundle, self._names[0], now_s=self.clocks.now_s()
        )

    async def _ensured(self) -> Authority:
        """The authority in the store, made by this replica or another.

        Whoever notices that it is not valid replaces it: nobody can trust it now, and replicas
        could not start if they had to wait for a leader.
        """
        for _ in range(_ATTEMPTS):
            content = await self._store.read()
            if content is None:
                raise AuthorityError(
                    f"{self._store.full_name} is missing: apply {MANIFEST}, which has it without "
                    "data, and Fettle fills it"
                )
            with authority.errors_naming(self._store.full_name):
                wanted = self._wanted(content, self.clocks.now_s())
            if wanted.secret is content:
                return authority.read(wanted.secret)
            if unsure := self.clocks.disagreement():
                raise AuthorityError(
                    f"{self._store.full_name} would get another authority, since {wanted.why}; but "
                    f"{unsure}: set the clock that is wrong"
                )
            try:
                await self._store.replace(dict(wanted.secret))
            except (Conflict, NotFound):
                continue
            log = _log.info if self.authority is None else _log.warning
            log("certificate authority written", of=self._names[0], why=wanted.why)
        raise AuthorityError(
            f"{self._store.full_name} keeps being overwritten; make sure that only Fettle writes it"
        )

    def _wanted(self, content: Secret, now_s: float) -> RotationStep:
        """What the store should hold; if that is `content` itself, there is nothing to write."""
        return authority.ensured(
            content, self.common_name, now_s=now_s, lifetime_s=self._lifetimes.root_s
        )

    def _signer(self, found: Authority, now_s: float) -> Pair:
        return found.signing

    @property
    def common_name(self) -> str:
        """The name of an authority that this replica creates."""
        return f"fettle CA for {self._names[0]}"


class LongLivedSigner(LeafSigner):
    """For an authority that callers read only when they start, as kube-scheduler does.

    Near its end, the next one is written beside it. That signs as soon as the old one would outlive
    no whole leaf any more. By then callers must trust both.
    """

    @property
    def handover_at(self) -> float | None:
        """When the next authority begins to sign, Unix seconds; None if there is no next one."""
        if self.authority is None or self.authority.next is None:
            return None
        return issuing.expires_at(self.authority.signing.certificate) - self._lifetimes.leaf_s

    def _wanted(self, content: Secret, now_s: float) -> RotationStep:
        wanted = super()._wanted(content, now_s)
        if wanted.secret is not content:
            return wanted
        return authority.with_next(
            content, self.common_name, now_s=now_s, lifetime_s=self._lifetimes.root_s
        )

    def _signer(self, found: Authority, now_s: float) -> Pair:
        over_at = issuing.expires_at(found.signing.certificate) - self._lifetimes.leaf_s
        return found.next if found.next is not None and now_s >= over_at else found.signing


class Rotation:
    """What the leader does: it advances the authority in the store, one step at a time.

    It remembers since when caBundle has been complete. A new leader starts that wait anew.
    """

    def __init__(
        self,
        store: AuthorityStore,
        common_name: str,
        *,
        clock: Callable[[], float],
        server_clock: Callable[[], float | None],
        lifetimes: Lifetimes = Lifetimes(),  # noqa: B008 (immutable)
    ) -> None:
        self._store = store
        self._common_name = common_name
        self._clocks = Clocks(clock, server_clock)
        self._lifetimes = lifetimes
        self._published: tuple[bytes, float] | None = None

    async def advance(self, live_bundle: bytes | None) -> bytes | None:
        """Take one step, and return what caBundle must hold; None: there is no authority yet.

        Call it every `POLL_S`. `live_bundle` is caBundle as just read from the API server.
        """
        if not (content := await self._store.read()):
            return None
        now_s = self._clocks.now_s()
        with authority.errors_naming(self._store.full_name):
            before = authority.read(content)
        done = authority.next_step(
            content,
            now_s=now_s,
            published_at=self._published_at(before.bundle, live_bundle, now_s),
            common_name=self._common_name,
            lifetime_s=self._lifetimes.root_s,
            leaf_lifetime_s=self._lifetimes.leaf_s,
        )
        if done.secret is content or self._clocks.disagreement():
            return before.bundle
        try:
            await self._store.replace(dict(done.secret))
        except (Conflict, NotFound):
            return before.bundle  # the next step sees what was written instead
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
