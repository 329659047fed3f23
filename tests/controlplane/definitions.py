"""Custom resource definitions: our own as shipped, and those of other projects out of their Go
modules, so that the real schema judges what we change in their objects, and what we ship for
cert-manager."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tests.controlplane import shipped
from tests.controlplane.api import Api, Object

MODULES = Path(__file__).parent / "crds"
REQUIRED = "FETTLE_REQUIRE_CONTROLPLANE"
_CERT_MANAGER = {
    "github.com/cert-manager/cert-manager": (
        "deploy/crds/cert-manager.io_certificates.yaml",
        "deploy/crds/cert-manager.io_issuers.yaml",
    )
}
_QUEUED = {
    "sigs.k8s.io/kueue": tuple(
        f"config/components/crd/bases/kueue.x-k8s.io_{plural}.yaml"
        for plural in (
            *("admissionchecks", "clusterqueues", "cohorts", "localqueues", "multikueueclusters"),
            *("multikueueconfigs", "resourceflavors", "topologies", "workloadpriorityclasses"),
        )
    )
}
_FEATURES = {"sigs.k8s.io/node-feature-discovery": ("deployment/base/nfd-crds/nfd-api-crds.yaml",)}
_REPORTS = {
    "openreports.io": {
        "github.com/openreports/reports-api": (
            "config/crd/openreports.io_reports.yaml",
            "config/crd/openreports.io_clusterreports.yaml",
        )
    },
    "wgpolicyk8s.io": {
        "github.com/kyverno/kyverno": (
            "config/crds/policyreport/wgpolicyk8s.io_policyreports.yaml",
            "config/crds/policyreport/wgpolicyk8s.io_clusterpolicyreports.yaml",
        )
    },
}
"""By API group."""
_WORKLOADS = {
    "github.com/kubeflow/trainer/v2": ("manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",),
    "github.com/kubeflow/training-operator": ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",),
    "github.com/ray-project/kuberay/ray-operator": (
        "config/crd/bases/ray.io_rayclusters.yaml",
        "config/crd/bases/ray.io_rayjobs.yaml",
    ),
    "sigs.k8s.io/jobset": ("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",),
    "sigs.k8s.io/lws": ("config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",),
}


async def define_policies(api: Api) -> None:
    """deploy/crds, established."""
    await shipped.apply(api, shipped.manifests(shipped.DEPLOY / "crds"))


async def define_workloads(api: Api) -> None:
    """Theirs, established; skips the test where they cannot be had."""
    await shipped.apply(api, workload_definitions())


@functools.cache
def workload_definitions() -> list[Object]:
    return _of_modules(_WORKLOADS)


@functools.cache
def queued_definitions() -> list[Object]:
    """Of Kueue's queues and flavors, which people write."""
    return _of_modules(_QUEUED)


@functools.cache
def feature_definitions() -> list[Object]:
    """Of Node Feature Discovery's rules and groups."""
    return _of_modules(_FEATURES)


async def define_cert_manager(api: Api) -> None:
    """Certificates and Issuers, established; skips the test where they cannot be had."""
    await shipped.apply(api, _of_modules(_CERT_MANAGER))


async def define_reports(api: Api, group: str) -> None:
    """The kinds of policy reports of an API group, established; skips the test without them."""
    await shipped.apply(api, _of_modules(_REPORTS[group]))


@functools.cache
def kueue_definitions() -> list[Object]:
    """Of Kueue, each in the version that it stores: nobody converts here."""
    folder = _folders("kueue.mod")["sigs.k8s.io/kueue"] / "config" / "components" / "crd" / "bases"
    found = []
    for file in sorted(folder.glob("*.yaml")):
        definition = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
        spec = definition["spec"]
        spec["versions"] = [version for version in spec["versions"] if version["storage"]]
        found.append(definition)
    return found


def _of_modules(wanted: Mapping[str, Sequence[str]]) -> list[Object]:
    """The definitions in these files of modules."""
    folders = _folders()
    return [
        definition
        for path, files in wanted.items()
        for file in files
        for definition in yaml.load_all((folders[path] / file).read_text(), yaml.CSafeLoader)
    ]


def _folders(listed: str = "go.mod") -> Mapping[str, Path]:
    """By the path of each module of a file: where it is on this machine."""
    go = shutil.which("go")
    assert go is not None, "the control plane was built with it"
    command = [go, "mod", "download", f"-modfile={listed}", "-json"]
    done = subprocess.run(command, cwd=MODULES, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        why = f"modules of custom resources cannot be downloaded: {done.stdout[-500:]}"
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    return {module["Path"]: Path(module["Dir"]) for module in _objects(done.stdout)}


def _objects(text: str) -> list[Object]:
    """JSON objects one after another."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        value, end = decoder.raw_decode(text, at)
        found.append(value)
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found
