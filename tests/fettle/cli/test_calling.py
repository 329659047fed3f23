"""What the command line says of servers that cannot be called."""

import contextlib
import socket
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from fettle.cli.calling import call, fetch
from fettle.cli.commands import main
from fettle.model import FettleError
from tests.controlplane.certificates import Authority
from tests.fettle.client.serving_tls import server_tls

NO_URLS = [
    "http://[::1",
    "http:// bad host/",
    "http://127.0.0.1:port",
    "http://127.0.0.1:99999",
    "http://",
    "127.0.0.1:8090",
    "ftp://127.0.0.1",
    "http://127.0.0.1:9/\x00",
    "http://127.0.0.1:9/\n",
    "",
]


@pytest.mark.parametrize("url", NO_URLS)
@pytest.mark.parametrize(
    "command", [("explain", "pod", "a/b"), ("explain", "policy", "a"), ("devices",)]
)
def test_a_server_that_is_no_url_is_a_usage_error(command: tuple[str, ...], url: str) -> None:
    ended = CliRunner().invoke(main, [*command, "--server", url])
    assert ended.exit_code == 2
    assert isinstance(ended.exception, SystemExit)
    assert "--server" in ended.output
    assert "write a URL such as http://127.0.0.1:8090" in ended.output


@pytest.mark.parametrize(
    "url", [*NO_URLS, "http://127.0.0.1:9/\u00e9", "http://a..b/", f"http://{'a' * 70}.b/"]
)
def test_an_address_that_cannot_be_called_is_one_sentence(url: str) -> None:
    with pytest.raises(FettleError):
        call(url, seconds=2)


def test_a_server_that_does_not_speak_http_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            caller, _ = listening.accept()
            with caller:
                caller.recv(4096)
                caller.sendall(b"220 mail.example.com ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(FettleError, match=f"^{url} did not answer in HTTP: "):
            call(url, seconds=30)
        thread.join()


@pytest.mark.parametrize("name", ["nope", "a/b/c", "/b", "a/", ""])
def test_a_pod_without_its_namespace_is_a_usage_error(name: str) -> None:
    """A server knows nobody's context."""
    ended = CliRunner().invoke(main, ["explain", "pod", name, "--server", "http://127.0.0.1:9"])
    assert ended.exit_code == 2
    assert "write NAMESPACE/NAME, such as default/" in ended.output
    assert "?" not in ended.output


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (("explain", "pod", "p", "-n", "ml"), "/explain?pod=ml%2Fp"),
        (("explain", "policy", "--namespace", "ml", "p"), "/policy?pod=ml%2Fp"),
    ],
)
def test_a_namespace_may_be_given_as_to_kubectl(command: tuple[str, ...], asked: str) -> None:
    with Server(500) as server:
        CliRunner().invoke(main, [*command, "--server", server.url])
        (head,) = server.asked
    assert head.startswith(f"GET {asked} HTTP/1.1")


def test_a_namespace_given_twice_is_a_usage_error() -> None:
    ended = CliRunner().invoke(main, ["explain", "pod", "ml/p", "-n", "other"])
    assert ended.exit_code == 2
    told = " ".join(ended.output.split())
    assert "'ml/p': write NAMESPACE/NAME, such as default/p, or NAME with --namespace" in told


# Tokens


