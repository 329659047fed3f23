"""The files of deploy/ as users apply them. Only addresses change: what names a Service inside a
cluster, or an address of one, is led to the ports of a Fettle on loopback."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.controlplane.api import Api, Object
from tests.controlplane.waiting import condition, wait_until

DEPLOY = Path(os.environ.get("FETTLE_TESTED_DEPLOY", Path(__file__).parents[2] / "deploy"))
"""`needed_rights` tries a copy in which a right is missing."""
NAMESPACE = "fettle-system"
WEBHOOK_ACCOUNT = "fettle-webhook"
STEWARD_ACCOUNT = "fettle-steward"
EXTENDER_ACCOUNT = "fettle-extender"

_FIRST = ("Namespace", "CustomResourceDefinition", "ServiceAccount")
_HTTPS_ONLY = ("enableHTTPS", "tlsConfig")


def manifests(path: Path) -> list[Object]:
    """All documents of a YAML file, or of every YAML file of a folder."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"no YAML files in {path}")
    return [doc for file in files for doc in yaml.safe_load_all(file.read_text()) if doc]


def files() -> list[Path]:
    """All YAML of deploy/ that is applied as it is: not the chart, which is templates."""
    return sorted({*DEPLOY.rglob("*.yaml")} - {*(DEPLOY / "chart").rglob("*.yaml")})


async def apply(api: Api, documents: Sequence[Object]) -> list[Object]:
    """Server-side apply, namespaces and definitions first, and these established."""
    first = [d for kind in _FIRST for d in documents if d["kind"] == kind]
    done = [await api.apply(document) for document in first]
    for document in first:
        if document["kind"] == "CustomResourceDefinition":
            await _established(api, document["metadata"]["name"])
    return done + [await api.apply(d) for d in documents if d["kind"] not in _FIRST]


async def account_for(api: Api, roles: Sequence[str]) -> str:
    """The service account that a process with these roles runs as, with the rights in deploy/rbac;
    the webhook beside others has those in deploy/one-process, too."""
    await apply_rbac(api)
    if len(roles) == 1:
        return f"fettle-{roles[0]}"
    if not roles or "webhook" in roles:
        await apply(api, manifests(DEPLOY / "one-process" / "rights.yaml"))
    return STEWARD_ACCOUNT


async def apply_rbac(api: Api, deploy: Path = DEPLOY) -> None:
    """deploy/rbac: what Fettle's service accounts may do, and these if they are not there."""
    documents = manifests(deploy / "rbac")
    needed: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    ]
    for account in (WEBHOOK_ACCOUNT, STEWARD_ACCOUNT, EXTENDER_ACCOUNT):
        metadata = {"name": account, "namespace": NAMESPACE}
        needed.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    given = {(d["kind"], d["metadata"]["name"]) for d in documents}
    missing = [d for d in needed if (d["kind"], d["metadata"]["name"]) not in given]
    await apply(api, [*missing, *documents])


def settings() -> str:
    """The settings that webhook and steward have as shipped."""
    (config_map,) = manifests(DEPLOY / "server" / "settings.yaml")
    return str(config_map["data"]["settings.yaml"])


def scheduler_configuration(
    extender_url: str, deploy: Path = DEPLOY, *, enforces: bool = True
) -> Object:
    """The shipped KubeSchedulerConfiguration for a Fettle that enforces, or the other one, with
    its extenders led to this URL; the path of the shipped `urlPrefix` stays."""
    suffix = "-enforce" if enforces else ""
    (configuration,) = manifests(deploy / "scheduler" / f"kube-scheduler-config{suffix}.yaml")
    if not configuration.get("extenders"):
        raise ValueError("the shipped KubeSchedulerConfiguration has no extenders")
    for entry in configuration["extenders"]:
        entry["urlPrefix"] = extender_url.rstrip("/") + urlsplit(entry["urlPrefix"]).path.rstrip(
            "/"
        )
        if urlsplit(extender_url).scheme == "http":
            for key in _HTTPS_ONLY:
                entry.pop(key, None)
    return configuration


def webhook_configurations(
    port: int, *, ca: bytes | None = None, deploy: Path = DEPLOY
) -> list[Object]:
    """deploy/webhook with each `service` turned into the `url` of this port on loopback; with a
    `ca` (PEM) also its caBundle, otherwise whatever was shipped stays."""
    documents = manifests(deploy / "webhook")
    for document in documents:
        for webhook in document.get("webhooks", []):
            client = dict(webhook["clientConfig"])  # YAML anchors make webhooks share one
            webhook["clientConfig"] = client
            service = client.pop("service", None)
            path = service.get("path", "") if service else urlsplit(client["url"]).path
            client["url"] = f"https://127.0.0.1:{port}{path}"
            if ca is not None:
                client["caBundle"] = base64.b64encode(ca).decode()
    return documents


async def _established(api: Api, name: str) -> None:
    await wait_until(
        lambda: api.get("customresourcedefinitions", name),
        lambda crd: condition(crd, "Established").get("status") == "True",
        what=f"CustomResourceDefinition {name} is established",
    )
