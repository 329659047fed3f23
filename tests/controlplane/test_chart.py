"""The chart on a real API server: every object that it renders is one that it accepts, and Helm
installs, upgrades and uninstalls it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.accounts import Account
from tests.controlplane.admission_checks import CHECK
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.containers import Container
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_cert_manager, kueue_definitions
from tests.controlplane.fettle_process import REPOSITORY, FettleProcess
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import CONFIGURATIONS, until_trusted
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.processes import free_port
from tests.controlplane.test_deployments import containers, run
from tests.controlplane.test_removing import traces
from tests.deploy import charting
from tests.deploy.charting import SCHEDULED, UNSCHEDULED
from tests.deploy.conftest import helm
from tests.deploy.rendering import MATRIX, REPORTS

__all__ = ["containers", "helm"]

pytestmark = pytest.mark.usefixtures("helm")

NOT_SERVED = "monitoring.coreos.com/v1"
"""The Prometheus Operator's: its definitions cannot be had as a Go module."""
ASKED_FOR_BY_PODS = ("PriorityClass", "ServiceAccount")
"""A pod is taken only if they are there."""
INSTALL_S = 120


class Release:
    """Helm, as an administrator of the cluster."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self._flags = ("-n", charting.NAMESPACE, "--kubeconfig", str(plane.tester_kubeconfig))
        self._home = home

    async def helm(self, verb: str, *arguments: str, given: Mapping[str, Any] | None = None) -> str:
        command = (verb, "fettle", *arguments, *self._flags)
        run = charting.run
        return await asyncio.to_thread(
            run, *command, given=given, home=self._home, timeout_s=INSTALL_S
        )

    async def install(self, given: Mapping[str, Any], *how: str) -> str:
        arguments = (str(charting.CHART), "--create-namespace", *how)
        return await self.helm("install", *arguments, given=given)

    async def upgrade(self, given: Mapping[str, Any]) -> str:
        return await self.helm("upgrade", str(charting.CHART), given=given)


async def run_hook(plane: ControlPlane, api: Api, name: str, settings: Path | None = None) -> str:
    """Do what the pod of a hook does, and say that it has ended so: what it printed. Meanwhile the
    steward's `settings` are those of the ConfigMap, as by a kubelet."""
    (pod,) = await waiting.wait_until(
        lambda: pods_of(api, name), what=f"the pod of {name} is there", timeout_s=60
    )
    kubeconfig = await plane.kubeconfig_for_service_account(name, charting.NAMESPACE)
    (container,) = pod["spec"]["containers"]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *container["command"], *container["args"]),
        *("--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=REPOSITORY,
    )
    ending = asyncio.create_task(running.communicate())
    async with asyncio.timeout(INSTALL_S):
        while not ending.done():
            if settings is not None:
                stored = await api.get("configmaps", "fettle", charting.NAMESPACE)
                settings.write_text(stored["data"]["settings.yaml"])
            await asyncio.wait([ending], timeout=0.5)
    said = (await ending)[0].decode()
    phase = "Succeeded" if running.returncode == 0 else "Failed"
    await api.patch_status("pods", pod["metadata"]["name"], {"phase": phase}, charting.NAMESPACE)
    return said


async def pods_of(api: Api, name: str) -> list[Object]:
    return await api.list("pods", charting.NAMESPACE, labels=f"app.kubernetes.io/name={name}")


@pytest.fixture
def release(control_plane: ControlPlane, tmp_path: Path) -> Release:
    return Release(control_plane, tmp_path)


async def test_the_api_server_accepts_each_object_of_each_rendering(api: Api) -> None:
    await define_cert_manager(api)
    for namespace in (charting.NAMESPACE, "fettle-dry-run"):
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    seen: list[Object] = []
    for values in MATRIX.values():
        for one in await asyncio.to_thread(charting.objects, values):
            if one["apiVersion"] != NOT_SERVED and one not in seen:
                seen.append(one)
                await api.apply(one, dry_run=one["kind"] not in ASKED_FOR_BY_PODS)
                assert api.warnings == []
    kinds = {one["kind"] for one in seen}
    assert {"DaemonSet", "Deployment", "NetworkPolicy", "ValidatingAdmissionPolicy"} <= kinds


