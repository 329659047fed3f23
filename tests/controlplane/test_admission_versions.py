"""Webhook configurations fitted to what a cluster serves, and claims of older versions."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import yaml

from tests.controlplane import objects, shipped
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies, define_workloads
from tests.controlplane.installed import CONFIGURATIONS, until_trusted
from tests.controlplane.waiting import wait_until

POLICY: Object = {
    "apiVersion": "fettle.dev/v1alpha1",
    "kind": "DevicePolicy",
    "metadata": {"name": "patient"},
    "spec": {
        "tolerations": {"devices": [{"key": "example.com/slow"}], "degradedAsFallback": True},
    },
}
NAMED = {"fettle.dev/policy": "patient"}
ADDED = [
    {"key": "example.com/slow", "operator": "Exists", "effect": effect}
    for effect in ("NoSchedule", "NoExecute")
]


async def fitted(
    control_plane: ControlPlane, folder: Path = shipped.DEPLOY / "webhook", *more: str | Path
) -> list[Object]:
    """What `fettle webhooks` makes of the configurations in a folder."""
    kubeconfig = control_plane.kubeconfig_for_user("tester", "system:masters")
    command = (sys.executable, "-m", "fettle", "webhooks", folder, "--kubeconfig", kubeconfig)
    ran = await asyncio.create_subprocess_exec(
        *command, *more, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(ran.communicate(), 60)
    assert ran.returncode == 0, err.decode()
    return list(yaml.safe_load_all(out))


async def register_fitted(control_plane: ControlPlane, api: Api, port: int, folder: Path) -> None:
    """Fit the shipped configurations, with their addresses led to this port, and apply them."""
    (folder / "webhooks.yaml").write_text(yaml.dump_all(shipped.webhook_configurations(port)))
    await shipped.apply(api, await fitted(control_plane, folder))
    await until_trusted(api)


def rules(configurations: list[Object]) -> set[tuple[str, str, str]]:
    """(group, version, resource) of all."""
    return {
        (group, version, resource)
        for configuration in configurations
        for entry in configuration["webhooks"]
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for resource in rule["resources"]
    }


async def test_where_all_is_served_the_rules_are_the_shipped_ones_of_what_is_installed(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    as_shipped = rules(shipped.manifests(shipped.DEPLOY / "webhook"))
    native = {rule for rule in as_shipped if rule[0] in ("", "apps", "batch", "resource.k8s.io")}
    assert rules(await fitted(control_plane)) == native
    await define_workloads(api)
    found = rules(await fitted(control_plane))
    assert found - native == {
        ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
        ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
        ("kubeflow.org", "v1", "pytorchjobs"),
        ("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
        ("ray.io", "v1", "rayclusters"),
        ("ray.io", "v1", "rayjobs"),
    }
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "webhook: {workloads: [{group: fettle.dev, kind: DevicePolicy, templates: [spec.x]}]}\n"
    )
    await define_policies(api)
    own = await fitted(control_plane, shipped.DEPLOY / "webhook", "--settings", settings)
    assert rules(own) - found == {("fettle.dev", "v1alpha1", "devicepolicies")}


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
async def test_claims_of_older_versions_are_judged_and_changed_where_v1_is_not_served(
    control_plane: ControlPlane,
    api: Api,
    start_fettle: StartFettle,
    tmp_path: Path,
    version: str,
) -> None:
    other = "v1beta1" if version == "v1beta2" else "v1beta2"
    served = f"resource.k8s.io/v1=false,resource.k8s.io/{version}=true"
    both = f"{served},resource.k8s.io/{other}={str(version == 'v1beta2').lower()}"
    await control_plane.restart_api_server(f"--runtime-config={both}", kill=True)
    await define_policies(api)
    await api.create(POLICY)
    fettle = await start_fettle("webhook")
    await register_fitted(control_plane, api, fettle.webhook_port, tmp_path)
    named = rules([await api.get(resource, "fettle") for resource in CONFIGURATIONS])
    assert {rule for rule in named if rule[0] == "resource.k8s.io"} == {
        ("resource.k8s.io", version, resource)
        for resource in ("resourceclaims", "resourceclaimtemplates", "deviceclasses")
    }
    option = {"deviceClassName": "gpu.example.com", "count": 1}
    made = await wait_until(
        lambda: create_claim(api, version, option), injected, what="the webhook is asked"
    )
    (request,) = made["spec"]["devices"]["requests"]
    if version == "v1beta2":
        assert [o["name"] for o in request["firstAvailable"]] == ["sound", "degraded"]
        assert request["firstAvailable"][0]["tolerations"] == ADDED
    else:
        assert request["tolerations"] == ADDED
        assert "gets no degraded device as a fallback" in " ".join(api.warnings)
    assert "FTL034" not in " ".join(api.warnings)
    with pytest.raises(ApiError, match="FTL010"):
        await create_claim(api, version, {**option, "count": 33})


async def create_claim(api: Api, version: str, option: Object) -> Object:
    request = {"name": "gpu", **(option if version == "v1beta1" else {"exactly": option})}
    claim = objects.claim("c", {"devices": {"requests": [request]}}, annotations=NAMED)
    return await api.create({**claim, "apiVersion": f"resource.k8s.io/{version}"}, dry_run=True)


def injected(claim: Object) -> bool:
    return "fettle.dev/injected" in claim["metadata"]["annotations"]
