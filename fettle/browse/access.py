"""Who asks the browse listener, and what they may see.

Loopback proves nothing: sidecars pass requests on from there, and so does a browser whose page has
rebound its name (decision 0085). So a caller shows a bearer token, which the API server knows. Only
a Unix socket needs none: whoever can open it may see everything.
"""

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fettle.browse.reviews import AT_ONCE, NotShown, Reviews, Right, User

DEVICES = Right("list", "devicehealths", "fettle.dev")
"""What it takes to see nodes, devices, and why they are as they are."""
PODS = Right("list", "pods")
_TURNS = AT_ONCE // 2
SHOWN_S = 10.0
"""How long it may take to find out which namespaces somebody may see."""
_HOW = (
    "send the header 'Authorization: Bearer TOKEN'. `fettle` sends your kubeconfig's token, or the "
    "one in FETTLE_TOKEN; `kubectl -n fettle-system create token fettle-reader` makes one"
)
_HOW_WITHOUT_CLUSTER = (
    "send the header 'Authorization: Bearer TOKEN' with the token of the URL that `fettle serve` "
    "printed when it started, or use that URL as it is: fettle devices --server URL"
)
_HOW_ON_THIS_MACHINE = "open the URL that `fettle ui` printed"
INVITED_S = 120.0
"""How long a code can be changed for the token."""


def pods_in(namespace: str) -> Right:
    """What it takes to see the pods of a namespace, and what was decided about them."""
    return PODS._replace(namespace=namespace)


class Viewer:
    """Somebody who may see everything."""

    async def may(self, right: Right) -> bool:
        return True

    async def require(self, right: Right) -> None:
        """Raises NotShown unless they may."""
        if not await self.may(right):
            raise NotShown(403, f"{self} may not {right}, which is needed to see this")

    async def shown(self, namespaces: Iterable[str]) -> Collection[str]:
        """Those of the namespaces whose pods they may list."""
        return frozenset(namespaces)