@pytest.mark.parametrize("applying", ["true", "false"])
async def test_an_upgrade_keeps_what_fettle_wrote_and_the_rest_is_changed(
    control_plane: ControlPlane,
    api: Api,
    release: Release,
    start_fettle: StartFettle,
    applying: str,
) -> None:
    """The CA that it keeps, and the caBundle; with no right that the chart does not give it. By
    server-side apply, as Helm 4 does, and by patches of its own, as Helm 3 does."""
    notes = await release.install({}, f"--server-side={applying}")
    assert "kubectl -n fettle-system rollout status deployment/fettle-webhook" in notes
    assert "fettle scheduler-config --in FILE --from-nodes --mode observe --write" in notes
    account = await control_plane.kubeconfig_for_service_account(
        shipped.WEBHOOK_ACCOUNT, charting.NAMESPACE
    )
    await start_fettle("webhook", kubeconfig=account, settings=None)
    await until_trusted(api)
    before = [await api.get(resource, "fettle") for resource in CONFIGURATIONS]
    kept = await api.get("secrets", "fettle-webhook-ca", charting.NAMESPACE)
    assert set(kept["data"]) == {"ca.crt", "ca.key"}

    enforcing = {"settings": {"mode": "enforce", "nodeMarks": {"label": True}}}
    assert "component=b" in await release.upgrade(enforcing)
    after = [await api.get(resource, "fettle") for resource in CONFIGURATIONS]
    assert [one["webhooks"] for one in after] == [one["webhooks"] for one in before]
    again = await api.get("secrets", "fettle-webhook-ca", charting.NAMESPACE)
    assert again["data"] == kept["data"]
    config_map = await api.get("configmaps", "fettle", charting.NAMESPACE)
    assert "mode: enforce" in config_map["data"]["settings.yaml"]
    assert await api.find("clusterroles", "fettle-node-marks")


async def test_from_an_empty_cluster_to_the_first_refused_node(
    control_plane: ControlPlane,
    api: Api,
    release: Release,
    kubelet: Kubelet,
    containers: list[Container],
    tmp_path: Path,
) -> None:
    """By the chart and the scheduler's configuration; and one of the two extenders on a host goes
    on while the other is replaced."""
    await create_node(api, objects.node("dead", 8))
    await kubelet.set_node_condition(
        "dead", "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await release.install({"settings": {"mode": "enforce"}})
    account = Account(control_plane, tmp_path / "account", "fettle-extender", "kube-system")
    await account.renew()
    settings = await api.get("configmaps", "fettle-extender", "kube-system")
    port = free_port()
    for one in ("fettle-extender-a", "fettle-extender-b"):
        daemons = await api.get("daemonsets", one, "kube-system")
        arguments = daemons["spec"]["template"]["spec"]["containers"][0]["args"]
        arguments.append(f"--extender-listen=127.0.0.1:{port}")
        volumes = {"fettle-extender": settings["data"]}
        await run(containers, tmp_path / one, account, daemons, volumes)
    configuration = shipped.scheduler_configuration(f"http://127.0.0.1:{port}")
    await control_plane.start_scheduler(configuration)
    await api.create(objects.pod("before", gpus=1))
    await waiting.refused(api, "before", saying="fettle:")
    containers[0].kill()
    await api.create(objects.pod("meanwhile", gpus=1))
    await waiting.refused(api, "meanwhile", saying="fettle:")
    assert all(container.written() == [] for container in containers)


async def show_pod(api: Api, fettle: FettleProcess, role: str) -> None:
    """As if this process ran in a pod of the role's Deployment."""
    metadata = {"name": f"fettle-{role}-0", "namespace": charting.NAMESPACE}
    labels = {"app.kubernetes.io/part-of": "fettle", "app.kubernetes.io/name": f"fettle-{role}"}
    container = {
        "name": "fettle",
        "image": "fettle",
        "ports": [{"name": "browse", "containerPort": fettle.browse_port}],
    }
    spec = {"serviceAccountName": f"fettle-{role}", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "labels": labels}}
    await api.create({**pod, "spec": spec})
    status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    await api.patch_status("pods", metadata["name"], status, charting.NAMESPACE)


