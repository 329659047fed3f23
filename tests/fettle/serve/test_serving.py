"""`fettle serve` from outside: how it starts, how it fails to start, how it stops."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fettle.cli.calling import ask, call, call_json, fetch
from fettle.cli.demo import story
from fettle.cli.demo.served import Served
from fettle.model import FettleError
from tests.controlplane.processes import free_port
from tests.fettle.cli.linted import called
from tests.fettle.others import time_taken
from tests.fettle.serve.without_ipv6 import SOCKET_CALL, forbid_ipv6


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("serving")
    story.write(folder, datetime.now(UTC))
    with Served(folder, tmp_path_factory.mktemp("log") / "log") as fettle:
        yield fettle


PORTS = ("--extender-listen", "--webhook-listen", "--browse-listen")
ANYWHERE = tuple(part for port in PORTS for part in (port, "127.0.0.1:0"))
"""On ports that nobody has, whatever else runs on this machine."""
GRACE_S = 30
"""What Kubernetes gives a pod to stop in."""


def soon(true: Callable[[], object]) -> bool:
    """Whether it comes true."""
    until = time.monotonic() + 30
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def started(snapshot: Path, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "fettle", "serve", "--snapshot", str(snapshot)]
    return subprocess.Popen(
        [*command, *ANYWHERE, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("open_", ["browse", "webhook"], ids=["first", "last"])
async def test_it_stops_with_0_within_five_seconds_of_being_asked(
    snapshot: Path, number: signal.Signals, open_: str
) -> None:
    process = started(snapshot)
    assert process.stderr is not None
    while open_ not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(number)
    _, seconds = await time_taken(asyncio.to_thread(process.communicate, None, GRACE_S))
    assert process.returncode == 0
    assert seconds < 5


@pytest.mark.long
async def test_slow_credentials_delay_neither_probes_nor_the_stop(
    tmp_path: Path,
) -> None:
    child = tmp_path / "child"
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", f"sleep 1000 & echo $! > {child}.new; mv {child}.new {child}; wait"],
            "interactiveMode": "Never",
        }
    }
    config = tmp_path / "config"
    config.write_text(json.dumps(kubeconfig(user)))
    browse = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "fettle", "serve", "--kubeconfig", str(config)),
            *("--browse-listen", browse),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "credentials for the cluster are being read" not in process.stderr.readline():
        assert process.poll() is None
    assert call(f"http://{browse}/livez") == b"ok\n"
    with pytest.raises(FettleError, match="credentials for the cluster are being read"):
        call(f"http://{browse}/readyz")
    assert soon(child.exists)
    process.terminate()
    _, seconds = await time_taken(asyncio.to_thread(process.communicate, None, GRACE_S))
    assert process.returncode == 0
    assert seconds < 5
    its_program = Path(f"/proc/{child.read_text().strip()}/exe")
    assert soon(lambda: not its_program.exists())


def kubeconfig(user: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def test_only_the_roles_that_are_named_listen(snapshot: Path) -> None:
    process = started(snapshot, "webhook")
    assert process.stderr is not None
    lines = [process.stderr.readline()]
    while "webhook" not in lines[-1]:
        assert process.poll() is None
        lines.append(process.stderr.readline())
    process.terminate()
    process.communicate(timeout=GRACE_S)
    assert not [line for line in lines if "extender" in line]  # which would come before


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--snapshot", "/nowhere/at/all"), "/nowhere/at/all"),
        (("--settings", "/nowhere/settings.yaml"), "/nowhere/settings.yaml"),
        (
            ("--kubeconfig", "/nowhere/config"),
            "no kubeconfig from --kubeconfig /nowhere/config: no such file; pass --kubeconfig",
        ),
        (("--snapshot", ".", "--extender-listen", "here"), "--extender-listen 'here'"),
        (("--snapshot", ".", "--extender-listen", "0.0.0.0:0"), "extender.tls.clientCaFile"),
        (("--snapshot", ".", "--extender-listen", ":0"), "extender.tls.clientCaFile"),
        (("--snapshot", ".", "--webhook-listen", "0.0.0.0:0"), "webhook.certificates"),
        (("--snapshot", ".", "--webhook-listen", "[::]:0"), "webhook.certificates"),
    ],
)
def test_what_keeps_it_from_starting_is_one_sentence(arguments: tuple[str, ...], says: str) -> None:
    ended = called("serve", *ANYWHERE, *arguments)
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("fettle: ")
    assert says in last
    assert "Traceback" not in ended.stderr


@pytest.mark.long
def test_a_port_in_use_is_reported(snapshot: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = called("serve", *ANYWHERE, "--snapshot", str(snapshot), "--browse-listen", address)
    assert ended.returncode == 1
    assert (
        f"cannot listen on {address} for the browse listener: address already in use; "
        in ended.stderr
    )


@pytest.mark.long
@pytest.mark.skipif(SOCKET_CALL is None, reason="only for processors whose calls are known")
def test_where_the_kernel_has_no_ipv6_all_interfaces_are_those_of_ipv4(snapshot: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "fettle", "serve", "webhook", "--snapshot", str(snapshot)]
    process = subprocess.Popen(
        [*command, "--webhook-listen", "127.0.0.1:0", "--browse-listen", f":{port}"],
        preexec_fn=forbid_ipv6,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while f"[::]:{port}" not in process.stderr.readline():
        assert process.poll() is None
    assert call(f"http://127.0.0.1:{port}/livez") == b"ok\n"
    process.terminate()
    process.communicate(timeout=GRACE_S)


@pytest.mark.long
def test_a_changed_file_turns_verdicts_as_a_change_in_a_cluster_does(
    served: Served, snapshot: Path
) -> None:
    pod = story.plugin_pod("training", 1)
    assert served.filter(pod, ["hgx-01"]) == {}
    nodes = snapshot / "nodes.yaml"
    held = 'name: hgx-01\n    annotations: {"fettle.dev/hold": "taken out"}\n'
    nodes.write_text(nodes.read_text().replace("name: hgx-01\n", held, 1))
    assert soon(lambda: served.filter(pod, ["hgx-01"]))
    assert served.filter(pod, ["hgx-01"]) == {"hgx-01": "fettle: no sound devices (nvidia.com/gpu)"}


@pytest.mark.long
def test_a_file_that_cannot_be_read_costs_nothing_but_itself(
    served: Served, snapshot: Path
) -> None:
    generation = fetch(served.browse, "/devices")["generation"]
    (snapshot / "broken.yaml").write_text("kind: Node\nmetadata: [\n")
    (snapshot / "extra.yaml").write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: extra}\n"
        "status: {capacity: {nvidia.com/gpu: '8'}, allocatable: {nvidia.com/gpu: '8'}}\n"
    )

    def names() -> set[str]:
        return {n["node"] for n in fetch(served.browse, "/devices")["nodes"]}

    assert soon(lambda: "extra" in names())
    found = fetch(served.browse, "/devices")
    assert found["generation"] > generation
    assert "hgx-01" in {n["node"] for n in found["nodes"]}


@pytest.mark.long
def test_input_that_is_not_http_leaves_no_traceback_in_the_log(
    served: Served, tmp_path: Path
) -> None:
    for url in (served.browse, served.webhook, served.extender):
        at = urlsplit(url)
        with socket.create_connection((at.hostname, at.port), timeout=30) as client:
            client.sendall(b"GET / HTTP/9.9.9\r\n\x00: x\r\n\r\n")
            assert b" 400 " in client.recv(4096)
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.long
def test_the_webhook_answers_from_the_same_snapshot(serving: Served) -> None:
    answer = serving.validate(story.oversized_claim())
    assert not answer["allowed"]
    assert "FTL010" in answer["status"]["message"]


def test_explaining_says_which_node_gives_what_and_why(serving: Served) -> None:
    pod = story.claim_pod("training")
    serving.filter(pod, ["dra-01"])
    told = called("explain", "pod", "ml/training-dra", "--server", serving.browse)
    assert told.returncode == 0, told.stderr
    assert "policy training (annotation fettle.dev/policy)" in told.stdout
    assert "gpu.nvidia.com/dra-01/gpu-0" in told.stdout
    (line,) = [x for x in told.stdout.splitlines() if x.startswith("dra-02")]
    assert "refused" in line


@pytest.mark.parametrize(("gpus", "fit"), [(1, True), (99, False)])
def test_what_the_verdicts_leave_out_is_said_to_people_where_a_node_fits(
    serving: Served, gpus: int, fit: bool
) -> None:
    serving.filter(story.plugin_pod("inference", gpus), ["hgx-01"])
    ask = ("explain", "pod", "ml/inference-plugin", "--server", serving.browse)
    told, data = called(*ask), called(*ask, "--output", "json")
    said = [line for line in told.stdout.splitlines() if "left to the scheduler" in line]
    assert bool(said) is fit
    assert all("cpu" in line and "memory" in line for line in said)
    assert "left to the scheduler" not in data.stdout
    assert json.loads(data.stdout)["nodes"]


def test_devices_lists_what_evidence_speaks_of(serving: Served) -> None:
    told = called("devices", "--server", serving.browse)
    assert told.returncode == 0, told.stderr
    assert "GPU-05d9a1c0-77a3-4f0b-8a67-5c1f4e0a9b44" in told.stdout
    assert "gpu.nvidia.com/dra-01/gpu-1" not in told.stdout
    everything = called("devices", "--all", "-o", "wide", "--server", serving.browse)
    assert "gpu.nvidia.com/dra-01/gpu-1" in everything.stdout


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("ml/nobody", 1, "pod ml/nobody is not known"),
        ("nobody", 2, "'nobody': write NAMESPACE/NAME, such as default/nobody"),
    ],
)
def test_a_question_that_has_no_answer_gets_a_sentence(
    serving: Served, name: str, code: int, says: str
) -> None:
    told = called("explain", "pod", name, "--server", serving.browse)
    assert told.returncode == code
    assert says in told.stderr


@pytest.mark.long
def test_settings_that_are_probably_mistakes_are_logged_at_start(
    snapshot: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("policies: [{name: a, placement: {minScore: 0.95, degraded: Prefer}}]\n")
    process = started(snapshot, "--settings", str(settings))
    assert process.stderr is not None
    first = json.loads(process.stderr.readline())
    process.terminate()
    process.communicate(timeout=GRACE_S)
    assert first["level"] == "warning"
    assert first["event"].startswith("policy a: placement.minScore: 0.95 refuses every device")


def test_asking_where_nobody_serves_says_what_to_do() -> None:
    told = called("devices", "--server", "http://127.0.0.1:9")
    assert told.returncode == 1
    assert "fettle serve" in told.stderr
    assert "Traceback" not in told.stderr


def test_probes_tell_the_truth(serving: Served) -> None:
    text = ask(serving.browse, "/readyz?verbose").decode()
    assert text.startswith("ok\n")
    assert "ResourceSlice: synced" in text
    assert "\nextender: " in text
    assert "\nwebhook: " in text
    assert ask(serving.browse, "/livez") == b"ok\n"


def test_the_served_webhook_mutates(serving: Served) -> None:
    review = story.oversized_claim()
    pod = story.claim_pod("training")
    review["request"] |= {
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": pod,
    }
    response = call_json(f"{serving.webhook}/mutate", review)["response"]
    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"
