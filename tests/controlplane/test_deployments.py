"""The manifests of `deploy/` on a real API server, and what their containers do when they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.controlplane import shipped, waiting
from tests.controlplane.accounts import Account
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.certificates import Authority
from tests.controlplane.containers import Container, Volumes
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import (
    define_cert_manager,
    define_policies,
    define_workloads,
)
from tests.controlplane.fettle_process import FettleProcess

DEPLOY = shipped.DEPLOY
NOT_FOR_THE_API_SERVER = {
    "api-server/admission-configuration.yaml": "read by kube-apiserver from a file",
    "api-server/webhooks-kubeconfig.yaml": "read by kube-apiserver from a file",
    "scheduler/kube-scheduler-config.yaml": "read by kube-scheduler from a file",
    "scheduler/kube-scheduler-config-enforce.yaml": "read by kube-scheduler from a file",
    "certificates/patches/extender.yaml": "a patch",
    "certificates/patches/webhook.yaml": "a patch",
    "one-process/patch.yaml": "a patch",
    "metrics/fettle-alerts.yaml": "read by Prometheus from a file",
    "samples/rules/objects.yaml": "read by Fettle from a file",
    "samples/rules/examples.yaml": "read by Fettle from a file",
}


AccountOf = Callable[[Object], Awaitable[Account]]


@pytest.fixture
async def account_of(control_plane: ControlPlane, api: Api, tmp_path: Path) -> AccountOf:
    """The service account that a Deployment names, with the rights in deploy/rbac."""
    await shipped.apply_rbac(api)
    await define_policies(api)

    async def make(deployment: Object) -> Account:
        name = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        made = Account(control_plane, tmp_path / "serviceaccount", name, shipped.NAMESPACE)
        await made.renew()
        return made

    return make


@pytest.fixture
def containers() -> Iterator[list[Container]]:
    started: list[Container] = []
    yield started
    for container in started:
        container.kill()


def deployment(file: str, name: str) -> Object:
    documents = shipped.manifests(DEPLOY / file)
    (found,) = (d for d in documents if d["kind"] == "Deployment" and d["metadata"]["name"] == name)
    return found


def config_maps(file: str) -> dict[str, dict[str, str]]:
    documents = shipped.manifests(DEPLOY / file)
    return {d["metadata"]["name"]: d["data"] for d in documents if d["kind"] == "ConfigMap"}


async def run(
    containers: list[Container],
    folder: Path,
    account: Account,
    shipped_deployment: Object,
    volumes: Volumes,
) -> Container:
    container = Container(shipped_deployment, folder / "container", account, volumes)
    containers.append(container)
    container.start()
    await container.ready("livenessProbe")
    await container.ready("readinessProbe")
    return container


async def run_on(api: Api, pod: str, node: str) -> None:
    """Bind it, as a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": pod, "namespace": shipped.NAMESPACE}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    path = f"/api/v1/namespaces/{shipped.NAMESPACE}/pods/{pod}/binding"
    await api.request("POST", path, body=binding)