async def test_helm_test_says_what_is_missing_and_passes_once_it_is_set_up(
    control_plane: ControlPlane,
    api: Api,
    release: Release,
    start_fettle: StartFettle,
) -> None:
    await release.install({"extender": {"type": "None"}})
    processes = {}
    for role in ("webhook", "steward"):
        account = await control_plane.kubeconfig_for_service_account(
            f"fettle-{role}", charting.NAMESPACE
        )
        processes[role] = await start_fettle(role, kubeconfig=account, settings=None)
        await show_pod(api, processes[role], role)
    testing = asyncio.create_task(release.helm("test", "--timeout", f"{INSTALL_S}s"))
    pod = await waiting.wait_until(
        lambda: api.get("pods", "fettle-check", charting.NAMESPACE), what="the check is there"
    )
    checks = await control_plane.kubeconfig_for_service_account("fettle-check", charting.NAMESPACE)
    (container,) = pod["spec"]["containers"]
    command = (sys.executable, "-m", *container["command"], *container["args"])
    checking = await asyncio.create_subprocess_exec(
        *command, "--kubeconfig", str(checks), stderr=asyncio.subprocess.PIPE, cwd=REPOSITORY
    )
    assert checking.stderr is not None
    async with asyncio.timeout(60):
        said = (await checking.stderr.readline()).decode()
        while "the API server has not asked the webhook yet" not in said:
            said = (await checking.stderr.readline()).decode()
    for resource in CONFIGURATIONS:  # here no Service leads to the webhook
        await api.delete(resource, "fettle")
    port = processes["webhook"].webhook_port
    await shipped.apply(api, shipped.webhook_configurations(port))
    await until_trusted(api)
    async with asyncio.timeout(60):
        assert await checking.wait() == 0
    assert await api.list("devicepolicies") == []
    await api.patch_status("pods", "fettle-check", {"phase": "Succeeded"}, charting.NAMESPACE)
    assert "Succeeded" in await testing
    assert await api.find("clusterroles", "fettle-check") is None


async def test_the_check_may_try_policies_and_create_none(
    control_plane: ControlPlane, api: Api, release: Release
) -> None:
    await release.install({"extender": {"type": "None"}})
    testing = asyncio.create_task(release.helm("test", "--timeout", "60s"))
    await waiting.wait_until(
        lambda: api.get("pods", "fettle-check", charting.NAMESPACE), what="the check is there"
    )
    check = await control_plane.api_as_service_account("fettle-check", charting.NAMESPACE)
    policy = {
        "apiVersion": "fettle.dev/v1alpha1",
        "kind": "DevicePolicy",
        "metadata": {"name": "theirs"},
        "spec": {},
    }
    async with check:
        await check.create(policy, dry_run=True)
        with pytest.raises(ApiError, match="fettle-creates"):
            await check.create(policy)
    await api.patch_status("pods", "fettle-check", {"phase": "Failed"}, charting.NAMESPACE)
    with pytest.raises(charting.HelmFailed):
        await testing


