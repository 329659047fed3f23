"""The extender with TLS: the scheduler's client certificate proves who calls."""

import json
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from certs import issuing
from certs.issuing import Pair, Usage
from fettle.cli.calling import ask
from tests.controlplane.processes import free_port

pytestmark = pytest.mark.long


class Secured:
    """A served extender with TLS, and the material that its callers have."""

    def __init__(self, folder: Path, snapshot: Path) -> None:
        now_s = time.time()
        self.folder = folder
        self.root = issuing.root("extender", now_s=now_s, lifetime_s=3600)
        self._write("server", self._leaf("127.0.0.1", Usage.SERVER))
        self._write("scheduler", self._leaf("system:kube-scheduler", Usage.CLIENT))
        self._write("bob", self._leaf("bob-from-accounting", Usage.CLIENT))
        stranger = issuing.root("stranger", now_s=now_s, lifetime_s=3600)
        self._write("stranger", self._leaf("stranger", Usage.CLIENT, stranger))
        (folder / "ca.crt").write_bytes(self.root.certificate)
        self.port = free_port()
        settings = folder / "settings.yaml"
        tls = {
            "certificateFile": str(folder / "server.crt"),
            "keyFile": str(folder / "server.key"),
            "clientCaFile": str(folder / "ca.crt"),
        }
        settings.write_text(json.dumps({"extender": {"certificates": "files", "tls": tls}}))
        command = [sys.executable, "-m", "fettle", "serve", "extender"]
        command += ["--snapshot", str(snapshot), "--settings", str(settings)]
        command += ["--extender-listen", f"127.0.0.1:{self.port}", "--browse-listen", "127.0.0.1:0"]
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log)
        self.listening(self.port)

    def listening(self, port: int) -> None:
        give_up_at = time.monotonic() + 60
        while f":{port}" not in self.log.read_text():
            assert self.process.poll() is None
            assert time.monotonic() < give_up_at, self.log.read_text()
            time.sleep(0.05)

    def told(self, event: str) -> list[dict[str, str]]:
        """Lines of the log that contain this."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [line for line in lines if event in line["event"]]

    def metrics(self) -> str:
        """Of the process."""
        return self._browse("/metrics")

    def readyz(self) -> str:
        return self._browse("/readyz?verbose")

    def _browse(self, path: str) -> str:
        (url,) = [line["url"] for line in self.told("listening") if line["what"] == "browse"]
        return ask(url, path).decode()

    def ask(self, who: str | None) -> int:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if who is not None:
            context.load_cert_chain(self.folder / f"{who}.crt", self.folder / f"{who}.key")
        body = json.dumps({"Pod": {"metadata": {"name": "p"}}, "NodeNames": ["n"]}).encode()
        url = f"https://127.0.0.1:{self.port}/filter"
        request = urllib.request.Request(url, body)
        with urllib.request.urlopen(request, context=context, timeout=30) as reply:
            return int(reply.status)

    def _leaf(self, name: str, usage: Usage, issuer: Pair | None = None) -> Pair:
        return issuing.leaf(
            issuer or self.root, [name], now_s=time.time(), lifetime_s=600, usage=usage
        )

    def _write(self, name: str, pair: Pair) -> None:
        (self.folder / f"{name}.crt").write_bytes(pair.certificate)
        (self.folder / f"{name}.key").write_bytes(pair.key)


@pytest.fixture
def secured(tmp_path: Path, snapshot: Path) -> Iterator[Secured]:
    made = Secured(tmp_path, snapshot)
    yield made
    made.process.terminate()
    made.process.wait(timeout=30)


def test_the_scheduler_is_answered_and_nobody_else(secured: Secured) -> None:
    assert secured.ask("scheduler") == 200
    for who in (None, "stranger"):
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)) as refused:
            secured.ask(who)
        assert not isinstance(refused.value, urllib.error.HTTPError)
    assert secured.ask("scheduler") == 200


def test_a_certificate_of_the_client_ca_for_somebody_else_is_refused_by_name(
    secured: Secured,
) -> None:
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError) as refused:
            secured.ask("bob")
        assert refused.value.code == 403
        assert json.loads(refused.value.read()) == {
            "error": "the client certificate is for 'bob-from-accounting', which is not among the "
            "names in extender.tls.clientNames"
        }
    assert secured.ask("scheduler") == 200
    assert 'fettle_extender_refused_callers_total{reason="name"} 2.0' in secured.metrics()
    (line,) = secured.told("caller refused")
    assert "bob-from-accounting" in line["reason"]
    assert "extender.tls.clientNames" in line["reason"]
    assert "2 requests were refused for the caller's certificate" in secured.readyz()


def test_plain_http_is_not_answered_there(secured: Secured) -> None:
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://127.0.0.1:{secured.port}/filter", timeout=30)
