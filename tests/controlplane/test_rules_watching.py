"""Rules about kinds that are watched on demand: ResourceQuotas, and the ComputeDomains of NVIDIA's
driver, of which a definition with the fields of theirs stands in for its own."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import start_registered
from tests.fettle.lint.tables.case import claim, exactly, opaque

DRIVER = "compute-domain.nvidia.com"
VERSION = "resource.nvidia.com/v1beta1"
SETTINGS = """lint: {watch: [ComputeDomain, ResourceQuota]}
webhook: {trustCallers: true}
"""


@pytest.fixture
def watching(tmp_path: Path) -> Path:
    path = tmp_path / "watching.yaml"
    path.write_text(SETTINGS)
    return path


def definition() -> Object:
    spec = {
        "type": "object",
        "required": ["channel", "numNodes"],
        "properties": {
            "numNodes": {"type": "integer"},
            "channel": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    names = {"kind": "ComputeDomain", "plural": "computedomains", "singular": "computedomain"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "computedomains.resource.nvidia.com"},
        "spec": {
            "group": "resource.nvidia.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


async def create_domain(api: Api, name: str, namespace: str = "default") -> str:
    """Its UID."""
    made = await api.create(
        {
            "apiVersion": VERSION,
            "kind": "ComputeDomain",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}},
        }
    )
    return str(made["metadata"]["uid"])


def channel(uid: str, name: str = "channel") -> Object:
    parameters = {"apiVersion": VERSION, "kind": "ComputeDomainChannelConfig", "domainID": uid}
    request = exactly("channel", device_class=DRIVER)
    return claim(request, name=name, config=[opaque(DRIVER, parameters, "channel")])


async def warned_of(api: Api, object: Object) -> str:
    await api.create(object, dry_run=True)
    return " ".join(api.warnings)


async def create_channels(api: Api) -> None:
    await create_node(api, objects.node("w0"))
    await api.create(objects.device_class(DRIVER, driver=DRIVER))
    await api.create(objects.resource_slice("w0", 4, driver=DRIVER))


async def sources(fettle: FettleProcess) -> str:
    _, told = await fettle.browse("/readyz", verbose="1")
    return str(told)


async def test_a_channel_of_no_compute_domain_is_bound_and_nobody_says_a_word(
    control_plane: ControlPlane, api: Api
) -> None:
    await create_channels(api)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    await api.create(channel("nobody"))
    await api.create(objects.pod("p", claims={"gpu": "channel"}))
    assert await waiting.bound(api, "p", timeout_s=30) == "w0"
    assert {event["reason"] for event in await api.events_about("p")} <= {"Scheduled"}


async def test_compute_domains_and_quotas_are_known_where_they_are_watched(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, watching: Path
) -> None:
    await shipped.apply(api, [definition()])
    await control_plane.create_namespace("other")
    await create_channels(api)
    here, there = await create_domain(api, "here"), await create_domain(api, "there", "other")
    await api.create(quota(2))
    await shipped.apply_rbac(api)
    await shipped.apply(api, shipped.manifests(shipped.DEPLOY / "rbac" / "optional" / "lint.yaml"))
    await start_registered(api, start_fettle, "webhook", settings=watching)
    assert await warned_of(api, channel(here)) == ""
    assert "no ComputeDomain has the UID nobody" in await warned_of(api, channel("nobody"))
    with pytest.raises(ApiError, match="must be its UID"):
        await api.create(channel("here"))
    with pytest.raises(ApiError, match="is the ComputeDomain other/there"):
        await api.create(channel(there))
    three = objects.claim_template("three", objects.claim_spec(3, device_class=DRIVER))
    assert "FTL055" in await warned_of(api, three)
    later = await create_domain(api, "later")
    await waiting.wait_until(
        lambda: warned_of(api, channel(later)), lambda said: said == "", what="it is known"
    )
    await api.patch("resourcequotas", "devices", quota(3))
    await waiting.wait_until(
        lambda: warned_of(api, three), lambda said: said == "", what="the quota is known"
    )


async def test_without_the_definition_and_the_right_the_rest_works_and_it_is_said_once(
    api: Api, start_fettle: StartFettle, watching: Path
) -> None:
    await create_channels(api)
    fettle = await start_registered(api, start_fettle, "webhook", settings=watching)
    assert await warned_of(api, channel("nobody")) == ""
    with pytest.raises(ApiError, match="FTL010"):
        await api.create(objects.claim("c", objects.claim_spec(33, device_class=DRIVER)))
    await asyncio.sleep(3)
    log = (fettle.folder / f"{fettle.name}.log").read_text()
    lines = [line for line in log.splitlines() if "source lost" in line or "not served" in line]
    assert sum("ComputeDomain" in line for line in lines) == 1, lines
    assert sum("ResourceQuota" in line or "resourcequotas" in line for line in lines) == 1, lines
    assert "ResourceQuota: not synced" in await sources(fettle)


async def test_by_default_neither_is_watched(api: Api, start_fettle: StartFettle) -> None:
    fettle = await start_fettle("webhook")
    told = await sources(fettle)
    assert "ResourceClaim:" in told
    assert "ResourceQuota" not in told
    assert "ComputeDomain" not in told


async def test_manifests_are_checked_against_the_compute_domains_of_a_cluster(
    control_plane: ControlPlane, api: Api, watching: Path, tmp_path: Path
) -> None:
    await create_channels(api)
    manifests = tmp_path / "manifests.json"
    manifests.write_text(json.dumps(channel("nobody")))
    kubeconfig = control_plane.kubeconfig_for_user("tester", "system:masters")

    async def lint() -> tuple[list[Object], str]:
        ran = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fettle", "lint", manifests, "--output", "json"),
            *("--kubeconfig", kubeconfig, "--settings", watching),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(ran.communicate(), 60)
        assert ran.returncode == 0, err.decode()
        return json.loads(out), err.decode()

    found, said = await lint()
    assert found == []
    assert "does not serve ComputeDomain" in said
    await shipped.apply(api, [definition()])
    found, said = await lint()
    assert [finding["rule"] for finding in found] == ["FTL024"], said
    assert said == ""


def quota(most: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "devices", "namespace": "default"},
        "spec": {"hard": {f"{DRIVER}.deviceclass.resource.k8s.io/devices": str(most)}},
    }