async def test_before_it_is_uninstalled_the_steward_takes_back_what_it_wrote(
    control_plane: ControlPlane,
    api: Api,
    release: Release,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    await control_plane.start_controller_manager()
    taints = {0: [objects.taint("gpu.nvidia.com/xid", "None", "79")]}
    await create_dra_node(api, "ill", objects.gpu_devices(8, taints=taints))
    marks = {"label": True, "condition": True, "holdSeconds": 0}
    health = {"unhealthy": "NoSchedule", "confirmSeconds": 0}
    settings = {"mode": "enforce", "nodeMarks": marks, "deviceTaints": health}
    await release.install({"settings": settings, "extender": {"type": "None"}})
    account = await control_plane.kubeconfig_for_service_account(
        shipped.STEWARD_ACCOUNT, charting.NAMESPACE
    )
    stored = await api.get("configmaps", "fettle", charting.NAMESPACE)
    file = tmp_path / "settings.yaml"
    file.write_text(stored["data"]["settings.yaml"])
    await start_fettle("steward", kubeconfig=account, settings=file)
    await waiting.wait_until(
        lambda: marked(api), lambda found: len(found) == 3, what="the node is marked in three ways"
    )

    uninstalling = asyncio.create_task(release.helm("uninstall"))
    said = await run_hook(control_plane, api, "fettle-withdraw", file)
    assert "MutatingWebhookConfiguration fettle is deleted" in said
    assert "the steward is told to take back its marks" in said
    assert await marked(api) == set()
    assert 'release "fettle" uninstalled' in await uninstalling
    assert await api.find("clusterroles", "fettle-withdraw") is None


async def test_it_is_not_uninstalled_while_kueue_waits_for_its_answers(
    control_plane: ControlPlane, api: Api, release: Release
) -> None:
    await control_plane.start_controller_manager()
    await shipped.apply(api, kueue_definitions())
    await api.create(CHECK)
    values = {"settings": {"kueue": {"admissionCheck": True}}, "extender": {"type": "None"}}
    notes = await release.install(values)
    assert "Take such checks out of all ClusterQueues and delete them" in notes

    uninstalling = asyncio.create_task(release.helm("uninstall"))
    said = await run_hook(control_plane, api, "fettle-withdraw")
    assert "AdmissionCheck sound-devices is answered by Fettle alone" in said
    with pytest.raises(charting.HelmFailed, match="fettle-withdraw"):
        await uninstalling
    assert await api.get("deployments", "fettle-steward", charting.NAMESPACE)
    assert await api.get(CONFIGURATIONS[0], "fettle")

    await api.delete("admissionchecks", CHECK["metadata"]["name"])
    await waiting.wait_until(
        lambda: api.find("admissionchecks", CHECK["metadata"]["name"]),
        lambda found: found is None,
        what="the check is gone",
    )
    before = {pod["metadata"]["name"] for pod in await pods_of(api, "fettle-withdraw")}
    uninstalling = asyncio.create_task(release.helm("uninstall"))
    await waiting.wait_until(
        lambda: pods_of(api, "fettle-withdraw"),
        lambda pods: len(pods) == 1 and pods[0]["metadata"]["name"] not in before,
        what="the hook is tried again",
        timeout_s=60,
    )
    await run_hook(control_plane, api, "fettle-withdraw")
    assert 'release "fettle" uninstalled' in await uninstalling


async def test_what_the_chart_calls_no_schedule_is_none_to_the_api_server(api: Api) -> None:
    (job,) = (
        one
        for one in await asyncio.to_thread(charting.objects, REPORTS)
        if one["kind"] == "CronJob"
    )
    await api.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": charting.NAMESPACE}}
    )
    for schedule in SCHEDULED:
        await api.create({**job, "spec": {**job["spec"], "schedule": schedule}}, dry_run=True)
    for schedule in UNSCHEDULED:
        with pytest.raises(ApiError, match="schedule"):
            await api.create({**job, "spec": {**job["spec"], "schedule": schedule}}, dry_run=True)


async def marked(api: Api) -> set[str]:
    """How the node `ill` is marked, and its device."""
    node = await api.get("nodes", "ill")
    found = {key for key in node["metadata"]["labels"] if key == "fettle.dev/health"}
    found |= {c["type"] for c in node["status"]["conditions"] if c["type"].startswith("Fettle")}
    return found | {"rule" for _ in await api.list("devicetaintrules")}


async def test_whoever_uninstalls_it_is_left_with_the_definitions_and_what_they_hold(
    control_plane: ControlPlane, api: Api, release: Release
) -> None:
    await control_plane.start_controller_manager()
    await release.install({"rights": {"holdTaints": True, "wakePreemptors": True}})
    policy = {
        "apiVersion": "fettle.dev/v1alpha1",
        "kind": "DevicePolicy",
        "metadata": {"name": "of-a-user"},
        "spec": {},
    }
    await api.create(policy)
    uninstalling = asyncio.create_task(release.helm("uninstall"))
    await run_hook(control_plane, api, "fettle-withdraw")
    await uninstalling
    left = {one for one in await traces(api) if not one.startswith("APIService")}
    assert left == {
        "Namespace fettle-system",
        # As in each namespace, by the controller manager.
        "ConfigMap fettle-system/kube-root-ca.crt",
        "ServiceAccount fettle-system/default",
        "CustomResourceDefinition devicehealths.fettle.dev",
        "CustomResourceDefinition devicepolicies.fettle.dev",
        "DevicePolicy of-a-user",
    }
    await release.install({})
    assert await api.get("devicepolicies", "of-a-user")


async def test_what_was_applied_by_kubectl_becomes_the_releases(api: Api, release: Release) -> None:
    await shipped.apply(api, shipped.manifests(shipped.DEPLOY / "crds"))
    await shipped.apply_rbac(api)
    await release.helm(
        "install", str(charting.CHART), "--take-ownership", "--force-conflicts", given={}
    )
    role = await api.get("clusterroles", "fettle")
    assert role["metadata"]["annotations"]["meta.helm.sh/release-name"] == "fettle"
