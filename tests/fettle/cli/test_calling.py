"""What the command line says of servers that cannot be called."""

import socket
import threading

import pytest
from click.testing import CliRunner

from fettle.cli.calling import call
from fettle.cli.commands import main
from fettle.model import FettleError

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
    ended = CliRunner().invoke(main, ["explain", "pod", name])
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
    ended = CliRunner().invoke(main, [*command, "--server", "http://127.0.0.1:1"])
    assert f"http://127.0.0.1:1{asked} did not answer" in ended.output


def test_a_namespace_given_twice_is_a_usage_error() -> None:
    ended = CliRunner().invoke(main, ["explain", "pod", "ml/p", "-n", "other"])
    assert ended.exit_code == 2
    told = " ".join(ended.output.split())
    assert "'ml/p': write NAMESPACE/NAME, such as default/p, or NAME with --namespace" in told
