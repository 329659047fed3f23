"""Commands without a server: they read the cluster once, and print what a server would."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result

from fettle.api import Measured, kinds
from fettle.cli import direct
from fettle.cli.calling import ask, fetch
from fettle.cli.commands import main
from fettle.config import ExtenderSettings, Settings
from fettle.model import FettleError, Mode
from fettle.serve.serving import Runtime
from tests.controlplane import objects
from tests.fettle.cli.linted import LIST, logging_restored
from tests.fettle.client.fake_api import FakeApi, fake_api
from tests.fettle.cluster.inventory.test_measuring import HEAT, Replica, sample
from tests.fettle.serve.runtimes import serve_options

FLEET = Path(direct.__file__).parent / "demo" / "snapshot"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}


def broken() -> Any:
    """A condition that a monitor has just renewed."""
    return objects.node_condition("CperHardwareErrorFatal", "True", "CPERFatal", "memory error")


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    monkeypatch.delenv("FETTLE_SERVER", raising=False)
    with logging_restored():
        async with fake_api() as api:
            yield api


class Reader:
    """Somebody with a kubeconfig for this API server."""

    def __init__(self, api: FakeApi, folder: Path) -> None:
        self.kubeconfig = api.kubeconfig(folder)

    async def run(self, *arguments: str, **env: str) -> Result:
        """What a command ends with, while the API server goes on."""
        given = [*arguments, "--kubeconfig", str(self.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, main, given, env=env)

    async def told(self, *arguments: str) -> Any:
        """The JSON of a command."""
        ended = await self.run(*arguments, "--output", "json")
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)


@pytest.fixture
def reader(api: FakeApi, tmp_path: Path) -> Reader:
    return Reader(api, tmp_path)


def put_fleet(api: FakeApi) -> None:
    """The fleet of the demo."""
    for file in sorted(FLEET.glob("*.yaml")):
        for thing in yaml.safe_load(file.read_text())["items"]:
            api.put(kinds.BY_NAME[thing["kind"]].plural, thing)


@asynccontextmanager
async def served(folder: Path, snapshot: Path = FLEET) -> AsyncIterator[str]:
    """A server of that fleet, or of another snapshot, by the settings that count where none are
    given: its address."""
    address = f"unix:{folder}/browse"
    options = serve_options(Path())._replace(
        roles=frozenset(), kubeconfig=None, snapshot=snapshot, browse_listen=(address,)
    )
    settings = Settings(mode=Mode.OBSERVE, extender=ExtenderSettings(wait_seconds=10))
    runtime = Runtime(options, settings)
    staying = None
    try:
        await runtime.open()
        staying = asyncio.create_task(runtime.stay(asyncio.Event()))
        async with asyncio.timeout(20):
            while not await asyncio.to_thread(is_ready, address):
                await asyncio.sleep(0.05)
        yield address
    finally:
        if staying is not None:
            staying.cancel()
        await runtime.close()


def is_ready(server: str) -> bool:
    try:
        return bool(ask(server, "/readyz"))
    except FettleError:
        return False


def put_pod(api: FakeApi, name: str, node: str, **more: Any) -> None:
    pod = objects.pod(name, gpus=1, **more)
    pod["spec"]["nodeName"] = node
    pod["status"] = {"phase": "Running", "startTime": objects.now()}
    api.put("pods", pod)


def timeless(told: Any) -> Any:
    """Without what depends on when it was asked, and on how many views there were: one look does
    not know since when devices are missing."""
    if isinstance(told, dict):
        left = {
            "at",
            "since",
            "observedAt",
            "ageSeconds",
            "lostAt",
            "undated",
            "confirmedAt",
            "startedAt",
            "boundAt",
            "deletedAt",
            "generation",
        }
        left |= {f"{name}Time" for name in left}  # the command's own, for people
        return {name: timeless(one) for name, one in told.items() if name not in left}
    return [timeless(one) for one in told] if isinstance(told, list) else told


@pytest.mark.long
async def test_what_is_told_is_what_a_server_of_the_same_objects_tells(
    api: FakeApi, reader: Reader, tmp_path: Path
) -> None:
    put_fleet(api)
    api.unserved = {"devicehealths", "devicepolicies"}
    settings = tmp_path / "settings.yaml"
    settings.write_text("mode: observe\n")
    questions = {
        "/devices": ("devices", "--all"),
        "/explain?node=hgx-05": ("explain", "node", "hgx-05"),
        "/explain?device=dra-02/gpu-0": ("explain", "device", "dra-02/gpu-0"),
        "/explain?pod=ml/serving-0": ("explain", "pod", "ml/serving-0"),
        "/policy?name=training": ("explain", "policy", "training"),
        "/pods": ("pods",),
        "/status": ("status",),
        "/usage?selector=%21zone": ("top", "nodes", "-l", "!zone"),
        "/what-if?pod=ml/serving-0&mend=dra-03/gpu-0": (
            *("what-if", "ml/serving-0", "--mend", "dra-03/gpu-0"),
        ),
    }
    async with served(tmp_path) as server:
        for path, command in questions.items():
            told = await asyncio.to_thread(fetch, server, path)
            told.pop("process", None)  # how the server is
            ours = await reader.told(*command, "--settings", str(settings))
            assert (ours.pop("cluster"), ours.pop("unseen")) == (api.url, [])
            assert timeless(ours) == timeless(told), path
            given = [*command, "--settings", str(settings), "--snapshot", str(FLEET)]
            ended = await asyncio.to_thread(CliRunner().invoke, main, [*given, "-o", "json"])
            ours = json.loads(ended.stdout)
            assert (ours.pop("cluster"), ours.pop("unseen")) == (str(FLEET), [])
            assert timeless(ours) == timeless(told), path


def test_what_a_snapshot_lacks_is_said(tmp_path: Path) -> None:
    items = {"kind": "NodeList", "apiVersion": "v1", "items": [objects.node("n", 8)]}
    (tmp_path / "nodes.json").write_text(json.dumps(items))
    (tmp_path / "pods.yaml").write_text("{")
    with logging_restored():
        ended = CliRunner().invoke(main, ["pods", "--at-risk", "--snapshot", str(tmp_path)])
    assert ended.exit_code == 1
    assert "no pod is seen on what its policy refuses" in ended.stdout
    assert "snapshot: pods.yaml" in ended.stderr
    assert "the snapshot has no Pod: who uses which device is not seen" in ended.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["devices", "--context", "c"], "mutually exclusive"),
        (["devices", "--server", "http://127.0.0.1:9"], "leave out --server"),
        (["status", "--wait", "1m"], "--wait asks who runs"),
    ],
)
def test_a_snapshot_goes_with_no_cluster(command: list[str], said: str) -> None:
    ended = CliRunner().invoke(main, [*command, "--snapshot", str(FLEET)])
    assert ended.exit_code == 2
    assert said in ended.output


async def test_the_status_of_the_fleet_is_a_few_lines(api: FakeApi, reader: Reader) -> None:
    api.put("nodes", objects.node("bad", 8, conditions=[broken()]))
    for name, expected in (("a", 6), ("b", 4)):
        annotations = {"fettle.dev/expected-devices": f"nvidia.com/gpu={expected}"}
        api.put("nodes", objects.node(name, 4, annotations=annotations))
    api.put("nodes", objects.node("plain"))
    put_pod(api, "runs", "a")
    put_pod(api, "at-risk", "bad")
    put_pod(api, "waits", "")
    source, mode, *found = (await reader.run("status")).stdout.splitlines()
    assert source == f"read from {api.url}"
    assert mode.startswith("mode: not known")
    assert found == [
        "nodes with devices: 3, of these 1 Unhealthy",
        "nvidia.com/gpu: 16, of these 8 Unhealthy",
        "2 nvidia.com/gpu missing on 1 node, 0 lost; of 2 it is not known for how long "
        f"(`fettle devices --kubeconfig {reader.kubeconfig}` names the nodes)",
        "pods with devices: 2 with a node, 1 of them at risk; 1 without one",
        "extender: not known; this process answers no scheduler: ask an extender",
        "second scheduler: does nothing here; no policy asks for it",
        "affinity: does nothing here; 0 of 3 nodes with devices have Fettle's labels; no policy "
        "asks for it",
        "taints: does nothing here; 0 rules taint DRA devices by health, 0 nodes are tainted by "
        "holds",
        "cordon: does nothing here; 0 of 0 cordoned nodes with devices are cordoned by Fettle",
    ]


@pytest.mark.parametrize(
    ("plural", "unknown"),
    [
        ("devicepolicies", ["second scheduler", "affinity"]),
        ("pods", ["second scheduler"]),
        ("nodes", ["affinity", "taints", "cordon"]),
        ("devicetaintrules", ["taints"]),
    ],
)
async def test_of_what_may_not_be_read_it_is_not_said_that_it_does_nothing(
    plural: str, unknown: list[str], api: FakeApi, reader: Reader
) -> None:
    api.forbidden = {("list", plural)}
    ended = await reader.run("status", "-o", "json")
    told = json.loads(ended.stdout)["mechanisms"]
    assert [one["name"] for one in told if one["acts"] is None] == ["extender", *unknown]
    assert all(
        "the right to read is missing" in one["text"] for one in told if one["name"] in unknown
    )


async def test_it_is_read_by_lists_alone_and_nothing_is_written(
    api: FakeApi, reader: Reader
) -> None:
    put_fleet(api)
    assert (await reader.run("devices")).exit_code == 0
    assert {asked.verb for asked in api.asked} == {"list"}


async def test_a_fleet_of_several_pages_is_read_whole(api: FakeApi, reader: Reader) -> None:
    for i in range(1100):
        api.put("nodes", objects.node(f"n{i}", 8, conditions=[broken()] if i == 1099 else []))
    told = await reader.told("devices")
    assert told["nodesWithDevices"] == 1100
    assert [node["node"] for node in told["nodes"]] == ["n1099"]


async def test_what_may_not_be_read_is_said_and_the_rest_is_shown(
    api: FakeApi, reader: Reader
) -> None:
    api.put("nodes", objects.node("n", 8, conditions=[broken()]))
    api.forbidden = {("list", "pods"), ("list", "events"), ("list", "resourceclaims")}
    ended = await reader.run("devices")
    assert ended.exit_code == 0
    assert "n     (node)" in ended.stdout
    assert ended.stderr.splitlines() == [
        "fettle: you may not list resourceclaims.resource.k8s.io: who uses which DRA device is not "
        "seen",
        "fettle: you may not list pods: who uses which device is not seen, nor which pods failed "
        "on one",
        "fettle: you may not list events: faults that only Events tell of are not seen",
    ]
    assert len((await reader.told("devices"))["unseen"]) == 3


async def test_who_may_read_nothing_is_told_so_once(api: FakeApi, reader: Reader) -> None:
    api.forbidden = {("list", kind.plural) for kind in (*kinds.KINDS, kinds.EVENT)}
    ended = await reader.run("devices")
    assert ended.exit_code == 1
    (said,) = ended.output.splitlines()
    assert 'on the resource "nodes"' in said


async def test_pods_at_risk_that_may_be_hidden_are_not_denied(api: FakeApi, reader: Reader) -> None:
    api.put("nodes", objects.node("n", 8, conditions=[broken()]))
    assert (await reader.run("pods", "--at-risk")).exit_code == 0
    api.forbidden = {("list", "resourceclaims")}
    assert (await reader.run("pods", "--at-risk")).exit_code == 1
    put_pod(api, "p", "n")
    ended = await reader.run("pods", "--at-risk")
    assert ended.exit_code == 3
    assert "default/p" in ended.stdout


@pytest.mark.parametrize(
    ("command", "plural", "said", "otherwise"),
    [
        ("devices", "nodes", "no node with devices is seen", "no node has devices"),
        ("devices", "events", "no evidence is seen about any device", "no evidence concerns any"),
        ("pods", "pods", "no pod with devices is seen", "no pod with devices runs"),
        ("pods --at-risk", "pods", "no pod is seen on what its policy refuses", "no pod is on"),
    ],
)
async def test_nothing_is_denied_that_may_be_hidden(
    api: FakeApi, reader: Reader, command: str, plural: str, said: str, otherwise: str
) -> None:
    if plural != "nodes":
        api.put("nodes", objects.node("n", 8))
    assert otherwise in (await reader.run(*command.split())).stdout
    api.forbidden = {("list", plural)}
    assert said in (await reader.run(*command.split())).stdout


async def test_when_a_pod_was_bound_is_not_compared_with_when_the_command_began(
    api: FakeApi, reader: Reader
) -> None:
    """Of a server it says for how long nobody could ask it."""
    api.put("nodes", objects.node("n", 8))
    put_pod(api, "p", "n")
    shown = (await reader.run("pods")).stdout
    assert "default/p" in shown
    assert "before Fettle started" not in shown


async def test_what_a_cluster_does_not_serve_is_said_once_for_each_group(
    api: FakeApi, reader: Reader
) -> None:
    api.put("nodes", objects.node("n", 8, conditions=[broken()]))
    api.unserved = {kind.plural for kind in kinds.KINDS if kind.optional}
    ended = await reader.run("devices")
    assert ended.exit_code == 0
    assert "n     (node)" in ended.stdout
    of_fettle, of_dra = ended.stderr.splitlines()
    assert of_fettle == (
        "fettle: the cluster does not serve devicehealths.fettle.dev, devicepolicies.fettle.dev: "
        "how long states have lasted, and what is over, is not seen; only the built-in policies "
        "count"
    )
    assert of_dra.startswith("fettle: the cluster does not serve deviceclasses.resource.k8s.io, ")
    assert (await reader.told("devices"))["unseen"] == []


async def test_older_versions_of_a_kind_are_read(api: FakeApi, reader: Reader) -> None:
    put_fleet(api)
    api.unserved = {"v1/devicetaintrules", "v1beta2/devicetaintrules"}
    assert "devicetaintrules" not in (await reader.run("devices")).stderr


@pytest.mark.parametrize("overloaded", ["", "1"])
async def test_a_server_that_gives_no_answer_ends_it_with_one_sentence(
    api: FakeApi, reader: Reader, overloaded: str
) -> None:
    if overloaded:
        api.overloaded = overloaded
    else:
        await api.stop()
    ended = await reader.run("devices")
    assert ended.exit_code == 1
    (said,) = ended.output.splitlines()
    assert said.startswith(f"fettle: {api.url} ")


async def test_a_list_that_is_refused_for_a_moment_is_asked_for_again(
    api: FakeApi, reader: Reader
) -> None:
    api.put("nodes", objects.node("n", 8, conditions=[broken()]))
    api.overloaded = "1"

    async def recover() -> None:
        while not api.asked:
            await asyncio.sleep(0.01)
        api.overloaded = ""

    _, told = await asyncio.gather(recover(), reader.told("devices"))
    assert [node["node"] for node in told["nodes"]] == ["n"]


async def test_what_workloads_name_counts_for_their_pods(api: FakeApi, reader: Reader) -> None:
    """As where the webhook, which would stamp it on the pods, is not installed."""
    api.put("nodes", objects.node("n", 8, labels={"health": "degraded"}))
    job = {"metadata": {"name": "j", "namespace": "default", "uid": "u-j"}}
    job["metadata"]["annotations"] = {"fettle.dev/policy": "training"}  # type: ignore[assignment]
    api.put("jobs", job)
    put_pod(api, "p", "n")
    pod = api.objects["pods"]["default/p"]
    pod["metadata"]["ownerReferences"] = [OWNER]
    (listed,) = (await reader.told("pods"))["pods"]
    assert listed["policy"] == "training"
    assert (await reader.told("explain", "policy", "default/p"))["name"] == "training"
    assert (await reader.told("explain", "pod", "default/p"))["policy"]["name"] == "training"
    api.forbidden = {("get", "jobs")}
    ended = await reader.run("pods")
    assert "policies of workloads: 1 cannot be read, such as that of Job j" in ended.stderr


async def test_workloads_that_do_not_answer_in_time_are_counted(
    api: FakeApi, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "WORKLOADS_WITHIN_S", 0.0)
    api.put("nodes", objects.node("n", 8))
    for i in range(3):
        put_pod(api, f"p{i}", "n")
        owner = OWNER | {"uid": f"u-{i}"}
        api.objects["pods"][f"default/p{i}"]["metadata"]["ownerReferences"] = [owner]
    ended = await reader.run("pods", "--at-risk")
    assert ended.exit_code == 1
    assert "the policies that 3 workloads name are not seen" in ended.stderr


@pytest.mark.long
async def test_what_takes_long_shows_on_a_terminal_how_far_it_is(
    api: FakeApi, reader: Reader
) -> None:
    for i in range(3):
        api.put("nodes", objects.node(f"n{i}", 8))
    api.answers_after_s = 0.7  # first of what is remembered, then of nodes and pods
    terminal, its_end = os.openpty()
    command = (sys.executable, "-m", "fettle", "devices", "--kubeconfig", reader.kubeconfig)
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=its_end
    )
    os.close(its_end)
    assert await asyncio.wait_for(process.wait(), 60) == 0
    shown = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert "\r\x1b[Kread so far: " in shown
    assert shown.endswith("\r\x1b[K")  # nothing of it stays


async def test_requirements_of_policies_count_for_pods_that_run(
    api: FakeApi, reader: Reader
) -> None:
    requires = [{"expression": "node.labels['tier'] == 'gold'", "message": "gold only"}]
    api.put(
        "devicepolicies",
        {
            "apiVersion": "fettle.dev/v1alpha1",
            "kind": "DevicePolicy",
            "metadata": {"name": "gold"},
            "spec": {"placement": {"requires": requires}},
        },
    )
    for name, tier in (("a", "gold"), ("b", "tin")):
        api.put("nodes", objects.node(name, 8, labels={"tier": tier}))
        put_pod(api, f"on-{name}", name, annotations={"fettle.dev/policy": "gold"})
    ended = await reader.run("pods", "--at-risk", "--output", "json")
    assert ended.exit_code == 3
    (at_risk,) = json.loads(ended.stdout)["pods"]
    assert (at_risk["pod"], at_risk["worst"]) == (
        "default/on-b",
        "node does not meet the policy: gold only",
    )


async def test_without_settings_no_mode_and_no_fettle_are_spoken_of(
    api: FakeApi, reader: Reader
) -> None:
    api.put("nodes", objects.node("a", 4))
    put_pod(api, "p", "")
    ended = await reader.run("explain", "pod", "default/p")
    assert "mode not known (no settings are given)" in " ".join(ended.output.split())
    assert "changes nothing" not in ended.output
    assert "setting mode" not in ended.output


async def test_a_pod_without_a_namespace_is_of_that_of_the_context(
    api: FakeApi, reader: Reader, tmp_path: Path
) -> None:
    api.put("nodes", objects.node("a", 4))
    put_pod(api, "p", "", namespace="ml")
    assert (await reader.told("explain", "pod", "p", "-n", "ml"))["pod"] == "ml/p"
    ended = await reader.run("explain", "pod", "p")
    assert "pod default/p is not known" in ended.output
    api.kubeconfig(tmp_path, namespace="ml")
    assert (await reader.told("explain", "pod", "p"))["pod"] == "ml/p"
    for wrong in ("", "/", "/p", "ml/", "a/b/c"):
        assert (await reader.run("explain", "pod", wrong)).exit_code == 2, wrong


async def test_pods_of_that_name_in_other_namespaces_are_named(
    api: FakeApi, reader: Reader
) -> None:
    api.put("nodes", objects.node("n", 8))
    put_pod(api, "p", "n", namespace="ml")
    ended = await reader.run("explain", "pod", "other/p")
    assert ended.exit_code == 1
    assert "pod other/p is not known" in ended.output
    assert "of that name there is ml/p" in ended.output
    ended = await reader.run("pods", "-n", "other")
    assert ended.stdout == "no pod with devices runs, of those that you ask for\n"


async def test_a_pod_that_is_not_there_is_a_sentence(api: FakeApi, reader: Reader) -> None:
    ended = await reader.run("explain", "pod", "default/p")
    assert ended.exit_code == 1
    assert "fettle: pod default/p is not known: " in ended.output


async def test_flags_of_reading_go_before_the_environment_and_not_with_a_server(
    api: FakeApi, reader: Reader
) -> None:
    nobody = "http://127.0.0.1:9"
    assert (await reader.run("devices", FETTLE_SERVER=nobody)).exit_code == 0
    ended = await reader.run("devices", "--server", nobody)
    assert ended.exit_code == 2
    assert "leave out --server" in ended.output
    ended = await asyncio.to_thread(
        CliRunner().invoke, main, ["devices"], env={"FETTLE_SERVER": nobody}
    )
    assert f"{nobody} did not answer" in ended.output


async def test_another_context_is_read_and_one_that_is_not_there_is_named(
    api: FakeApi, reader: Reader
) -> None:
    config = json.loads(reader.kubeconfig.read_text())
    config["current-context"] = "elsewhere"
    config["contexts"].append({"name": "elsewhere", "context": {"cluster": "e", "user": "fake"}})
    config["clusters"].append({"name": "e", "cluster": {"server": "http://127.0.0.1:9"}})
    reader.kubeconfig.write_text(json.dumps(config))
    said = (await reader.run("devices")).output
    assert "http://127.0.0.1:9 cannot be reached: Connection refused; " in said
    assert "--context and --kubeconfig name another cluster" in said
    assert (await reader.run("devices", "--context", "fake")).exit_code == 0
    ended = await reader.run("devices", "--context", "none")
    assert ended.exit_code == 1
    assert "it has no context 'none'; it has: 'fake', 'elsewhere'" in ended.output


async def test_every_request_is_made_as_somebody_else_if_asked_for(
    api: FakeApi, reader: Reader
) -> None:
    assert (await reader.run("devices", "--as", "eve")).exit_code == 0
    assert {asked.headers.get("Impersonate-User") for asked in api.asked} == {"eve"}


async def test_whoever_is_impersonated_may_be_in_groups(api: FakeApi, reader: Reader) -> None:
    api.put("nodes", objects.node("a", 4))
    groups = ("--as", "eve", "--as-group", "gpu-users", "--as-group", "system:authenticated")
    for command in (("devices",), ("scheduler-config", "--from-nodes")):
        api.asked.clear()
        ended = await reader.run(*command, *groups)
        assert ended.exit_code == 0, ended.output
        sent = {
            (asked.headers.get("Impersonate-User"), asked.headers.get("Impersonate-Group"))
            for asked in api.asked
        }
        assert sent == {("eve", "gpu-users,system:authenticated")}


@pytest.mark.parametrize("command", [("devices",), ("scheduler-config", "--from-nodes")])
async def test_a_group_without_a_user_is_a_usage_error(
    reader: Reader, command: tuple[str, ...]
) -> None:
    ended = await reader.run(*command, "--as-group", "gpu-users")
    assert ended.exit_code == 2
    assert "--as-group goes with --as" in ended.output


async def test_the_nodes_of_another_context_are_asked_for_resources(reader: Reader) -> None:
    ended = await reader.run("scheduler-config", "--from-nodes", "--context", "nowhere")
    assert ended.exit_code == 1
    assert "nowhere" in ended.output
    ended = await reader.run("scheduler-config", "--context", "fake")
    assert ended.exit_code == 2
    assert "are for --from-nodes" in ended.output


async def test_settings_that_are_given_judge(api: FakeApi, reader: Reader, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("mode: steer\npolicies: [{name: ours}]\n")
    given = ("--settings", str(tmp_path / "settings.yaml"))
    told = await reader.told("explain", "policy", "ours", *given)
    assert told["name"] == "ours"
    assert (await reader.told("devices", *given))["modes"][0] == "mode: steer (setting mode)"


async def test_what_a_fettle_stored_of_metrics_counts_as_for_who_does_not_ask_for_them(
    api: FakeApi, reader: Reader
) -> None:
    asking = Replica(asks=True)
    asking.now = time.time()
    asking.measure(Measured(HEAT, (sample(0.6),)))
    api.put("devicehealths", json.loads(msgspec.json.encode(asking.stored())))
    node = objects.node("n1", 8)
    node["metadata"]["uid"] = "1"
    api.put("nodes", node)
    ended = await reader.run("devices")
    assert ended.exit_code == 0
    assert "60% of the time" in ended.stdout
    assert "a Fettle is installed here, and its settings are not seen" in ended.stderr


@pytest.mark.long
async def test_lint_reads_the_cluster_and_does_not_take_what_it_may_not_read_to_be_absent(
    api: FakeApi, reader: Reader, tmp_path: Path
) -> None:
    (tmp_path / "pod.yaml").write_text(LIST.partition("- apiVersion: resource.k8s.io")[0])
    given = ("lint", str(tmp_path / "pod.yaml"), "--cluster", "--context", "fake")
    ended = await reader.run(*given)
    assert "ResourceClaimTemplate team/gpus does not exist" in ended.stdout
    api.forbidden = {("list", "resourceclaimtemplates")}
    ended = await reader.run(*given)
    assert "ResourceClaimTemplate team/gpus does not exist" not in ended.stdout
    assert "resourceclaimtemplates" in ended.stderr
    assert {asked.verb for asked in api.asked} == {"list"}
    ended = await reader.run(*given, "--snapshot", str(tmp_path))
    assert (ended.exit_code, "mutually exclusive" in ended.output) == (2, True)
