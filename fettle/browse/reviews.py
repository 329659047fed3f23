"""Asks the API server whose a token is, and what its user may do, for whoever calls the browse
listener. Strangers call it too, so what they can make of it is bounded: how many reviews run at
once, for how long, and how many tokens that nobody has used before are reviewed at all.
"""

import asyncio
import hashlib
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec
from cachetools import TTLCache

from fettle.api import api_path, api_server
from fettle.client import Session, decoded
from fettle.model import ClusterError, FettleError

REMEMBERED_S = 10.0
"""How long an answer of the API server counts."""
FORGOTTEN_S = 2.0
"""The same of a token that is nobody's: it may become somebody's."""
KNOWN_S = 3600.0
"""How long a token counts as one that was somebody's."""
REVIEW_S = 5.0
"""How long one review may take, with the wait for its turn."""
AT_ONCE = 8
MOST_USERS, MOST_ANSWERS = 1000, 20_000
LONGEST_TOKEN = 8000
WINDOW_S, STRANGE_TOKENS, STRANGE_TOKENS_OF_SOURCE = 10.0, 50, 10
"""In so many seconds, how many tokens that nobody has used before are reviewed, and of these from
one address."""

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_Found = TypeVar("_Found")


class NotShown(FettleError):
    """Whoever asks gets this HTTP status, and the sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Right(NamedTuple):
    """A verb on a resource: in one namespace, or in all, which is also for what has none."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource}{self.group and f'.{self.group}'}"
        named = f" {self.name!r}" if self.name else ""
        return what + named + (f" in namespace {self.namespace!r}" if self.namespace else "")


class User(NamedTuple):
    """`about` is what the API server says of them, `key` the same for each user."""

    name: str
    key: bytes
    about: Mapping[str, Any]


class Reviews:
    """`session` is None until there is one. `timer` is in seconds."""

    def __init__(
        self, session: Callable[[], Session | None], timer: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._users: TTLCache[bytes, User] = TTLCache(MOST_USERS, REMEMBERED_S, timer)
        self._nobodys: TTLCache[bytes, bool] = TTLCache(MOST_USERS, FORGOTTEN_S, timer)
        self._known: TTLCache[bytes, bool] = TTLCache(MOST_USERS, KNOWN_S, timer)
        self._allowed: TTLCache[tuple[bytes, Right], bool] = TTLCache(
            MOST_ANSWERS, REMEMBERED_S, timer
        )
        self._strangers = _Strangers(timer)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._asking: dict[Hashable, asyncio.Task[Any]] = {}

    async def user(self, token: str, source: str) -> User | None:
        """Whose the token is, which came from this address; None if nobody's. Raises NotShown."""
        if len(token) > LONGEST_TOKEN or not _TOKEN.fullmatch(token):
            return None
        key = hashlib.sha256(token.encode()).digest()
        if (found := self._users.get(key)) is not None or key in self._nobodys:
            return found
        return await self._once(key, lambda: self._review(token, key, source))

    async def allows(self, user: User, right: Right) -> bool:
        """Raises NotShown."""
        key = user.key, right
        if (found := self._allowed.get(key)) is not None:
            return found
        return await self._once(key, lambda: self._ask(user, right))

    async def _review(self, token: str, key: bytes, source: str) -> User | None:
        is_strange = key not in self._known
        if is_strange and not self._strangers.admit(source):
            raise NotShown(
                429,
                f"too many tokens that nobody has used before: try again in {WINDOW_S:g} s, or "
                "use a Unix socket (--browse-listen unix:PATH)",
            )
        spec = {"token": token}
        group = "authentication.k8s.io/v1"
        answer = await self._post(group, "TokenReview", spec, api_server.TokenReview)
        about, name = answer.status.user, answer.status.user.username
        if not answer.status.authenticated or not name:
            self._nobodys[key] = True
            return None
        if is_strange:
            self._strangers.was_known(source)
        self._known[key] = True
        told = msgspec.to_builtins(about)
        told["user"] = told.pop("username")
        digest = hashlib.sha256(msgspec.json.encode(about, order="sorted")).digest()
        self._users[key] = user = User(name, digest, told)
        return user

    async def _ask(self, user: User, right: Right) -> bool:
        spec = {**user.about, "resourceAttributes": right._asdict()}
        group = "authorization.k8s.io/v1"
        answer = await self._post(group, "SubjectAccessReview", spec, api_server.AccessReview)
        self._allowed[user.key, right] = answer.status.allowed
        return answer.status.allowed

    async def _once(self, key: Hashable, ask: Callable[[], Awaitable[_Found]]) -> _Found:
        """One review for all who ask the same at the same time."""
        if (task := self._asking.get(key)) is None:
            task = self._asking[key] = asyncio.ensure_future(ask())
            task.add_done_callback(lambda done: self._answered(key, done))
        found: _Found = await asyncio.shield(task)
        return found

    def _answered(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._asking[key]
        if not task.cancelled():
            task.exception()  # whoever waited has got it, if somebody still does

    async def _post(
        self, api_version: str, kind: str, spec: Mapping[str, Any], answer: type[_Found]
    ) -> _Found:
        if (session := self._session()) is None:
            raise NotShown(
                503, "nobody can be known yet: Fettle is still reading its own credentials"
            )
        path = api_path(api_version, f"{kind.lower()}s")
        body = {"apiVersion": api_version, "kind": kind, "spec": spec}
        try:
            async with asyncio.timeout(REVIEW_S), self._turns:
                raw = await session.create(path, body, timeout_s=REVIEW_S)
            return decoded(raw, answer, kind)
        except TimeoutError as error:
            why = f"{session.server} did not answer a {kind} within {REVIEW_S:g} s"
            raise NotShown(503, f"who you are, or may see, cannot be checked: {why}") from error
        except ClusterError as error:
            raise NotShown(503, f"who you are, or may see, cannot be checked: {error}") from error


class _Strangers:
    """Counts tokens that nobody has used before, by address, in windows of time."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._window = 0
        self._by_source: Counter[str] = Counter()

    def admit(self, source: str) -> bool:
        if (window := int(self._timer() // WINDOW_S)) != self._window:
            self._window, self._by_source = window, Counter()
        if (
            self._by_source.total() >= STRANGE_TOKENS
            or self._by_source[source] >= STRANGE_TOKENS_OF_SOURCE
        ):
            return False
        self._by_source[source] += 1
        return True

    def was_known(self, source: str) -> None:
        """The token was somebody's."""
        if self._by_source[source]:
            self._by_source[source] -= 1
