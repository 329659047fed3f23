"""The fake API server with a certificate."""

import ssl
from pathlib import Path

from tests.controlplane.certificates import Authority
from tests.fettle.client.fake_api import FakeApi


async def serve_tls(api: FakeApi, authority: Authority, folder: Path) -> None:
    """Restart it with TLS on the same port; callers need no client certificate."""
    await api.stop()
    api.tls = server_tls(authority, folder)
    api.tls.verify_mode = ssl.CERT_NONE
    await api.start()


def server_tls(authority: Authority, folder: Path) -> ssl.SSLContext:
    """A context that requires a client certificate."""
    pair = authority.server("fake")
    (folder / "server.pem").write_bytes(pair.certificate + pair.key)
    (folder / "ca.pem").write_bytes(authority.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "server.pem")
    return context
