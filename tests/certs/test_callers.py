"""Who calls a listener with a client CA, on real sockets: whose names are answered, and what
becomes of open connections when the client CA changes."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from structlog.testing import capture_logs

from certs import KnownCallers, issuing
from certs.callers import MOST_TOLD, TOLD_EVERY_S
from certs.issuing import DAY_S, Pair, Usage
from certs.serving import ServingCertificate
from extender import SchedulerConnections
from extender.http.connections import HTTPReply
from fettle.client import key_file
from fettle.config import ListenAddress
from fettle.serve.listening import AppListener, ExtenderListener, Listener
from tests.certs.test_serving import make_leaf, make_root

SCHEDULER = "system:kube-scheduler"
OLD, NEW = make_root("old clients"), make_root("new clients")
ALLOWED = "names in extender.tls.clientNames"
REQUEST = b"POST /call HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


def client_of(root: Pair, *names: str) -> Pair:
    return issuing.leaf(
        root, names or (SCHEDULER,), now_s=time.time(), lifetime_s=600, usage=Usage.CLIENT
    )


def named(
    common_names: Sequence[str],
    dns_names: Sequence[str] = (),
    root: Pair = OLD,
    *,
    is_ca: bool = False,
) -> Pair:
    """A client certificate with exactly these names."""
    made = issuing.certificates(root.certificate)[0]
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in common_names]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(made.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made.not_valid_before_utc)
        .not_valid_after(made.not_valid_after_utc)
    )
    if is_ca:
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = builder.add_extension(constraints, critical=True)
    if dns_names:
        others = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns_names])
        builder = builder.add_extension(others, critical=not common_names)
    signed = builder.sign(issuing.private_key(root.key), hashes.SHA256())
    return Pair(issuing.pem(signed), issuing.key_pem(key))


class Answer(NamedTuple):
    status: int
    closes: bool
    error: str


class Extender:
    """A listener for callers of the old client CA, who are allowed by these names."""

    def __init__(self, allowed: Sequence[str]) -> None:
        self.root = make_root()
        self.serving = ServingCertificate(make_leaf(self.root), OLD.certificate)
        self.counted: list[str] = []
        self.time_s = 0.0
        self.known = KnownCallers(
            self.serving, allowed, self.counted.append, timer=lambda: self.time_s
        )
        self.asked, self.goes_on = asyncio.Event(), asyncio.Event()
        self.bodies: list[bytes] = []
        self.connections: list[Connection] = []
        kept = SchedulerConnections({"/call": self._answer, "/slow": self._slow}, 2**20)
        address = ListenAddress("127.0.0.1", 0)
        self.listener: Listener = ExtenderListener(
            "extender", address, self.serving.context, kept, self.known
        )

    def _answer(self, body: bytes) -> HTTPReply:
        self.bodies.append(body)
        return HTTPReply(200, b"{}")

    async def _slow(self, body: bytes) -> HTTPReply:
        self.asked.set()
        await self.goes_on.wait()
        return self._answer(body)

    async def connect(self, pair: Pair) -> "Connection":
        context = ssl.create_default_context(cadata=self.root.certificate.decode())
        with key_file(pair.key + b"\n" + pair.certificate) as path:
            context.load_cert_chain(path)
        port = self.listener.sockets[0].getsockname()[1]
        made = Connection(*await asyncio.open_connection("127.0.0.1", port, ssl=context))
        self.connections.append(made)
        return made

    async def answer(self, pair: Pair) -> Answer:
        """On a connection of its own."""
        return await (await self.connect(pair)).ask()


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes = REQUEST) -> Answer:
        self.writer.write(request)
        return await self.answer()

    async def answer(self) -> Answer:
        async with asyncio.timeout(20):
            head = await self.reader.readuntil(b"\r\n\r\n")
            size = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
            body = json.loads(await self.reader.readexactly(size))
        closes = b"\r\nConnection: close\r\n" in head
        return Answer(int(head.split()[1]), closes, body.get("error", ""))

    async def ends(self) -> bool:
        async with asyncio.timeout(20):
            return await self.reader.read() == b""


@asynccontextmanager
async def extending(*allowed: str) -> AsyncIterator[Extender]:
    made = Extender(allowed or (SCHEDULER,))
    await made.listener.start()
    try:
        yield made
    finally:
        made.goes_on.set()
        for connection in made.connections:
            connection.writer.close()
        await made.listener.stop()


OK = Answer(200, False, "")
LAST = Answer(200, True, "")


async def test_who_has_an_allowed_name_is_answered_again_and_again() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD))
        assert [await connection.ask() for _ in range(3)] == [OK, OK, OK]
        assert extender.counted == []


@pytest.mark.parametrize(
    ("certificate", "status"),
    [
        (named([SCHEDULER]), 200),
        (named(["bob"]), 403),
        (named([], [SCHEDULER]), 200),
        (named(["bob"], ["other", SCHEDULER]), 200),
        (named(["bob"], ["other"]), 403),
        (named([SCHEDULER, "bob"]), 403),  # Kubernetes takes the last
        (named(["bob", SCHEDULER]), 200),
        (named([]), 403),
        (named([SCHEDULER.upper()]), 403),
        (named([f"{SCHEDULER}\0"]), 403),
        (named([f"{SCHEDULER} "]), 403),
        (named([f"x{SCHEDULER}"]), 403),
    ],
)
async def test_a_caller_goes_by_its_common_name_or_a_dns_name(
    certificate: Pair, status: int
) -> None:
    async with extending() as extender:
        answer = await extender.answer(certificate)
        assert (answer.status, answer.closes) == (status, status == 403)
        assert len(extender.bodies) == (status == 200)
        assert extender.counted == ["name"] * (status == 403)


async def test_a_refused_caller_is_told_before_its_body_is_read() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD, "bob"))
        answer = await connection.ask(
            b"POST /call HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n"
        )
        assert (answer.status, answer.closes) == (403, True)
        assert await connection.ends()
        assert extender.counted == ["name"]


async def test_what_a_refused_caller_sends_ahead_is_refused_and_counted_once() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD, "bob"))
        assert (await connection.ask(3 * REQUEST)).status == 403
        assert await connection.ends()
        assert extender.bodies == []
        assert extender.counted == ["name"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("bob", "'bob'"),
        ("line\nbreak \x1b[31m", r"'line\nbreak \x1b[31m'"),
        ("\u202eright to left", r"'\u202eright to left'"),
        ("x" * 64, f"'{'x' * 64}'"),
    ],
)
async def test_a_strangers_name_is_shown_escaped(name: str, shown: str) -> None:
    with capture_logs() as logs:
        async with extending() as extender:
            error = (await extender.answer(named([name]))).error
    assert error == f"the client certificate is for {shown}, which is not among the {ALLOWED}"
    assert [line["reason"] for line in logs if line["event"] == "caller refused"] == [error]


async def test_a_long_name_is_cut() -> None:
    async with extending() as extender:
        error = (await extender.answer(named([], ["x" * 50_000]))).error
        assert f"'{'x' * 100}'" in error


async def test_who_has_no_name_is_told_so() -> None:
    async with extending() as extender:
        error = (await extender.answer(named([]))).error
        assert "neither a common name nor a DNS name" in error
        assert ALLOWED in error


async def test_refused_names_are_logged_once_each_and_a_few_of_them() -> None:
    names = [f"bob-{number}" for number in range(MOST_TOLD + 5)]
    async with extending() as extender:
        with capture_logs() as logs:
            for name in (names[0], *names):
                await extender.answer(client_of(OLD, name))
        told = [line["reason"] for line in logs if line["event"] == "caller refused"]
        assert len(told) == MOST_TOLD
        assert len(extender.counted) == len(names) + 1
        extender.time_s += TOLD_EVERY_S + 1
        with capture_logs() as logs:
            for _ in range(2):
                await extender.answer(client_of(OLD, names[-1]))
        (line,) = [line for line in logs if line["event"] == "caller refused"]
        assert names[-1] in line["reason"]


async def test_how_many_were_refused_and_who_was_the_last_is_shown_in_readyz() -> None:
    async with extending() as extender:
        assert extender.known.notes() == []
        await extender.answer(client_of(OLD, "bob"))
        await extender.answer(client_of(OLD, SCHEDULER))
        for name in ("bob", "eve"):
            await extender.answer(client_of(OLD, name))
        assert extender.known.notes() == [
            "extender: 3 requests were refused for the caller's certificate; the last: the client "
            "certificate is for 'eve', which is not among the names in extender.tls.clientNames"
        ]


async def test_who_was_signed_by_a_client_ca_that_is_gone_is_answered_no_more() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD))
        assert await connection.ask() == OK
        extender.serving.swap(extender.serving.pair, NEW.certificate)
        with capture_logs() as logs:
            status, closes, error = await connection.ask()
        assert (status, closes) == (403, True)
        assert "'system:kube-scheduler'" in error
        assert "no longer in extender.tls.clientCaFile" in error
        assert await connection.ends()
        assert [line["reason"] for line in logs if line["event"] == "caller refused"] == [error]
        assert extender.counted == ["client_ca"]
        assert len(extender.bodies) == 1
        assert await extender.answer(client_of(NEW)) == OK


async def test_a_connection_without_a_request_yet_is_no_exception() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD))
        extender.serving.swap(extender.serving.pair, NEW.certificate)
        assert (await connection.ask()).status == 403


async def test_a_request_that_had_begun_before_the_client_ca_changed_is_refused_at_its_end() -> (
    None
):
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD))
        assert await connection.ask() == OK
        connection.writer.write(REQUEST[:-1])
        await asyncio.sleep(0.1)
        extender.serving.swap(extender.serving.pair, NEW.certificate)
        assert (await connection.ask(REQUEST[-1:])).status == 403
        assert extender.counted == ["client_ca"]
        assert len(extender.bodies) == 1


async def test_what_is_being_answered_meanwhile_is_answered_and_the_next_request_is_not() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD))
        connection.writer.write(REQUEST.replace(b"/call", b"/slow") + REQUEST)
        await extender.asked.wait()
        extender.serving.swap(extender.serving.pair, NEW.certificate)
        extender.goes_on.set()
        assert (await connection.answer()).status == 200
        assert (await connection.answer()).status == 403
        assert await connection.ends()


@asynccontextmanager
async def application(setting: str) -> AsyncIterator[Extender]:
    """A listener of aiohttp for callers of the old client CA, whatever their names."""
    made = Extender([])
    made.known = KnownCallers(made.serving, listener=setting)

    async def answer(request: web.Request) -> web.Response:
        made.bodies.append(await request.read())
        return web.json_response({})

    app = web.Application()
    app.router.add_post("/call", answer)
    made.listener = AppListener(
        setting, ListenAddress("127.0.0.1", 0), made.serving.context, app, made.known
    )
    await made.listener.start()
    try:
        yield made
    finally:
        for connection in made.connections:
            connection.writer.close()
        await made.listener.stop()


@pytest.mark.parametrize("setting", ["webhook", "alertmanager"])
async def test_a_client_ca_that_is_gone_ends_connections_of_other_listeners_too(
    setting: str,
) -> None:
    async with application(setting) as listener:
        connection = await listener.connect(client_of(OLD, "kube-apiserver"))
        assert [await connection.ask() for _ in range(2)] == [OK, OK]
        listener.serving.swap(listener.serving.pair, NEW.certificate)
        status, _, error = await connection.ask()
        assert (status, f"no longer in {setting}.tls.clientCaFile" in error) == (403, True)
        assert await connection.ends()
        assert len(listener.bodies) == 2
        assert len(listener.known.notes()) == 1
        assert (await listener.answer(client_of(NEW, "kube-apiserver"))).status == 200


async def test_a_client_ca_that_grows_ends_connections_of_other_listeners_after_one_answer() -> (
    None
):
    async with application("webhook") as listener:
        connection = await listener.connect(client_of(OLD))
        listener.serving.swap(listener.serving.pair, both())
        assert (await connection.ask()).status == 200
        assert await connection.ends()
        assert listener.known.notes() == []


def both() -> bytes:
    return OLD.certificate + NEW.certificate


def written_otherwise() -> bytes:
    return b"# the old one\n" + OLD.certificate.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("client_ca", [both, written_otherwise])
async def test_who_the_new_client_ca_trusts_too_is_answered_once_more_and_comes_again(
    client_ca: Callable[[], bytes],
) -> None:
    async with extending() as extender:
        certificate = client_of(OLD)
        connection = await extender.connect(certificate)
        extender.serving.swap(extender.serving.pair, client_ca())
        assert await connection.ask() == LAST
        assert await connection.ends()
        assert extender.counted == []
        assert await extender.answer(certificate) == OK


@pytest.fixture
def of_an_intermediate() -> tuple[Pair, bytes]:
    """A client certificate with the intermediate that signed it, and the client CA of both."""
    key = issuing.private_key(OLD.key)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "top")])
    made = issuing.certificates(OLD.certificate)[0]
    top = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made.not_valid_before_utc)
        .not_valid_after(made.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    root = Pair(issuing.pem(top), OLD.key)
    between = named(["between"], root=root, is_ca=True)
    leaf = named([SCHEDULER], root=between)
    return Pair(leaf.certificate + between.certificate, leaf.key), root.certificate


async def test_who_came_by_an_intermediate_is_not_refused_when_an_authority_is_added(
    of_an_intermediate: tuple[Pair, bytes],
) -> None:
    client, root = of_an_intermediate
    async with extending() as extender:
        extender.serving.swap(extender.serving.pair, root)
        connection = await extender.connect(client)
        extender.serving.swap(extender.serving.pair, root + NEW.certificate)
        assert await connection.ask() == LAST
        connection = await extender.connect(client)
        extender.serving.swap(extender.serving.pair, NEW.certificate)
        assert (await connection.ask()).status == 403


def test_a_certificate_among_the_authorities_that_is_none_vouches_for_nobody() -> None:
    bob = named(["bob"])
    assert not issuing.is_issued_by(
        der(named([SCHEDULER], root=bob)), bob.certificate, now_s=time.time()
    )


@pytest.mark.parametrize(("ahead_s", "is_issued"), [(0, True), (2 * DAY_S, False)])
def test_an_authority_that_is_over_vouches_for_nobody(ahead_s: float, is_issued: bool) -> None:
    leaf, now_s = der(client_of(OLD)), time.time() + ahead_s
    assert issuing.is_issued_by(leaf, both(), now_s=now_s) == is_issued


@pytest.mark.parametrize("content", [b"", b"not a certificate"])
def test_an_unreadable_certificate_has_no_name_and_no_authority(content: bytes) -> None:
    assert issuing.names_in(content) == ()
    assert not issuing.is_issued_by(content, both(), now_s=time.time())
    assert not issuing.is_issued_by(der(client_of(OLD)), content, now_s=time.time())


def der(pair: Pair) -> bytes:
    return issuing.certificates(pair.certificate)[0].public_bytes(serialization.Encoding.DER)


async def test_with_one_of_two_authorities_gone_only_its_callers_go() -> None:
    async with extending() as extender:
        extender.serving.swap(extender.serving.pair, both())
        old, new = [await extender.connect(client_of(root)) for root in (OLD, NEW)]
        extender.serving.swap(extender.serving.pair, NEW.certificate)
        assert (await old.ask()).status == 403
        assert await new.ask() == LAST


async def test_an_authority_of_the_same_name_is_another() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD))
        extender.serving.swap(extender.serving.pair, make_root("old clients").certificate)
        assert (await connection.ask()).status == 403


async def test_a_client_ca_that_comes_back_is_a_new_one_for_open_connections() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD))
        for root in (NEW, OLD):
            extender.serving.swap(extender.serving.pair, root.certificate)
        assert await connection.ask() == LAST


async def test_a_renewed_certificate_of_the_server_leaves_connections_open() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD))
        extender.serving.swap(make_leaf(extender.root))
        extender.serving.swap(make_leaf(extender.root), OLD.certificate)
        assert [await connection.ask() for _ in range(2)] == [OK, OK]


async def test_a_refused_name_stays_refused_whatever_the_client_ca() -> None:
    async with extending() as extender:
        connection = await extender.connect(client_of(OLD, "bob"))
        extender.serving.swap(extender.serving.pair, both())
        assert (await connection.ask()).status == 403
        assert extender.counted == ["name"]
