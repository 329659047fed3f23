"""What commands print into pipes: silent if nobody reads on, no colours, no trailing blanks."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fettle.cli.commands import CLOSED_PIPE
from fettle.model import State
from tests.fettle.cli.printed import health

SICK = {"node": "n1", "resources": [], "devices": [], "disputed": [], "missing": []}
TOLD = {
    "nodes": [{**SICK, **health(0.2, State.UNHEALTHY, "XID 79")}],
    "network": [],
    "quarantined": {},
    "modes": ["mode enforce"],
    "problems": ["Fettle is not ready"],
}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(TOLD).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join(30)


def fettle(*arguments: str, server: str, stdout: int, **environment: str) -> tuple[int, str, str]:
    told = subprocess.run(
        [sys.executable, "-m", "fettle", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env=os.environ | {"FETTLE_SERVER": server} | environment,
    )
    return told.returncode, told.stdout or "", told.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("--help",),
        ("lint", "--help"),
        ("rules", "--prometheus"),
        ("devices",),
        ("devices", "-o", "json"),
        ("demo",),
    ],
    ids=" ".join,
)
def test_a_command_whose_output_nobody_reads_ends_without_a_word(
    command: tuple[str, ...], server: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert fettle(*command, server=server, stdout=writing) == (CLOSED_PIPE, "", "")
    finally:
        os.close(writing)


def test_a_pipe_gets_no_colours_and_no_trailing_blanks(server: str) -> None:
    code, told, _ = fettle("devices", server=server, stdout=subprocess.PIPE)
    assert code == 0
    assert "XID 79" in told
    assert "\x1b" not in told
    assert told.splitlines() == [line.rstrip() for line in told.splitlines()]


def test_a_terminal_gets_colours_unless_no_color_is_set(server: str) -> None:
    def told(**environment: str) -> str:
        ours, its = os.openpty()
        try:
            shown = {"TERM": "xterm", "COLUMNS": "80", **environment}
            assert fettle("devices", server=server, stdout=its, **shown)[0] == 0
            return os.read(ours, 65536).decode()
        finally:
            os.close(ours)
            os.close(its)

    yellow = "\x1b[33m"
    assert yellow in told()
    assert yellow not in told(NO_COLOR="1")