async def evict(api: Api, pod: str) -> None:
    metadata = {"name": pod, "namespace": shipped.NAMESPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{shipped.NAMESPACE}/pods/{pod}/eviction"
    await api.request("POST", path, body=eviction)


async def test_every_shipped_object_is_taken_by_the_api_server(
    control_plane: ControlPlane, api: Api
) -> None:
    files = {str(f.relative_to(DEPLOY)): f for f in shipped.files()}
    assert set(NOT_FOR_THE_API_SERVER) <= set(files)
    await define_policies(api)
    await define_workloads(api)
    await define_cert_manager(api)
    await shipped.apply_rbac(api)
    for namespace in ("scavengers", "fettle-dry-run"):  # where shipped objects live
        await control_plane.create_namespace(namespace)
    for namespace in ("kube-system", shipped.NAMESPACE):  # else no pod is taken there
        metadata = {"name": "default", "namespace": namespace}
        await api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    tried = 0
    for name, file in files.items():
        if name in NOT_FOR_THE_API_SERVER:
            continue
        for document in shipped.manifests(file):
            # A pod is taken only if its priority class is there.
            made = await api.apply(document, dry_run=document["kind"] != "PriorityClass")
            assert made["metadata"]["name"] == document["metadata"]["name"]
            assert api.warnings == [], name
            tried += 1
    assert tried > 30


@pytest.mark.parametrize("name", ["webhook", "steward"])
async def test_webhook_and_steward_run_as_their_deployments_say(
    account_of: AccountOf, containers: list[Container], tmp_path: Path, name: str
) -> None:
    shipped_deployment = deployment(f"server/{name}.yaml", f"fettle-{name}")
    account = await account_of(shipped_deployment)
    assert account.name == f"fettle-{name}"
    settings = config_maps("server/settings.yaml")
    container = await run(containers, tmp_path, account, shipped_deployment, settings)
    assert container.written() == []


async def test_one_process_for_both_runs_as_the_patch_says(
    api: Api, account_of: AccountOf, containers: list[Container], tmp_path: Path
) -> None:
    shipped_deployment = deployment("server/webhook.yaml", "fettle-webhook")
    (patch,) = shipped.manifests(DEPLOY / "one-process" / "patch.yaml")
    pod = shipped_deployment["spec"]["template"]["spec"]
    changes = patch["spec"]["template"]["spec"]
    pod["serviceAccountName"] = changes["serviceAccountName"]
    pod["containers"][0] |= changes["containers"][0]
    account = await account_of(shipped_deployment)
    await shipped.apply(api, shipped.manifests(DEPLOY / "one-process" / "rights.yaml"))
    settings = config_maps("server/settings.yaml")
    await run(containers, tmp_path, account, shipped_deployment, settings)
    for lease in ("fettle-steward", "fettle-certificates"):
        await waiting.wait_until(
            lambda lease=lease: api.find("leases", lease, shipped.NAMESPACE),  # type: ignore[misc]
            what=f"it holds {lease}",
        )


async def test_the_static_pod_needs_nothing_but_the_cluster_role_bound_to_its_user(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    (pod,) = shipped.manifests(DEPLOY / "scheduler" / "static-pod.yaml")
    serve, role, kubeconfig, *_ = pod["spec"]["containers"][0]["args"]
    assert (serve, kubeconfig.partition("=")[0]) == ("serve", "--kubeconfig")
    user = "fettle-extender"
    await shipped.apply_rbac(api)
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "fettle"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    await api.apply(binding)
    fettle = FettleProcess(
        tmp_path, roles=[role], kubeconfig=control_plane.kubeconfig_for_user(user)
    )
    try:
        fettle.start()
        await fettle.ready()
    finally:
        fettle.kill()


async def test_the_extender_runs_as_its_deployment_says(
    account_of: AccountOf, containers: list[Container], tmp_path: Path
) -> None:
    file = "extender/extender.yaml"
    clients = {"ca.crt": Authority("clients").certificate.decode()}
    volumes = {**config_maps(file), "fettle-extender-clients": clients}
    shipped_deployment = deployment(file, "fettle-extender")
    account = await account_of(shipped_deployment)
    container = await run(containers, tmp_path, account, shipped_deployment, volumes)
    assert container.written() == []


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("server/webhook.yaml", "fettle-webhook"),
        ("server/steward.yaml", "fettle-steward"),
        ("extender/extender.yaml", "fettle-extender"),
    ],
)
async def test_a_drain_waits_for_a_replica_that_serves_and_for_none_that_is_not_ready(
    control_plane: ControlPlane, api: Api, file: str, name: str
) -> None:
    await control_plane.start_controller_manager()
    await shipped.apply_rbac(api)
    kinds = ("Deployment", "PodDisruptionBudget")
    await shipped.apply(api, [d for d in shipped.manifests(DEPLOY / file) if d["kind"] in kinds])
    pods = await waiting.wait_until(
        lambda: api.list("pods", shipped.NAMESPACE), lambda found: len(found) == 2, what="two pods"
    )
    names = [pod["metadata"]["name"] for pod in pods]
    await asyncio.gather(*(run_on(api, pod, f"node-{i}") for i, pod in enumerate(names)))

    async def are(ready: str) -> None:
        said = [{"type": "Ready", "status": ready}]
        status = {"phase": "Running", "conditions": said}
        for pod in names:
            await api.patch_status("pods", pod, status, shipped.NAMESPACE)
        serving = len(names) if ready == "True" else 0
        await waiting.wait_until(
            lambda: api.get("poddisruptionbudgets", name, shipped.NAMESPACE),
            lambda budget: budget.get("status", {}).get("currentHealthy") == serving,
            what=f"the budget counts {serving} replicas",
        )

    await are("True")
    await evict(api, names[0])
    with pytest.raises(ApiError, match="disruption budget"):
        await evict(api, names[1])
    names = names[1:]
    await are("False")
    await evict(api, names[0])