class Server(threading.Thread):
    """A server that answers each request alike, on loopback or a Unix socket."""

    def __init__(
        self, status: int = 200, path: Path | None = None, body: str = "{}", **headers: str
    ) -> None:
        super().__init__(daemon=True)
        self.asked: list[str] = []
        """The head of each request."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        length = f"Content-Length: {len(body)}"
        head = f"HTTP/1.1 {status} Answer\r\n{lines}Connection: close\r\n{length}\r\n\r\n"
        self._answer = f"{head}{body}".encode()
        if path is None:
            self._listening = socket.create_server(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        else:
            self._listening = socket.socket(socket.AF_UNIX)
            self._listening.bind(str(path))
            self._listening.listen()
            self.url = f"unix:{path}"
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                with caller:
                    self.asked.append(caller.recv(65536).decode())
                    caller.sendall(self._answer)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # which ends the wait for a caller, too
        self.join(30)
        self._listening.close()


def test_the_token_of_a_servers_url_goes_into_the_header_and_nowhere_else() -> None:
    with Server() as server:
        assert fetch(f"{server.url}/#secret", "/pods", {"node": "n"}) == {}
    (asked,) = server.asked
    assert asked.startswith("GET /pods?node=n HTTP/1.1\r\n")
    assert "\r\nAuthorization: Bearer secret\r\n" in asked
    assert asked.count("secret") == 1


def test_a_token_of_the_environment_is_sent_and_does_not_go_where_a_server_redirects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FETTLE_TOKEN", "secret\n")
    with Server() as other, Server(302, Location=f"{other.url}/pods") as server:
        assert fetch(server.url, "/pods") == {}
    assert "Authorization: Bearer secret\r\n" in server.asked[0]
    assert "secret" not in other.asked[0]


@pytest.mark.parametrize("host", ["192.0.2.1", "fettle.example", "127.0.0.1.example"])
def test_a_token_is_not_sent_over_plain_http_to_another_host(host: str) -> None:
    with pytest.raises(FettleError, match="plain HTTP, so your token is not sent there"):
        fetch(f"http://{host}:9/#secret", "/pods")


def test_without_a_kubeconfig_the_servers_own_words_say_how_to_get_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "FETTLE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with Server(401) as server, pytest.raises(FettleError, match="returned 401"):
        fetch(server.url, "/pods")
    assert "Authorization" not in server.asked[0]
    assert len(server.asked) == 1


@pytest.mark.parametrize("name", ["sock", "a:b%20c"])
def test_a_unix_socket_is_a_server_and_gets_no_token(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    path = tmp_path_factory.mktemp("s") / name
    with Server(path=path) as server:
        assert fetch(server.url, "/pods", {"node": "n"}) == {}
    assert server.asked[0].startswith("GET /pods?node=n HTTP/1.1\r\n")
    assert "\r\nHost: localhost\r\n" in server.asked[0]
    with pytest.raises(FettleError, match=f"unix:{path} did not answer: "):
        fetch(f"unix:{path}", "/pods")


def test_what_a_server_refuses_by_a_unix_socket_is_no_answer(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("s") / "sock"
    with Server(404, path=path) as server, pytest.raises(FettleError, match="returned 404"):
        fetch(server.url, "/pods")


def test_a_file_without_a_token_is_a_usage_error(tmp_path: Path) -> None:
    for content in (b"", b"two words", b"\xff"):
        (tmp_path / "token").write_bytes(content)
        ended = CliRunner().invoke(main, ["devices", "--token-file", str(tmp_path / "token")])
        assert ended.exit_code == 2
    ended = CliRunner().invoke(main, ["devices", "--token-file", str(tmp_path / "none")])
    assert (ended.exit_code, "cannot be read" in ended.output) == (2, True)


# Servers of other versions, and none

ASKING = (
    "status",
    "devices",
    "pods",
    "top nodes",
    "top pods",
    "explain pod a/b",
    "explain node n",
    "explain device d",
    "explain policy p",
    "what-if a/b --cordon n",
    "decisions",
    "report",
)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            '{"version": 2}',
            "speaks version 2 of JSON, and this program version 1: use the `fettle`",
        ),
        ('{"version": 1}', "so it is of another version: use the `fettle`"),
        ("[]", "returned no object of JSON: is it a Fettle server?"),
        ("<html>", "did not return JSON: is it a Fettle server?"),
    ],
)
@pytest.mark.parametrize("command", ASKING)
def test_a_server_of_another_version_is_one_sentence(command: str, body: str, said: str) -> None:
    with Server(body=body) as server:
        ended = CliRunner().invoke(main, [*command.split(), "--server", server.url])
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"fettle: {server.url} ")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_server_with_a_certificate_of_nobody_we_trust_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        tls = server_tls(Authority(), tmp_path)

        def answer() -> None:
            caller, _ = listening.accept()
            with caller, contextlib.suppress(OSError):
                tls.wrap_socket(caller, server_side=True)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        ended = CliRunner().invoke(main, ["devices", "--server", url])
        thread.join(30)
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"fettle: {url} presents a certificate that is not trusted (")
    assert "SSL_CERT_FILE" in ended.stderr


def test_a_server_that_is_not_there_is_said_without_the_path_that_was_asked() -> None:
    ended = CliRunner().invoke(main, ["devices", "--server", "http://127.0.0.1:9"])
    assert ended.exit_code == 1
    assert ended.stderr.startswith("fettle: http://127.0.0.1:9 did not answer: ")
    assert "/devices" not in ended.stderr
