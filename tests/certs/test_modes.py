"""Which certificate each listener is served with, and when it is not served at all."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509

from certs import files, issuing, rotating
from certs.modes import (
    alerts_tls,
    extender_tls,
    self_signed_extender,
    self_signed_webhook,
    webhook_tls,
)
from certs.serving import ListenerTLS
from fettle.api.kinds import WEBHOOK_CONFIGURATIONS
from fettle.cli import setup_files
from fettle.client import Session
from fettle.config import AlertmanagerSettings, ListenAddress, Settings, TLSSettings
from fettle.model import CertificateError, ClusterError, SettingsError
from tests.certs.replicas import Clock
from tests.controlplane.certificates import Authority
from tests.fettle.client.fake_api import FakeApi

SECRET = "fettle-system/fettle-extender-ca"
PLURALS = [kind.plural for kind in WEBHOOK_CONFIGURATIONS]
ANYWHERE, LOOPBACK = (
    ListenAddress.parse(":8088", "--extender-listen"),
    ListenAddress.parse("127.0.0.1:8088", ""),
)


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    file = tmp_path / "clients.crt"
    made = issuing.root("clients", now_s=time.time(), lifetime_s=3650 * issuing.DAY_S)
    file.write_bytes(made.certificate)
    return file


def settings(**extender: Any) -> Settings:
    return msgspec.convert({"extender": extender}, Settings)


def self_signed(clients: Path, **more: Any) -> Settings:
    return settings(tls={"clientCaFile": str(clients)}, **more)


def leaf(served: ListenerTLS) -> bytes:
    assert served.certificate is not None
    return served.certificate.pair.certificate


def filled(api: FakeApi) -> str:
    """The Secret that has data."""
    (name,) = (name for name, one in api.objects["secrets"].items() if one.get("data"))
    return name


@contextlib.asynccontextmanager
async def kept(served: ListenerTLS) -> AsyncIterator[None]:
    assert served.keep is not None
    task = asyncio.ensure_future(served.keep())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_plain_http_is_served_on_loopback_by_default() -> None:
    assert (await extender_tls(LOOPBACK, Settings(), None)).context is None


@pytest.mark.parametrize("more", [{}, {"certificates": "files"}])
async def test_off_loopback_the_extender_requires_a_client_ca(more: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"extender\.tls\.clientCaFile"):
        await extender_tls(ANYWHERE, settings(**more), None)


async def test_without_a_cluster_mode_self_is_refused(clients: Path) -> None:
    with pytest.raises(SettingsError, match='use "files"'):
        await extender_tls(ANYWHERE, self_signed(clients), None)


async def test_a_client_ca_that_cannot_be_read_is_named(session: Session, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"clientCaFile: .*absent"):
        await extender_tls(ANYWHERE, self_signed(tmp_path / "absent"), session)


async def test_replicas_sign_for_the_service_under_one_authority_that_people_can_print(
    api: FakeApi,
    session: Session,
    clients: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = self_signed(clients, extraNames=["10.0.0.7"])
    replicas = [await extender_tls(ANYWHERE, own, session) for _ in range(2)]
    assert filled(api) == SECRET
    await asyncio.to_thread(setup_files.extender_ca, api.kubeconfig(tmp_path), None, None)
    printed = capsys.readouterr().out.encode()
    assert b"PRIVATE KEY" not in printed
    now_s = time.time()
    for one in replicas:
        assert one.problem() == ""
        assert one.notes() == []
        for name in ("fettle-extender.fettle-system.svc", "10.0.0.7"):
            assert issuing.rejection(leaf(one), printed, name, now_s=now_s) == ""
    assert leaf(replicas[0]) != leaf(replicas[1])
    (root,) = issuing.certificates(printed)
    assert root.not_valid_after_utc.timestamp() > now_s + 9.9 * 365 * 86400


async def test_an_address_that_is_listened_on_is_a_name_too(
    session: Session, api: FakeApi, clients: Path
) -> None:
    address = ListenAddress.parse("192.0.2.7:8088", "--extender-listen")
    served = await extender_tls(address, self_signed(clients), session)
    root = issuing.certificates(leaf(served))[0]
    alternatives = root.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert "192.0.2.7" in str(alternatives.value)
    assert "0.0.0.0" not in str(alternatives.value)


async def test_without_an_authority_there_is_nothing_to_print(api: FakeApi, tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"Secret other/fettle-extender-ca.*--namespace"):
        await asyncio.to_thread(setup_files.extender_ca, api.kubeconfig(tmp_path), None, "other")


async def test_an_unreadable_authority_is_named(
    api: FakeApi, session: Session, clients: Path, tmp_path: Path
) -> None:
    api.put("secrets", {"metadata": {"name": "fettle-extender-ca", "namespace": "fettle-system"}})
    api.objects["secrets"][SECRET]["data"] = {"ca.key": ""}
    said = f"^Secret {SECRET}: no ca.crt; delete the Secret, apply deploy/rbac/authorities.yaml"
    with pytest.raises(CertificateError, match=said):
        await extender_tls(ANYWHERE, self_signed(clients), session)
    with pytest.raises(CertificateError, match=said):
        await asyncio.to_thread(setup_files.extender_ca, api.kubeconfig(tmp_path), None, None)


async def test_without_the_right_to_read_the_secret_it_waits(
    api: FakeApi, session: Session, clients: Path
) -> None:
    api.forbidden.add(("get", "secrets"))
    with pytest.raises(ClusterError, match="secrets"):
        await extender_tls(ANYWHERE, self_signed(clients), session)


async def test_a_new_client_ca_is_reloaded_and_a_broken_one_is_not(
    session: Session, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FILES_POLL_S", 0.01)
    served = await extender_tls(ANYWHERE, self_signed(clients), session)
    assert served.certificate is not None
    before = leaf(served)
    other = issuing.root("other", now_s=time.time(), lifetime_s=3600).certificate
    async with kept(served):
        clients.write_bytes(b"broken")
        async with asyncio.timeout(20):
            while not served.notes():
                await asyncio.sleep(0.01)
        (note,) = served.notes()
        assert note.startswith("extender: client CA not reloaded, the old one stays: the client CA")
        assert served.certificate.client_ca not in (b"broken", other)
        clients.write_bytes(other)
        async with asyncio.timeout(20):
            while served.certificate.client_ca != other:
                await asyncio.sleep(0.01)
    assert served.notes() == []
    assert leaf(served) == before


async def test_an_expired_client_ca_makes_the_extender_unready(
    api: FakeApi, session: Session, clients: Path
) -> None:
    api.clock = clock = Clock()
    made = issuing.root("clients", now_s=clock.now_s, lifetime_s=3600)
    clients.write_bytes(made.certificate)
    served = await self_signed_extender(ANYWHERE, self_signed(clients), session, clock=clock)
    assert served.problem() == ""
    clock.now_s += 3500
    (note,) = served.notes()
    assert note.startswith(f"extender: the client CA in {clients} expires on ")
    clock.now_s += 200
    await session.get("/version")
    assert served.notes() == []
    assert served.problem().startswith(f"extender: the client CA in {clients} expired on ")


@pytest.mark.parametrize("secure", [extender_tls, webhook_tls])
async def test_certificates_are_kept_fresh_after_a_proxy_answered_for_a_while(
    api: FakeApi,
    session: Session,
    clients: Path,
    monkeypatch: pytest.MonkeyPatch,
    secure: Callable[[ListenAddress, Settings, Session], Awaitable[ListenerTLS]],
) -> None:
    monkeypatch.setattr(rotating, "POLL_S", 0.01)
    monkeypatch.setattr("certs.modes.BUNDLE_POLL_S", 0.01)
    served = await secure(ANYWHERE, self_signed(clients), session)
    before = leaf(served)
    secret = filled(api)
    async with kept(served):
        api.pages |= {secret.rpartition("/")[2], "fettle", "fettle-certificates"}
        async with asyncio.timeout(20):
            while api.gave[secret.rpartition("/")[2]] < 5:
                await asyncio.sleep(0.01)
        assert leaf(served) == before
        api.empty_secret(secret.rpartition("/")[2])
        api.pages.clear()
        async with asyncio.timeout(20):
            while leaf(served) == before:
                await asyncio.sleep(0.01)


async def test_a_webhook_on_a_snapshot_says_that_it_cannot_ask_for_a_client_certificate(
    clients: Path,
) -> None:
    own = msgspec.convert({"webhook": {"tls": {"clientCaFile": str(clients)}}}, Settings)
    with pytest.raises(SettingsError, match=r"webhook.tls.clientCaFile needs TLS"):
        await webhook_tls(LOOPBACK, own, None)


def register(api: FakeApi) -> None:
    """The webhook configurations as they are applied, without a caBundle."""
    service = {"name": "fettle-webhook", "namespace": "fettle-system"}
    for kind in PLURALS:
        entry = {"name": "w", "clientConfig": {"service": service}}
        api.put(kind, {"metadata": {"name": "fettle"}, "webhooks": [entry]})


async def test_who_writes_the_ca_bundle_is_accepted_from_then_on(
    api: FakeApi, session: Session, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("certs.modes.BUNDLE_POLL_S", 3600)
    register(api)

    def trusted() -> bool:
        entries = [api.objects[kind]["fettle"]["webhooks"][0] for kind in PLURALS]
        return all("caBundle" in entry["clientConfig"] for entry in entries)

    served = await webhook_tls(ANYWHERE, self_signed(clients), session)
    async with kept(served), asyncio.timeout(20):
        while not trusted() or served.problem():
            await asyncio.sleep(0.01)


async def test_replicas_follow_an_authority_that_took_anothers_place_as_soon_as_callers_trust_it(
    api: FakeApi, session: Session, clients: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the Secret was emptied. Until then the API server would go on without them."""
    monkeypatch.setattr("certs.modes.BUNDLE_POLL_S", 0.05)
    register(api)
    served = await webhook_tls(ANYWHERE, self_signed(clients), session)
    before = leaf(served)
    secret = filled(api)
    api.empty_secret(secret.rpartition("/")[2])
    await webhook_tls(ANYWHERE, self_signed(clients), session)  # a further one makes it anew
    async with kept(served), asyncio.timeout(rotating.POLL_S / 3):
        while leaf(served) == before or served.problem():
            await asyncio.sleep(0.01)