class _ViewerOf(Viewer):
    """Somebody who may see everything, but of pods only those of one namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __str__(self) -> str:
        return "this page"

    async def may(self, right: Right) -> bool:
        return right.resource != PODS.resource or right.namespace == self._namespace

    async def shown(self, namespaces: Iterable[str]) -> Collection[str]:
        return frozenset(namespaces) & {self._namespace}


class _ReviewedViewer(Viewer):
    """Somebody whom the API server knows, and who may see what they may see there."""

    def __init__(self, reviews: Reviews, user: User) -> None:
        self._reviews = reviews
        self._user = user

    def __str__(self) -> str:
        return self._user.name

    async def may(self, right: Right) -> bool:
        return await self._reviews.allows(self._user, right)

    async def shown(self, namespaces: Iterable[str]) -> Collection[str]:
        if await self.may(PODS):
            return frozenset(namespaces)
        found: set[str] = set()
        try:
            async with asyncio.timeout(SHOWN_S):
                # A few at once, so that nobody takes the turns of all others.
                left = sorted(set(namespaces))
                while left:
                    some, left = left[:_TURNS], left[_TURNS:]
                    allowed = await asyncio.gather(*(self.may(pods_in(one)) for one in some))
                    found.update(one for one, may in zip(some, allowed, strict=True) if may)
        except TimeoutError as error:
            why = f"what you may see cannot be found out within {SHOWN_S:g} s: try again"
            raise NotShown(503, why) from error
        return found


TRUSTED = Viewer()
Access = Callable[[web.Request], Awaitable[Viewer]]
"""Who asks; raises NotShown."""


async def trusting(_request: web.Request) -> Viewer:
    """Of a Unix socket."""
    return TRUSTED


def by_token(token: str) -> Access:
    """Of a Fettle without a cluster: whoever has this token may see everything."""
    return _by_token(token, TRUSTED, _HOW_WITHOUT_CLUSTER)


def _by_token(token: str, viewer: Viewer, how: str) -> Access:
    async def access(request: web.Request) -> Viewer:
        if not hmac.compare_digest(_bearer(request, how), token.encode()):
            raise NotShown(401, f"this is not the token of this server: {how}")
        return viewer

    return access


class Invitation:
    """Who may see the page of a Fettle that runs for one person: whoever has its random `token`.

    Others on the same machine reach the same ports, and may read the command line that a browser is
    started with. So what stands there is a `code`, with which the page asks for the token, once and
    soon. Whoever comes second is told that somebody was faster.
    """

    def __init__(self, namespace: str = "", timer: Callable[[], float] = time.monotonic) -> None:
        """Of a `namespace`, if one is given, are all the pods that are shown."""
        self.token, self.code = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        viewer = _ViewerOf(namespace) if namespace else TRUSTED
        self.access = _by_token(self.token, viewer, _HOW_ON_THIS_MACHINE)
        self._timer = timer
        self._until = timer() + INVITED_S
        self._is_used = False

    async def redeem(self, request: web.Request) -> web.Response:
        """The token for the code."""
        try:
            given = _bearer(request, _HOW_ON_THIS_MACHINE)
            if not hmac.compare_digest(given, self.code.encode()):
                raise NotShown(401, f"this is not a code of this server: {_HOW_ON_THIS_MACHINE}")
            if self._timer() > self._until:
                raise NotShown(401, f"this code is too old: {_HOW_ON_THIS_MACHINE}")
            if self._is_used:
                raise NotShown(
                    401,
                    "this code was used before. If that was not you, somebody else on this machine "
                    f"sees the page: end `fettle ui` with Ctrl-C. Else {_HOW_ON_THIS_MACHINE}",
                )
        except NotShown as refused:
            return refusal(refused)
        self._is_used = True
        return web.Response(
            body=msgspec.json.encode({"token": self.token}), content_type="application/json"
        )


def by_review(reviews: Reviews) -> Access:
    """Of a Fettle in a cluster: by the API server's word."""

    async def access(request: web.Request) -> Viewer:
        token = _bearer(request, _HOW).decode(errors="replace")
        user = await reviews.user(token, request.remote or "")
        if user is None:
            raise NotShown(401, f"the API server does not know this token: {_HOW}")
        return _ReviewedViewer(reviews, user)

    return access


def _bearer(request: web.Request, how: str) -> bytes:
    found = request.headers.getall("Authorization", [])
    scheme, _, token = found[0].partition(" ") if len(found) == 1 else ("", "", "")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotShown(401, f"this needs a token: {how}")
    return token.strip().encode(errors="surrogateescape")


def screened(host_names: Collection[str]) -> Middleware:
    """Answers only requests that are meant for this listener: a browser says which name it asked
    for, and for which page. `host_names` are allowed besides addresses and `localhost`."""
    allowed = {"localhost", *(name.lower() for name in host_names)}

    @web.middleware
    async def screen(request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not _is_ours(hosts[0], allowed):
            return refusal(
                NotShown(
                    421,
                    f"the Host header {', '.join(hosts)[:200]!r} is neither an IP address nor "
                    "localhost nor among the names in browse.hostNames",
                )
            )
        own = f"{request.scheme}://{hosts[0]}".lower()
        for origin in request.headers.getall("Origin", []):
            if origin.lower() != own:
                return refusal(NotShown(403, "requests of other web pages (Origin) are refused"))
        return await handler(request)

    return screen


def _is_ours(host: str, allowed: Collection[str]) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or not port.isdecimal():
        name = host
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name.lower() in allowed
    return True


def refusal(refused: NotShown) -> web.Response:
    """The answer to somebody who was refused."""
    challenge = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
    return web.Response(
        status=refused.status,
        body=msgspec.json.encode({"error": str(refused)}),
        content_type="application/json",
        headers=challenge,
    )
