"""A real Prometheus: loaded with series as if it had scraped them for hours, or scraping a page
that a test writes."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isinf
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest
import yaml

from tests.prometheus import SKIPPED

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
REQUIRED = "FETTLE_REQUIRE_PROMETHEUS"
needs_prometheus = pytest.mark.skipif(
    not (PROMETHEUS and PROMTOOL) and os.environ.get(REQUIRED) != "1", reason=SKIPPED
)
START_S = 30.0

Points = Iterable[tuple[float, float]]
"""Unix seconds, and a value."""


def every(seconds: float, begin: float, end: float) -> list[float]:
    """Times of scrapes."""
    count = int((end - begin) // seconds)
    return [begin + i * seconds for i in range(count + 1)]


class Recording:
    """Series to load."""

    def __init__(self) -> None:
        self._lines: dict[str, list[tuple[float, str]]] = {}

    def add(self, name: str, labels: Mapping[str, str], points: Points) -> None:
        inner = ",".join(f"{key}={json.dumps(value)}" for key, value in labels.items())
        lines = self._lines.setdefault(name, [])
        lines += [(at, f"{name}{{{inner}}} {_written(value)} {at:.3f}") for at, value in points]

    def text(self) -> str:
        """As OpenMetrics, each metric's samples together."""
        lines = [line for name in sorted(self._lines) for _, line in self._lines[name]]
        return "\n".join([*lines, "# EOF", ""])


def _written(value: float) -> str:
    return f"{value:+}" if isinf(value) else repr(value)


def load(recording: Recording, folder: Path) -> None:
    """Make blocks of a recording in a folder for Prometheus."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "recording.txt").write_text(recording.text())
    assert PROMTOOL is not None
    subprocess.run(
        [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", "recording.txt", "data"],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )


@contextmanager
def running(
    folder: Path,
    targets: Mapping[str, Iterable[str]] | None = None,
    tls: ssl.SSLContext | None = None,
    **flags: str,
) -> Iterator[str]:
    """The URL of a Prometheus on the blocks of this folder. `targets` are scraped each second, by
    job. `tls`: how to call it, if the flags make it serve TLS."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [
        {"job_name": job, "static_configs": [{"targets": [*addresses]}]}
        for job, addresses in (targets or {}).items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    assert PROMETHEUS is not None
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
                *(f"--{name.replace('_', '.')}={value}" for name, value in flags.items()),
            ],
            stdout=log,
            stderr=log,
        )
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, url, folder / "log", tls)
        yield url
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(
    process: "subprocess.Popen[bytes]", url: str, log: Path, tls: ssl.SSLContext | None
) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=2, context=tls):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"Prometheus does not start: {log.read_text()[-2000:]}")


def ask(url: str, query: str, at: float) -> list[dict[str, Any]]:
    """Evaluate directly, without Fettle's client."""
    form = urlencode({"query": query, "time": at})
    try:
        with urllib.request.urlopen(f"{url}/api/v1/query?{form}", timeout=30) as reply:
            found: list[dict[str, Any]] = json.load(reply)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error.read().decode()}\n{query}") from error
    return found


@contextmanager
def at_another_time(url: str, now: Callable[[], float]) -> Iterator[str]:
    """The URL of the same Prometheus, as if it were this time there, in Unix seconds."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            body = urlencode({**form, "time": f"{now():.3f}"}, doseq=True).encode()
            try:
                with urllib.request.urlopen(f"{url}{self.path}", body, timeout=30) as reply:
                    status, answer = reply.status, reply.read()
            except urllib.error.HTTPError as error:
                status, answer = error.code, error.read()
            except OSError:
                status, answer = 502, b""
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Page:
    """What an exporter serves, which a test may change at any time."""

    def __init__(self) -> None:
        self.text = ""
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(page.text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
