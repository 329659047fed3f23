"""What `fettle scheduler-config` makes is read by the real kube-scheduler as it is meant, and what
it refuses would not do there either."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import kubeconfigs, objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.certificates import Authority
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import REFUSED as NO_SOUND_DEVICES
from tests.controlplane.kubelet import Kubelet
from tests.fettle.cli.configurations import EMPTY, HEAD, REFUSED, USABLE
from tests.fettle.cli.linted import called

CONFIGURATIONS = {**USABLE, **EMPTY}
ENFORCES = ("--mode", "enforce", "--resource", "example.com/npu", "--url", "https://[::1]:8088")
OBSERVES = ("--mode", "observe", "--url", "http://localhost:8088")
AUTHORITY = Authority("extender")
ACCEPTED = {"two documents", "an extender without a URL", "two entries for Fettle"}
"""What kube-scheduler starts with, and does not do as it says."""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """kube-scheduler wants one, and calls nobody while it only reads its configuration."""
    given = kubeconfigs.by_token("https://127.0.0.1:1", b"", "none")
    return kubeconfigs.write(given, tmp_path / "kubeconfig")


def made(file: Path, *arguments: str | Path) -> None:
    """`fettle scheduler-config --write`."""
    command = ("scheduler-config", "--in", str(file), "--write")
    called(*command, *map(str, arguments)).check_returncode()


def loaded(binary: Path, file: Path) -> tuple[str, Any]:
    """What kube-scheduler says if it does not start with this file, and the configuration that it
    understood, with all defaults."""
    found = file.with_suffix(".loaded")
    found.unlink(missing_ok=True)
    command = [str(binary), "kube-scheduler", f"--config={file}", f"--write-config-to={found}"]
    flags = ["--secure-port=0", "--authentication-skip-lookup"]
    ran = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60)
    if ran.returncode:
        return ran.stderr, None
    understood = yaml.safe_load(found.read_text())
    for profile in understood["profiles"]:  # in another order each time
        profile["pluginConfig"] = {one["name"]: one["args"] for one in profile["pluginConfig"]}
    return "", understood


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_kube_scheduler_understands_all_that_was_there_and_the_entry(
    name: str, controlplane_binary: Path, kubeconfig: Path, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_bytes(CONFIGURATIONS[name].encode())
    pair = AUTHORITY.client("system:kube-scheduler")
    (tmp_path / "extender-ca.crt").write_bytes(AUTHORITY.certificate)
    (tmp_path / "scheduler.crt").write_bytes(pair.certificate)
    (tmp_path / "scheduler.key").write_bytes(pair.key)
    connected = ("--scheduler-kubeconfig", kubeconfig)
    made(file, *connected)
    made(file, "--remove")
    said, before = loaded(controlplane_binary, file)
    assert said == ""
    for arguments in ((), ENFORCES, OBSERVES):
        made(file, *connected, *arguments)
        file.write_bytes(file.read_bytes().replace(b"/etc/kubernetes/fettle", bytes(tmp_path)))
        said, after = loaded(controlplane_binary, file)
        assert said == ""
        *others, ours = after.pop("extenders")
        assert others == (before.get("extenders") or [])
        for profile in after["profiles"]:
            ignored = profile["pluginConfig"]["NodeResourcesFit"].pop("ignoredResources")
            assert "fettle.dev/claims" in ignored
        for profile in before["profiles"]:
            profile["pluginConfig"]["NodeResourcesFit"].pop("ignoredResources", None)
        assert after == {key: value for key, value in before.items() if key != "extenders"}
        assert ours.get("ignorable", False) is (arguments != ENFORCES)
        assert ours["nodeCacheCapable"] is True
        assert ours.get("enableHTTPS", False) is (arguments == ENFORCES)
        listed = {one["name"] for one in ours["managedResources"]}
        assert {"fettle.dev/claims", "nvidia.com/gpu"} <= listed
        assert ("example.com/npu" in listed) is (arguments != ())


def test_kube_scheduler_understands_a_new_configuration(
    controlplane_binary: Path, kubeconfig: Path, tmp_path: Path
) -> None:
    ran = called("scheduler-config", "--scheduler-kubeconfig", str(kubeconfig))
    (tmp_path / "scheduler.yaml").write_text(ran.stdout)
    said, found = loaded(controlplane_binary, tmp_path / "scheduler.yaml")
    assert said == ""
    assert [one["urlPrefix"] for one in found["extenders"]] == ["http://127.0.0.1:8088"]
    assert found["leaderElection"]["leaderElect"] is True


@pytest.mark.parametrize("name", REFUSED)
def test_kube_scheduler_starts_with_nothing_that_is_refused_or_does_not_as_it_says(
    name: str, controlplane_binary: Path, kubeconfig: Path, tmp_path: Path
) -> None:
    text, _ = REFUSED[name]
    file = tmp_path / "scheduler.yaml"
    connection = f"clientConnection: {{kubeconfig: {kubeconfig}}}\n"
    file.write_text(text.replace(HEAD, HEAD + connection) if name in ACCEPTED else text)
    said, _ = loaded(controlplane_binary, file)
    assert bool(said) is (name not in ACCEPTED), said


@pytest.mark.parametrize("spread", [True, False])
async def test_an_extender_ends_batching_where_no_default_constraints_have_ended_it_before(
    control_plane: ControlPlane, api: Api, spread: bool
) -> None:
    """OpportunisticBatching, by the scheduler's own count of pods that it placed so."""
    for number in range(24):
        await create_node(api, objects.node(f"n{number}"))
    args = {"defaultingType": "List", "defaultConstraints": []}
    plugins = [] if spread else [{"name": "PodTopologySpread", "args": args}]
    entry = {"urlPrefix": "http://127.0.0.1:1", "managedResources": [{"name": "example.com/npu"}]}
    batched = {}
    for extenders in ((), (entry,)):
        await control_plane.start_scheduler(
            objects.scheduler_configuration(*extenders, profiles=[{"pluginConfig": plugins}])
        )
        names = [f"plain-{len(extenders)}-{number}" for number in range(10)]
        await asyncio.gather(*(api.create(objects.pod(name, cpu="40")) for name in names))
        for name in names:
            await waiting.bound(api, name)
        batched[len(extenders)] = 'result="hint_used"' in await control_plane.scheduler_metrics()
        await control_plane.stop_scheduler()
    assert batched == {0: not spread, 1: False}


async def test_from_an_unconfigured_scheduler_to_the_first_refused_node(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    """By the commands of docs/install-scheduler.md, with the resources of the cluster's Nodes."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(f"{HEAD}leaderElection: {{leaderElect: false}}\n")
    command = [sys.executable, "-m", "fettle", "scheduler-config", "--in", str(file)]
    command += ["--from-nodes", "--kubeconfig", str(control_plane.tester_kubeconfig)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert "No Node has an extended resource now" in shown.stderr
    assert shown.stdout.count("- name: ") == shown.stdout.count("- name: fettle.dev/claims") == 1

    await create_node(api, objects.node("dead", 8, resource="example.com/npu"))
    await kubelet.set_node_condition(
        "dead", "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    fettle = await start_fettle("extender")
    command += ["--mode", "enforce", "--url", fettle.extender_url, "--write"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    configuration = yaml.safe_load(file.read_text())
    (entry,) = configuration["extenders"]
    names = [one["name"] for one in entry["managedResources"]]
    assert names == ["example.com/npu", "fettle.dev/claims"]
    await control_plane.start_scheduler(configuration)
    await api.create(objects.pod("asked", gpus=1, resource="example.com/npu"))
    assert NO_SOUND_DEVICES in await waiting.refused(api, "asked")
