"""`fettle devices` and `fettle pods`: narrowed, in other formats, and again and again."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from fettle.cli import device_tables
from fettle.cli.commands import main
from fettle.cli.device_tables import WantedDevices, device_table
from fettle.cli.printing import print_pods
from fettle.cli.tables import print_plain, shown_age
from fettle.cli.watching import watch
from fettle.model import FettleError, State
from tests.fettle.cli.printed import health

HELD = {
    **health(0.0, State.UNHEALTHY, "held by an operator"),
    "since": 900.0,
}
HELD["evidence"][0]["subject"] = "node n1"


def gpu(pool: str, name: str, told: dict[str, Any]) -> dict[str, Any]:
    return {"device": f"gpu.example.com/{pool}/{name}", **told}


def fleet() -> dict[str, Any]:
    own = health(0.2, State.UNHEALTHY, "XID 79")
    unit = {"unit": "GPU-1", **health(0.5, State.DEGRADED, "hot"), "since": 50.0}
    plugin = {"resource": "example.com/npu", "units": [unit]}
    held = [gpu("n1", f"gpu-{i}", HELD) for i in range(3)]
    nodes = [
        {"node": "n1", "resources": [], "devices": [*held, gpu("n1", "gpu-9", own)], **HELD},
        {"node": "n2", "resources": [plugin], "devices": [], **health(1.0)},
    ]
    return {"nodes": nodes, "network": [gpu("net", "ib-0", own) | {"nodes": ["n1", "n2"]}]}


def cells(wanted: WantedDevices, *, wide: bool = False) -> list[list[str]]:
    told = wanted.of(fleet())
    table = device_table(told, everything=wanted.everything, wanted=wanted, wide=wide)
    return [list(row[:2]) for row in table.rows]


def test_a_held_node_is_one_row_and_a_device_of_it_with_a_fault_of_its_own_another() -> None:
    assert cells(WantedDevices()) == [
        ["n1", "(node, 3 devices)"],
        ["n1", "gpu-9"],
        ["(2 nodes)", "gpu.example.com/net/ib-0"],
        ["n2", "GPU-1"],
    ]
    assert cells(WantedDevices(), wide=True)[1:] == [
        ["n1", "gpu.example.com/n1/gpu-9"],
        ["(2 nodes)", "gpu.example.com/net/ib-0"],
        ["n2", "example.com/npu GPU-1"],
    ]


def test_a_time_is_since_when_and_an_age_how_long_ago() -> None:
    told = fleet()
    told["nodes"][1]["since"] = 1e9
    columns = [device_table(told, everything=True, wide=wide).columns[4] for wide in (True, False)]
    assert columns == ["SINCE", "AGE"]


def test_all_devices_of_a_held_node_are_rows_if_all_are_asked_for() -> None:
    assert len([row for row in cells(WantedDevices(everything=True)) if row[0] == "n1"]) == 5


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (WantedDevices(states=("Degraded",)), ["GPU-1"]),
        (WantedDevices(driver="example.com/npu"), ["GPU-1"]),
        (
            WantedDevices(driver="gpu.example.com"),
            ["gpu-0", "gpu-1", "gpu-2", "gpu-9", "gpu.example.com/net/ib-0"],
        ),
        (WantedDevices(since=500.0), ["(node, 3 devices)"]),
    ],
)
def test_devices_are_narrowed_by_state_driver_and_age(
    wanted: WantedDevices, shown: list[str]
) -> None:
    assert sorted(row[1] for row in cells(wanted)) == sorted(shown)


def test_a_narrowed_answer_has_only_what_is_asked_for() -> None:
    told = WantedDevices(states=("Degraded",)).of(fleet())
    assert [node["node"] for node in told["nodes"]] == ["n2"]
    assert told["network"] == []


def test_json_and_yaml_have_times_for_people_beside_those_in_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = {"since": 1795201375.0, "devices": [{"observedAt": 0, "at": "noon", "count": 2}]}
    shown = {
        "since": 1795201375.0,
        "sinceTime": "2026-11-20T19:02:55Z",
        "devices": [{"observedAt": 0, "at": "noon", "count": 2}],
    }
    print_plain(data, "json")
    assert json.loads(capsys.readouterr().out) == shown
    print_plain(data, "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == shown


PODS = {"pods": [{"pod": "ml/a", "n": 2, "labels": {"a.b": [1, 2]}}, {"pod": "ml/b", "ok": True}]}


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{.pods[*].pod}", "ml/a ml/b"),
        ("{.pods.*.pod} and more", "ml/a ml/b and more"),
        ("{range .pods[*]}{.pod}{'\\t'}{.n}{\"\\n\"}{end}", "ml/a\t2\nml/b\t\n"),
        ("{range .pods[*]}{$.pods[-1].pod}{end}", "ml/bml/b"),
        ("{.pods[0].labels['a.b'][1]} {.pods[0].labels.a\\.b[0]}", "2 1"),
        ("{.pods[0].labels}{@.pods[1].ok}", '{"a.b":[1,2]}true'),
        ("{.nope}{.pods[7].pod}{.pods.pod}{'}'}", "}"),
    ],
)
def test_a_template_is_filled_as_kubectl_fills_it(
    template: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_plain(PODS, f"jsonpath={template}")
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (".pods", "put the path into braces: {.pods}"),
        ("{.pods", "no } ends {.pods"),
        ("{'x}", "no } ends {'x}"),
        ("{}", "a path is missing"),
        ("{end}", "{end} without a {range"),
        ("{range .pods[*]}", "without {end}"),
        ("{range .a}" * 21 + "{end}" * 21, "more than 20 {range"),
        ("{.pods[?(@.n==1)].pod}", "cannot be read from '[?(@.n==1)].pod' on"),
        ("{.pods[1:2]}", "cannot be read from '[1:2]' on"),
        ("{.pods[" + "9" * 5000 + "]}", "cannot be read from"),
        ("{..pod}", "cannot be read from '.pod' on"),
        ("{pods}", "cannot be read from 'pods' on"),
        ("{'a' .b}", "stands after a quoted text"),
        ("", "write a template, such as"),
    ],
)
def test_a_template_that_cannot_be_read_is_bad_input_before_anybody_is_asked(
    template: str, said: str
) -> None:
    ran = CliRunner().invoke(main, ["pods", "-o", f"jsonpath={template}"])
    assert ran.exit_code == 2
    assert said in " ".join(ran.output.split())


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(5, "5s"), (179, "179s"), (180, "3m"), (10_799, "179m"), (10_800, "3h"), (864_000, "10d")],
)
def test_an_age_is_as_kubectl_tells_it(seconds: int, said: str) -> None:
    assert shown_age(1e9 - seconds, 1e9) == said
    assert shown_age(None) == shown_age(0.0) == "–"


def test_pods_fit_eighty_columns_and_wide_has_all_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pod: dict[str, Any] = {
        "pod": "ml/serving-0",
        "owner": None,
        "policy": "inference",
        "node": "dra-03",
        "phase": "Running",
        "boundAt": None,
        "use": "certain",
        "since": None,
        "worst": None,
        "units": {"nvidia.com/gpu": 1},
        "devices": [],
        "refusals": [],
    }
    data = {"problems": [], "pods": [pod], "total": 1, "startedAt": 0.0}
    print_pods(data, at_risk=False)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["POD", "POLICY", "NODE", "STATUS", "AGE", "WHY"]
    assert max(len(head), len(row)) < 80
    print_pods(data, at_risk=False, wide=True)
    assert "REFUSED SINCE" in capsys.readouterr().out


def test_the_node_with_most_that_is_bad_is_at_the_top_then_the_busiest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def node(name: str, in_use: int, **bad: int) -> dict[str, Any]:
        told = {"node": name, "state": "Healthy", "score": 1.0, "held": False, "devices": 8}
        return told | {"inUse": in_use, "byState": bad, "missing": 0, "pods": in_use}

    nodes = [
        node("idle", 0),
        node("busy", 4),
        node("hot", 0, Degraded=2),
        node("ill", 1, Unhealthy=1),
    ]
    nodes.sort(key=device_tables.by_usage)
    device_tables.print_usage({"problems": [], "nodes": nodes})
    head, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["ill", "hot", "busy", "idle"]
    assert "4 (50%)" in rows[2]
    assert "1 Unhealthy" in rows[0]
    assert max(map(len, [head, *rows])) <= 80


def test_watching_prints_only_what_changed_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = iter(["a", "a", FettleError("gone"), "b"])

    def show() -> None:
        match next(answers):
            case FettleError() as error:
                raise error
            case said:
                print(said)

    watch(show, 0.0, rounds=4)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("a\n\nb\n", "fettle: gone\n")


@pytest.mark.parametrize(
    "command",
    [
        *("devices", "pods", "top", "status", "decisions", "report", "holds", "explain pod a/b"),
        *("explain policy p", "what-if a/b --cordon n"),
    ],
)
def test_whatever_tells_how_things_are_can_be_watched(command: str) -> None:
    """Here up to the first answer, which nobody gives."""
    nowhere = {"KUBECONFIG": "/nowhere", "FETTLE_SERVER": "http://127.0.0.1:9"}
    ended = CliRunner().invoke(main, [*command.split(), "--watch"], env=nowhere)
    assert ended.exit_code == 1
    assert ended.output.startswith("fettle: ")


def test_watching_ends_where_the_first_answer_fails() -> None:
    def show() -> None:
        raise FettleError("no server")

    with pytest.raises(FettleError, match="no server"):
        watch(show, 0.0, rounds=4)
