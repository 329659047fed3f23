"""The files of deploy/ that are renderings of the chart: `python -m tests.deploy.rendering` writes
them. Each has the name and folder of its template; what has no template is written by hand."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import building
from tests.deploy import charting

DEPLOY = charting.CHART.parent
ALERTS = "metrics/fettle-alerts.yaml"
"""A copy: the chart reads its own."""
OPTIONAL = "rbac/optional/"
CERTIFICATES = "certificates/"
HOOKS = ("tests/", "hooks/")
"""For Helm alone."""
PLAIN: Mapping[str, Any] = {
    "extender": {"type": "Deployment"},
    "namespace": {"create": True},
    "networkPolicies": {"enabled": True},
}
ALL_RIGHTS: Mapping[str, Any] = {
    "settings": {
        "deviceTaints": {},
        "nodeMarks": {},
        "kueue": {"admissionCheck": True},
        "deviceFailures": {"allow": "Evict", "forceDeleteSeconds": 900},
        "lint": {"watch": ["ResourceQuota", "ComputeDomain"]},
    },
    "rights": {
        "holdTaints": True,
        "wakePreemptors": True,
        "wakeByNode": True,
        "suspendJobs": True,
        "objects": [
            {"apiGroups": ["janitor.dgxc.nvidia.com"], "resources": ["gpuresets"]},
            {"apiGroups": ["cluster.x-k8s.io"], "resources": ["machines"]},
            {"apiGroups": ["kmm.sigs.x-k8s.io"], "resources": ["nodemodulesconfigs"]},
            {"apiGroups": ["resource.nvidia.com"], "resources": ["computedomains"]},
        ],
    },
}
SECOND: Mapping[str, Any] = {
    "secondScheduler": {"enabled": True, "image": {"tag": building.NEWEST}}
}
REPORTS: Mapping[str, Any] = {"lintReports": {"schedule": "17 * * * *"}}
LINT_REPORTS = "reports/"
SECOND_SCHEDULER = "second-scheduler/"
ENTRY = DEPLOY.parent / "fettle" / "cli" / "scheduler_config" / "entry.yaml"
COPY = "chart/files/extender.yaml"
"""Of the entry, for the chart's second scheduler."""
SIGNED: Mapping[str, Any] = {"certificates": "cert-manager"}
_SOURCE = re.compile(r"^---\n# Source: fettle/templates/(.+)\n", re.MULTILINE)
CLIENT_CA = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"

NOTHING = {
    "extender": {"type": "None"},
    "webhook": {"enabled": False},
    "steward": {"enabled": False},
    "crds": {"enabled": False},
}

MATRIX: dict[str, Any] = {
    "as it is": {},
    "nothing": NOTHING,
    "as deploy": PLAIN,
    "all rights": {**PLAIN, **ALL_RIGHTS},
    "webhook alone": {**NOTHING, "webhook": {"enabled": True, "replicas": 1}},
    "steward alone": {**NOTHING, "steward": {"enabled": True, "replicas": 1}},
    "extender alone": {**NOTHING, "extender": {"type": "DaemonSet"}},
    "extender by TLS": {**NOTHING, "extender": {"type": "Deployment", "clientCa": CLIENT_CA}},
    "cert-manager": {**PLAIN, **SIGNED},
    "cert-manager for the webhook": SIGNED,
    "pod monitors": {"monitoring": {"monitor": "PodMonitor", "rules": True, "dashboard": True}},
    "service monitors": {"monitoring": {"monitor": "ServiceMonitor", "labels": {"release": "p"}}},
    "placed": {
        role: {
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
        }
        for role in ("extender", "webhook", "steward")
    },
    "own image and files": {
        "image": {"repository": "r.example.com/fettle", "digest": "sha256:" + 64 * "0"},
        "imagePullSecrets": [{"name": "registry"}],
        "files": {"rules.yaml": "conditions: []\n"},
        "volumes": [{"name": "token", "secret": {"secretName": "token"}}],
        "volumeMounts": [{"name": "token", "mountPath": "/etc/fettle/token", "readOnly": True}],
    },
    "reports": REPORTS,
    "reports alone": {**NOTHING, **REPORTS},
    "second scheduler": {**NOTHING, "secondScheduler": {"enabled": True, "replicas": 1}},
    "second scheduler beside all": {**PLAIN, "secondScheduler": {"enabled": True}},
    "closed network": {
        "networkPolicies": {
            "enabled": True,
            "webhookFrom": [{"ipBlock": {"cidr": "192.0.2.0/28"}}],
            "extenderFrom": [{"ipBlock": {"cidr": "192.0.2.0/28"}}],
        }
    },
}


def renderings() -> dict[str, str]:
    """What each of these files must be, by its path in deploy/."""
    plain = by_template(charting.rendered(PLAIN))
    optional = by_template(charting.rendered({**PLAIN, **ALL_RIGHTS}))
    signed = by_template(charting.rendered({**PLAIN, **SIGNED}))
    second = by_template(charting.rendered({**PLAIN, **SECOND}))
    plain = {path: found for path, found in plain.items() if not path.startswith(HOOKS)}
    found = plain | _under(OPTIONAL, optional) | _under(CERTIFICATES, signed)
    found |= _under(SECOND_SCHEDULER, second)
    found |= _under(LINT_REPORTS, by_template(charting.rendered({**PLAIN, **REPORTS})))
    files = {path: _in_order(DEPLOY / path, documents) for path, documents in found.items()}
    alerts = (charting.CHART / "files" / "alerts.yaml").read_text()
    return {**files, ALERTS: alerts, COPY: ENTRY.read_text()}


def _under(folder: str, found: dict[str, list[str]]) -> dict[str, list[str]]:
    return {path: documents for path, documents in found.items() if path.startswith(folder)}


def by_template(text: str) -> dict[str, list[str]]:
    """Documents as text, by the path of their template."""
    _, *parts = _SOURCE.split(text)
    found: dict[str, list[str]] = {}
    for path, document in zip(parts[::2], parts[1::2], strict=True):
        found.setdefault(path, []).append(document.strip("\n") + "\n")
    return found


def _in_order(file: Path, documents: list[str]) -> str:
    """Helm sorts documents by kind. Here they stand as they stood in the file, new ones last."""
    before = file.read_text().split("---\n") if file.exists() else []
    order = [_key(document) for document in before]
    documents = sorted(
        documents, key=lambda one: order.index(_key(one)) if _key(one) in order else len(order)
    )
    return "---\n".join(documents)


def _key(document: str) -> tuple[str, str]:
    read = yaml.safe_load(document)
    return read["kind"], read["metadata"]["name"]


def main() -> None:
    try:
        made = renderings()
    except (building.BuildFailed, charting.HelmFailed) as error:
        sys.exit(str(error))
    for path, text in made.items():
        (DEPLOY / path).write_text(text)


if __name__ == "__main__":
    main()