def handshake(served: ListenerTLS, client: ssl.SSLContext) -> str:
    """Who the server takes the client for; "" if it asks for no certificate. Raises SSLError if it
    refuses the client."""
    assert served.context is not None
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    ours = served.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (theirs, ours):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    shown = ours.getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(shown).subject.rfc4514_string() if shown else ""


def presenting(folder: Path, authority: Authority | None) -> ssl.SSLContext:
    """A client that has the API server's certificate of this authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if authority is not None:
        pair = authority.client("kube-apiserver")
        (folder / "client.pem").write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(folder / "client.pem")
    return context


async def test_a_webhook_with_a_client_ca_answers_whom_that_signed_and_nobody_else(
    api: FakeApi, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FILES_POLL_S", 0.01)
    register(api)
    first, second = Authority("first"), Authority("second")
    (file := tmp_path / "clients.crt").write_bytes(first.certificate)
    own = msgspec.convert({"webhook": {"tls": {"clientCaFile": str(file)}}}, Settings)
    served = await webhook_tls(ANYWHERE, own, session)
    assert handshake(served, presenting(tmp_path, first)) == "CN=kube-apiserver"
    for other in (None, second):
        with pytest.raises(ssl.SSLError):
            handshake(served, presenting(tmp_path, other))
    async with kept(served), asyncio.timeout(20):
        file.write_bytes(second.certificate)
        while served.certificate is None or served.certificate.client_ca != second.certificate:
            await asyncio.sleep(0.01)
    assert handshake(served, presenting(tmp_path, second)) == "CN=kube-apiserver"


async def test_a_client_ca_of_the_webhook_that_is_not_there_is_named(
    session: Session, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.crt")
    own = msgspec.convert({"webhook": {"tls": {"clientCaFile": missing}}}, Settings)
    with pytest.raises(CertificateError, match=r"clientCaFile.*missing\.crt"):
        await webhook_tls(ANYWHERE, own, session)


@pytest.mark.parametrize("secure", [self_signed_extender, self_signed_webhook])
async def test_a_certificate_that_expires_unrenewed_is_a_problem_that_names_the_reason(
    api: FakeApi,
    session: Session,
    clients: Path,
    monkeypatch: pytest.MonkeyPatch,
    secure: Callable[..., Awaitable[ListenerTLS]],
) -> None:
    monkeypatch.setattr(rotating, "POLL_S", 0.01)
    api.clock = clock = Clock()
    served = await secure(ANYWHERE, self_signed(clients), session, clock=clock)
    assert served.problem() == ""
    api.forbidden.add(("get", "secrets"))
    listener = "extender" if secure is self_signed_extender else "webhook"
    async with kept(served):
        clock.now_s += 8 * issuing.DAY_S
        async with asyncio.timeout(20):
            while "it cannot be renewed: " not in (said := served.problem()):
                await asyncio.sleep(0.01)
        assert said.startswith(f"{listener}: the certificate expired on 2027-01-22 08:00 UTC")
        assert "secrets" in said
        api.forbidden.clear()
        async with asyncio.timeout(20):
            while served.notes():
                await asyncio.sleep(0.01)
        assert served.problem() == ""


async def test_alerts_are_taken_from_nobody_in_particular_on_loopback_only(clients: Path) -> None:
    open_to_all = Settings(alertmanager=AlertmanagerSettings(listen=":8094"))
    assert (await alerts_tls(LOOPBACK, open_to_all)).context is None
    with pytest.raises(SettingsError, match=r"set bearerTokenFile or\s+tls\.clientCaFile"):
        await alerts_tls(ANYWHERE, open_to_all)
    by_token = AlertmanagerSettings(listen=":8094", bearer_token_file="/etc/fettle/token")
    assert (await alerts_tls(LOOPBACK, Settings(alertmanager=by_token))).context is None
    with pytest.raises(
        SettingsError, match=r"name tls\.certificateFile and keyFile, since whoever"
    ):
        await alerts_tls(ANYWHERE, Settings(alertmanager=by_token))
    half = AlertmanagerSettings(listen=":8094", tls=TLSSettings(client_ca_file=str(clients)))
    with pytest.raises(SettingsError, match="needs certificateFile and keyFile"):
        await alerts_tls(ANYWHERE, Settings(alertmanager=half))
