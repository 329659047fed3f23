"""TLS on real sockets: which certificate callers see, before and after a swap."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certs import issuing
from certs.issuing import DAY_S, Pair, Usage
from certs.serving import ServingCertificate
from fettle.model import CertificateError

NAME = "localhost"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def make_root(name: str = "test CA") -> Pair:
    return issuing.root(name, now_s=time.time(), lifetime_s=DAY_S)


def make_leaf(root: Pair, usage: Usage = Usage.SERVER) -> Pair:
    return issuing.leaf(root, [NAME, "127.0.0.1"], now_s=time.time(), usage=usage)


@asynccontextmanager
async def echoing(serving: ServingCertificate) -> AsyncIterator[int]:
    """A server that sends each line back; its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=serving.context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def connect(port: int, trust: bytes, client: ssl.SSLContext | None = None) -> Streams:
    context = client or ssl.create_default_context(cadata=trust.decode())
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)


async def echoes(streams: Streams) -> bool:
    reader, writer = streams
    writer.write(b"still there?\n")
    await writer.drain()
    return await reader.readline() == b"still there?\n"


async def close(streams: Streams) -> None:
    streams[1].close()
    await streams[1].wait_closed()


def served(streams: Streams) -> x509.Certificate:
    connection = streams[1].get_extra_info("ssl_object")
    return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True))


def own(pair: Pair) -> x509.Certificate:
    return issuing.certificates(pair.certificate)[0]


async def test_a_swap_changes_what_new_connections_see_and_leaves_open_ones_alone() -> None:
    root = make_root()
    before, after = make_leaf(root), make_leaf(root)
    serving = ServingCertificate(before)
    async with echoing(serving) as port:
        old = await connect(port, root.certificate)
        assert served(old) == own(before)
        serving.swap(after)
        new = await connect(port, root.certificate)
        assert served(new) == own(after)
        assert await echoes(old)
        assert await echoes(new)
        await close(old)
        await close(new)


async def test_many_swaps_under_load_fail_no_handshake() -> None:
    root = make_root()
    leaves = [make_leaf(root) for _ in range(4)]
    serving = ServingCertificate(leaves[0])
    async with echoing(serving) as port:

        async def visit() -> None:
            for _ in range(10):
                streams = await connect(port, root.certificate)
                assert await echoes(streams)
                await close(streams)

        visits = asyncio.gather(*(visit() for _ in range(4)))
        swaps = 0
        while not visits.done():
            serving.swap(leaves[swaps % len(leaves)])
            swaps += 1
            await asyncio.sleep(0)
        await visits
        assert swaps > len(leaves)


async def test_a_pair_that_does_not_match_is_refused_and_the_old_one_keeps_serving() -> None:
    root = make_root()
    good, other = make_leaf(root), make_leaf(root)
    serving = ServingCertificate(good)
    async with echoing(serving) as port:
        with pytest.raises(CertificateError, match="do not match"):
            serving.swap(Pair(other.certificate, good.key))
        streams = await connect(port, root.certificate)
        assert served(streams) == own(good)
        await close(streams)
    assert serving.pair == good


async def test_a_connection_without_a_server_name_is_served_the_current_certificate() -> None:
    root = make_root()
    serving = ServingCertificate(make_leaf(root))
    after = make_leaf(root)
    serving.swap(after)
    nameless = ssl.create_default_context(cadata=root.certificate.decode())
    nameless.check_hostname = False
    async with echoing(serving) as port:
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=nameless, server_hostname="")
        assert served(streams) == own(after)
        await close(streams)


async def test_tls_1_2_is_spoken_and_1_1_is_not() -> None:
    root = make_root()
    async with echoing(ServingCertificate(make_leaf(root))) as port:
        modern = ssl.create_default_context(cadata=root.certificate.decode())
        modern.maximum_version = ssl.TLSVersion.TLSv1_2
        streams = await connect(port, b"", modern)
        assert streams[1].get_extra_info("ssl_object").version() == "TLSv1.2"
        await close(streams)
    assert ServingCertificate(make_leaf(root)).context.minimum_version == ssl.TLSVersion.TLSv1_2


AsClient = Callable[[Pair | None], ssl.SSLContext]


@pytest.fixture(scope="module")
def server_root() -> Pair:
    return make_root("server CA")


