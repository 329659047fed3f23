"""A served Fettle that asks a real Prometheus, on a snapshot."""

import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fettle.cli.calling import ask, fetch
from fettle.cli.demo.served import SETTINGS, Served
from tests.controlplane.certificates import Authority
from tests.fettle.cluster.feeds.manifests import write
from tests.prometheus.fleets import labels, node, pod, uuid
from tests.prometheus.server import Page, free_port, needs_prometheus, running

pytestmark = [needs_prometheus, pytest.mark.prometheus]
NODES = ["n1", "n2"]
SLACK_S = 1.0
PAIR = (("certificate", "crt"), ("key", "key"))
NO_ROUND = 'fettle_prometheus_rounds_total{result="complete"} 0.0'


def metric(name: str, value: float, **more: str) -> str:
    inner = ",".join(f"{key}={json.dumps(text)}" for key, text in more.items())
    return f"{name}{{{inner}}} {value:g}\n"


def until(holds: Callable[[], Any], seconds: float = 60) -> float:
    """Wait; returns for how many seconds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.close()


def settings(url: str, **more: Any) -> str:
    return SETTINGS + f"prometheus: {json.dumps({'url': url, 'intervalSeconds': 1, **more})}\n"


def sound(**values: float) -> str:
    """What exporters say while all is well."""
    return "".join(
        metric(name, value, **labels(node, number))
        for name, value in {
            "DCGM_FI_DEV_GPU_TEMP": 50,
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
            **values,
        }.items()
        for node in NODES
        for number in range(8)
    )


def metrics(served: Served) -> str:
    return ask(served.browse, "/metrics").decode()


def notes(served: Served) -> list[str]:
    lines = ask(served.browse, "/readyz?verbose").decode().splitlines()
    return [line for line in lines if "metrics:" in line]


def test_a_fault_in_prometheus_refuses_its_node_within_scrape_evaluation_and_a_second(
    page: Page, tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    write(snapshot / "nodes.yaml", *map(node, NODES))
    page.text = sound()
    with (
        running(tmp_path / "prometheus", {"dcgm": [page.address]}) as url,
        Served(snapshot, tmp_path / "log", settings(url)) as served,
    ):
        whole_node = pod("whole", gpus=8)
        until(
            lambda: 'fettle_prometheus_rounds_total{result="complete"} 0.0' not in metrics(served)
        )
        time.sleep(2)
        assert served.filter(whole_node, NODES) == {}

        ill_page = sound().replace(
            metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, **labels("n1", 3)),
            metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1, **labels("n1", 3)),
        )
        scrape_s = evaluation_s = 1.0
        within_s = []
        for _ in range(3):  # others may have kept this machine busy
            page.text = sound()
            until(lambda: not served.filter(whole_node, NODES))
            page.text = ill_page
            within_s.append(until(lambda: served.filter(whole_node, NODES)))
            if within_s[-1] < scrape_s + evaluation_s + SLACK_S:
                break
        assert min(within_s) < scrape_s + evaluation_s + SLACK_S, within_s
        assert list(served.filter(whole_node, NODES)) == ["n1"]
        found = {one["node"]: one for one in fetch(served.browse, "/devices")["nodes"]}
        (ill,) = found["n1"]["resources"][0]["units"]
        assert (ill["unit"], ill["score"]) == (uuid("n1", 3), 0.0)
        assert "remapping of a row of memory failed" in str(ill["evidence"])

        # The GPU is replaced: its series say so.
        page.text = sound()
        until(lambda: not served.filter(whole_node, NODES))


def test_prometheus_is_asked_by_a_client_certificate_and_refuses_a_foreign_one(
    page: Page, tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    write(snapshot / "nodes.yaml", *map(node, NODES))
    page.text = sound(DCGM_FI_DEV_ROW_REMAP_FAILURE=1)
    ours, foreign = Authority("metrics"), Authority("others")
    server = ours.server("prometheus")
    files = {"ca": ours.certificate, "server.crt": server.certificate, "server.key": server.key}
    for name, authority in (("ours", ours), ("foreign", foreign)):
        pair = authority.client("fettle")
        files |= {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    web = {
        "tls_server_config": {
            "cert_file": str(tmp_path / "server.crt"),
            "key_file": str(tmp_path / "server.key"),
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": str(tmp_path / "ca"),
        }
    }
    (tmp_path / "web.yml").write_text(json.dumps(web))
    tls = ssl.create_default_context(cafile=str(tmp_path / "ca"))
    tls.load_cert_chain(tmp_path / "ours.crt", tmp_path / "ours.key")
    prometheus = running(
        tmp_path / "prometheus",
        {"dcgm": [page.address]},
        tls,
        web_config_file=str(tmp_path / "web.yml"),
    )

    def certified(url: str, name: str) -> str:
        pair = {f"{what}File": str(tmp_path / f"{name}.{end}") for what, end in PAIR}
        return settings(url, caFile=str(tmp_path / "ca"), **pair)

    with prometheus as url:
        with Served(snapshot, tmp_path / "log", certified(url, "ours")) as served:
            until(lambda: len(served.filter(pod(gpus=8), NODES)) == 2)
        with Served(snapshot, tmp_path / "log", certified(url, "foreign")) as served:
            until(lambda: any("cannot be reached" in note for note in notes(served)))
            assert served.filter(pod(gpus=8), NODES) == {}
            assert 'reason="unreachable"} 0.0' not in metrics(served)


def test_a_wrong_rule_on_a_whole_fleet_is_set_aside_and_named(page: Page, tmp_path: Path) -> None:
    """Somebody pushed a threshold that every GPU exceeds."""
    names = [f"n{i:02}" for i in range(12)]
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    write(snapshot / "nodes.yaml", *map(node, names))
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "metrics:\n"
        "  - {name: too-hot, exporter: dcgm, family: thermal, weight: 0.9, source: a slip,\n"
        "     query: 'max by ($device) (DCGM_FI_DEV_GPU_TEMP) > 30'}\n"
    )
    page.text = "".join(
        metric("DCGM_FI_DEV_GPU_TEMP", 45, **labels(name, i)) for name in names for i in range(8)
    )
    with (
        running(tmp_path / "prometheus", {"dcgm": [page.address]}) as url,
        Served(
            snapshot,
            tmp_path / "log",
            settings(url) + f"health: {{rulesFile: {rules}}}\n",
        ) as served,
    ):
        until(lambda: 'rule="metric too-hot"} 1.0' in metrics(served))
        old = pod(gpus=1)
        old["metadata"] |= {"creationTimestamp": "2026-01-01T00:00:00Z", "uid": "old"}
        assert served.filter(old, names) == {}
        assert served.filter(pod(gpus=1), names).keys() == set(names)
        said = ask(served.browse, "/readyz?verbose").decode()
        assert "metric too-hot is set aside in nvidia.com/gpu" in said


def test_prometheus_that_goes_away_is_named_and_what_it_said_fades_without_a_new_refusal(
    page: Page, tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    write(snapshot / "nodes.yaml", *map(node, NODES))
    page.text = sound() + metric("DCGM_FI_DEV_ROW_REMAP_PENDING", 1, **labels("n1", 3))
    with Served(
        snapshot, tmp_path / "log", settings(f"http://127.0.0.1:{free_port()}")
    ) as unreached:
        until(lambda: any("cannot be reached" in note for note in notes(unreached)))
        assert unreached.filter(pod(gpus=8), NODES) == {}
        assert 'reason="unreachable"} 0.0' not in metrics(unreached)

    with Served(snapshot, tmp_path / "log", "") as served:  # without a URL nobody asks
        assert notes(served) == []
        assert NO_ROUND not in metrics(served)


def scored(served: Served) -> float:
    found = {one["node"]: one for one in fetch(served.browse, "/devices")["nodes"]}
    units = found["n1"]["resources"][0]["units"] if "n1" in found else []
    return min((unit["score"] for unit in units), default=1.0)


def test_an_answer_that_stops_coming_leaves_the_fault_for_three_rounds_and_then_lets_it_fade(
    page: Page, tmp_path: Path
) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    write(snapshot / "nodes.yaml", *map(node, NODES))
    page.text = sound() + metric("DCGM_FI_DEV_ROW_REMAP_PENDING", 1, **labels("n1", 3))
    log = tmp_path / "log"
    with ExitStack() as prometheus:
        url = prometheus.enter_context(running(tmp_path / "prometheus", {"dcgm": [page.address]}))
        with Served(snapshot, log, settings(url)) as served:
            until(lambda: scored(served) == 0.5)
            prometheus.close()
            until(lambda: any("cannot be reached" in note for note in notes(served)))
            until(lambda: "no longer reported" in str(fetch(served.browse, "/devices")))
            assert 0.49 < scored(served) < 0.6
            assert served.filter(pod(gpus=1), NODES) == {}