async def test_an_extender_may_write_nothing_but_its_own_authority(
    control_plane: ControlPlane, api: Api
) -> None:
    await shipped.apply_rbac(api)
    for configuration in shipped.webhook_configurations(1):
        await api.apply(configuration)
    account = await control_plane.api_as_service_account(
        shipped.EXTENDER_ACCOUNT, shipped.NAMESPACE
    )
    secret = {"apiVersion": "v1", "kind": "Secret"}
    own, others = "fettle-extender-ca", "fettle-webhook-ca"
    changes = {"metadata": {"labels": {"a": "b"}}}
    metadata = {"name": "fettle-steward", "namespace": shipped.NAMESPACE}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    try:
        for name in (own, others):
            metadata = {"name": name, "namespace": shipped.NAMESPACE}
            await api.apply({**secret, "metadata": metadata})
        await account.get("secrets", own, shipped.NAMESPACE)
        await account.list("pods")
        with pytest.raises(ApiError, match=f'"{others}" is forbidden'):
            await account.get("secrets", others, shipped.NAMESPACE)
        with pytest.raises(ApiError, match="cannot patch resource"):
            await account.patch("validatingwebhookconfigurations", "fettle", changes)
        with pytest.raises(ApiError, match="cannot create resource"):
            await account.create(lease)
    finally:
        await account.close()


RUN_BY: Mapping[str, tuple[str, str, str]] = {
    "the webhook": ("server/webhook.yaml", "fettle-webhook", ""),
    "the steward": ("server/steward.yaml", "fettle-steward", ""),
    "the extender": ("extender/extender.yaml", "fettle-extender", ""),
    "a second scheduler": ("second-scheduler/scheduler.yaml", "fettle-scheduler", ""),
    "one process": ("server/webhook.yaml", "fettle-webhook", "one-process/patch.yaml"),
    "the webhook with files": (
        "server/webhook.yaml",
        "fettle-webhook",
        "certificates/patches/webhook.yaml",
    ),
    "the extender with files": (
        "extender/extender.yaml",
        "fettle-extender",
        "certificates/patches/extender.yaml",
    ),
}


def test_every_shipped_deployment_is_tried_in_the_restricted_namespace() -> None:
    shipped_in = {
        str(file.relative_to(DEPLOY))
        for file in shipped.files()
        if "samples" not in file.parts
        and any(each.get("kind") == "Deployment" for each in shipped.manifests(file))
    }
    assert shipped_in == {file for file, _, _ in RUN_BY.values()}
    patches = {name for name, why in NOT_FOR_THE_API_SERVER.items() if why == "a patch"}
    assert patches == {patch for _, _, patch in RUN_BY.values() if patch}


@pytest.mark.parametrize("which", RUN_BY)
async def test_fettles_pods_are_taken_in_its_restricted_namespace(api: Api, which: str) -> None:
    file, name, patch = RUN_BY[which]
    await shipped.apply_rbac(api)
    for rights in (DEPLOY / file).parent.glob("rights.yaml"):
        await shipped.apply(api, shipped.manifests(rights))
    await api.apply(deployment(file, name))
    assert api.warnings == []
    if patch:
        (changes,) = shipped.manifests(DEPLOY / patch)
        await api.patch("deployments", name, changes, shipped.NAMESPACE, form="strategic")
        assert api.warnings == []
    template = (await api.get("deployments", name, shipped.NAMESPACE))["spec"]["template"]
    metadata = {**template["metadata"], "name": "one", "namespace": shipped.NAMESPACE}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    await api.create(pod)
    assert api.warnings == []


async def test_the_pod_that_wakes_preemptors_is_taken_there_too(api: Api) -> None:
    await shipped.apply_rbac(api)
    metadata = {"name": "default", "namespace": shipped.NAMESPACE}
    await api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    optional = shipped.manifests(DEPLOY / "rbac" / "optional" / "wake-preemptors.yaml")
    for document in sorted(optional, key=lambda d: d["kind"] != "PriorityClass"):
        await api.apply(document)
        assert api.warnings == []
    assert await api.find("pods", "fettle-wake-up", shipped.NAMESPACE)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hostNetwork": True}, "hostNetwork=true"),
        ({"volumes": [{"name": "records", "hostPath": {"path": "/"}}]}, "restricted volume types"),
        ({"securityContext": {"runAsUser": 0}}, "runAsUser=0"),
        ({"containers": [{"name": "any", "image": "any"}]}, "unrestricted capabilities"),
    ],
    ids=["the host's network", "the host's files", "root", "a container as it comes"],
)
async def test_fettles_namespace_takes_no_pod_that_could_reach_its_host(
    api: Api, changes: Object, says: str
) -> None:
    """Whoever may create pods there could else read the Secrets of other pods on that node."""
    await shipped.apply_rbac(api)
    spec = deployment("server/steward.yaml", "fettle-steward")["spec"]["template"]["spec"]
    metadata = {"name": "rogue", "namespace": shipped.NAMESPACE}
    alone = [{**spec["containers"][0], "volumeMounts": []}]
    spec = {**spec, "containers": alone, **changes}
    rogue = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    with pytest.raises(ApiError, match=f'violates PodSecurity "restricted:.*{says}'):
        await api.create(rogue)