@pytest.fixture
def as_client(server_root: Pair, tmp_path: Path) -> AsClient:
    """A client's context with a certificate signed by that authority, or with none."""

    def context(issuer: Pair | None) -> ssl.SSLContext:
        made = ssl.create_default_context(cadata=server_root.certificate.decode())
        if issuer is not None:
            pair = make_leaf(issuer, Usage.CLIENT)
            (tmp_path / "client.pem").write_bytes(pair.key + pair.certificate)
            made.load_cert_chain(tmp_path / "client.pem")
        return made

    return context


async def is_served(port: int, client: ssl.SSLContext) -> bool:
    """With TLS 1.3 a client learns only when it reads that it was refused."""
    try:
        streams = await connect(port, b"", client)
        answered = await echoes(streams)
        await close(streams)
    except (ssl.SSLError, ConnectionError):
        return False
    return answered


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_with_a_client_ca_only_its_own_clients_are_served(
    server_root: Pair, as_client: AsClient, version: ssl.TLSVersion
) -> None:
    clients, strangers = make_root("clients"), make_root("strangers")
    async with echoing(ServingCertificate(make_leaf(server_root), clients.certificate)) as port:
        for issuer, expected in ((clients, True), (strangers, False), (None, False)):
            context = as_client(issuer)
            context.maximum_version = version
            assert await is_served(port, context) is expected


WHY = {
    (ssl.TLSVersion.TLSv1_3, "nobody"): "CERTIFICATE_REQUIRED",
    (ssl.TLSVersion.TLSv1_3, "stranger"): "UNKNOWN_CA",
    (ssl.TLSVersion.TLSv1_2, "nobody"): "HANDSHAKE_FAILURE",
    (ssl.TLSVersion.TLSv1_2, "stranger"): "UNKNOWN_CA",
}


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(("version", "who"), WHY)
def test_a_rejected_caller_gets_a_tls_alert(
    server_root: Pair,
    as_client: AsClient,
    loop: Callable[[], asyncio.AbstractEventLoop],
    version: ssl.TLSVersion,
    who: str,
) -> None:
    context = as_client(make_root(who) if who == "stranger" else None)
    context.maximum_version = version

    async def visit() -> None:
        serving = ServingCertificate(make_leaf(server_root), make_root("clients").certificate)
        async with echoing(serving) as port:
            with pytest.raises(ssl.SSLError, match=WHY[version, who]):
                await echoes(await connect(port, b"", context))

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(visit())


async def test_a_servers_certificate_does_not_make_a_client(
    server_root: Pair, as_client: AsClient, tmp_path: Path
) -> None:
    pair = make_leaf(server_root, Usage.SERVER)
    (tmp_path / "server.pem").write_bytes(pair.key + pair.certificate)
    context = as_client(None)
    context.load_cert_chain(tmp_path / "server.pem")
    async with echoing(ServingCertificate(make_leaf(server_root), server_root.certificate)) as port:
        assert not await is_served(port, context)


async def test_the_client_ca_can_be_swapped_but_not_forgotten(
    server_root: Pair, as_client: AsClient
) -> None:
    before, after = make_root("before"), make_root("after")
    serving = ServingCertificate(make_leaf(server_root), before.certificate)
    async with echoing(serving) as port:
        old, new = as_client(before), as_client(after)
        serving.swap(make_leaf(server_root))
        assert await is_served(port, old)
        serving.swap(make_leaf(server_root), after.certificate)
        assert not await is_served(port, old)
        assert await is_served(port, new)
        assert not await is_served(port, as_client(None))


def test_client_certificates_cannot_be_required_after_the_start(server_root: Pair) -> None:
    serving = ServingCertificate(make_leaf(server_root))
    with pytest.raises(CertificateError, match="after startup"):
        serving.swap(make_leaf(server_root), server_root.certificate)


@pytest.mark.parametrize("client_ca", [b"", b"garbage", "ä".encode()])
def test_a_client_ca_that_is_none_is_refused(server_root: Pair, client_ca: bytes) -> None:
    with pytest.raises(CertificateError, match="client CA"):
        ServingCertificate(make_leaf(server_root), client_ca)


def test_an_encrypted_key_is_refused_without_asking_for_a_password(server_root: Pair) -> None:
    pair = make_leaf(server_root)
    encrypted = issuing.private_key(pair.key).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(CertificateError, match="encrypted"):
        ServingCertificate(Pair(pair.certificate, encrypted))


def test_keys_leave_no_open_file_behind(server_root: Pair) -> None:
    serving = ServingCertificate(make_leaf(server_root))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        serving.swap(make_leaf(server_root))
        with pytest.raises(CertificateError):
            serving.swap(Pair(b"", b""))
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
