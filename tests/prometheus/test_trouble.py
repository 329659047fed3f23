"""Trouble with Prometheus: each kind is named and counted, and no node is refused for it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from fettle.cli.demo.served import Served
from tests.fettle.cluster.feeds.manifests import write
from tests.prometheus.fleets import labels, node, pod
from tests.prometheus.test_serving import NODES, metrics, notes, settings, until

pytestmark = pytest.mark.long

Reply = Callable[[str], tuple[int, str, bytes]]
"""By the query: status, content type, body."""


def vector(
    *found: tuple[dict[str, str], str], off_s: float = 0.0, **more: Any
) -> tuple[int, str, bytes]:
    entries = [{"metric": named, "value": [time.time() + off_s, value]} for named, value in found]
    data = {"resultType": "vector", "result": entries}
    return 200, "application/json", json.dumps({"status": "success", "data": data, **more}).encode()


class Impostor:
    """Answers where Prometheus should; what, a test may change at any time."""

    def __init__(self) -> None:
        self.reply: Reply = lambda _: vector()
        impostor = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, kind, body = impostor.reply(parse_qs(form)["query"][0])
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                if 300 <= status < 400:
                    self.send_header("Location", "https://login.example/")
                self.end_headers()
                with suppress(ConnectionError):
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


PRESENT = "DCGM_FI_DEV_ROW_REMAP_FAILURE"


def present(query: str) -> bool:
    return query.startswith("count by (__name__)")


def firing(*found: tuple[dict[str, str], str], **more: Any) -> Reply:
    """One metric is there, and this is what fires of it."""
    return lambda query: (
        vector(({"__name__": PRESENT}, "16"), **more)
        if present(query)
        else vector(*(found if PRESENT in query and "offset" not in query else ()), **more)
    )


def slow(query: str) -> tuple[int, str, bytes]:
    time.sleep(1.5)
    return vector()


MANY = [({**labels(NODES[0], i), "UUID": f"GPU-{i}"}, "1") for i in range(30_000)]

TROUBLES: dict[str, tuple[Reply, str, str]] = {
    "a login page": (
        lambda _: (200, "text/html", b"<!doctype html><html>Sign in</html>"),
        "answers with a web page",
        'failures_total{reason="not_prometheus"}',
    ),
    "a redirect": (
        lambda _: (302, "text/html", b""),
        "redirects to 'https://login.example/'",
        'failures_total{reason="redirect"}',
    ),
    "a server error": (
        lambda _: (503, "text/plain", b"starting"),
        "is not available (status 503)",
        'failures_total{reason="unavailable"}',
    ),
    "refused credentials": (
        lambda _: (401, "text/plain", b"no"),
        "does not accept our credentials",
        'failures_total{reason="credentials"}',
    ),
    "a refused query": (
        lambda query: (
            firing()(query)
            if present(query)
            else (
                422,
                "application/json",
                b'{"status":"error","errorType":"execution","error":"boom"}',
            )
        ),
        "refuses the query: execution: boom",
        'failures_total{reason="query"}',
    ),
    "no answer in time": (slow, "gave no answer within 1 s", 'failures_total{reason="timeout"}'),
    "far too many series": (
        firing(*MANY),
        "larger than prometheus.maxMebibytes (1)",
        'failures_total{reason="too_large"}',
    ),
    "a partial answer": (
        firing(warnings=["a store is away"]),
        "the answer is partial, so it ends no fault: a store is away",
        'failures_total{reason="partial"}',
    ),
    "no numbers": (
        firing((labels(NODES[0], 0), "NaN"), (labels(NODES[0], 1), "+Inf")),
        "2 series have no usable number",
        'samples_total{kind="odd"}',
    ),
    "no number, though all was answered": (
        firing((labels(NODES[0], 0), "NaN")),
        "1 series have no usable number",
        'rounds_total{result="complete"}',
    ),
    "a clock an hour off": (
        firing((labels("elsewhere", 0), "1"), off_s=3600.0),
        "3600 s ahead of ours",
        'rounds_total{result="complete"}',
    ),
    "an unknown device": (
        firing((labels("elsewhere", 0), "1")),
        "1 series of rule dcgm-row-remap-failed name no device that is known here",
        'samples_total{kind="firing"}',
    ),
}


@pytest.fixture(scope="module")
def impostor() -> Iterator[Impostor]:
    made = Impostor()
    yield made
    made.close()


@pytest.fixture(scope="module")
def served(impostor: Impostor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("served")
    (folder / "snapshot").mkdir()
    write(folder / "snapshot" / "nodes.yaml", *map(node, NODES))
    text = settings(impostor.url, timeoutSeconds=1, maxMebibytes=1)
    with Served(folder / "snapshot", folder / "log", text) as fettle:
        yield fettle


def count(served: Served, name: str) -> float:
    (line,) = (x for x in metrics(served).splitlines() if x.startswith(f"fettle_prometheus_{name}"))
    return float(line.split()[-1])


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_is_named_and_counted_and_refuses_no_node(
    served: Served, impostor: Impostor, trouble: str
) -> None:
    impostor.reply, note, counter = TROUBLES[trouble]
    before = count(served, counter)
    until(lambda: any(note in each for each in notes(served)))
    until(lambda: count(served, counter) > before)
    assert served.filter(pod(gpus=8), NODES) == {}
    impostor.reply = firing()
    until(lambda: not any(note in each for each in notes(served)))
