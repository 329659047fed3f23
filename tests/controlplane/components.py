"""How each component is told to run, as pure functions from ports and paths to its command line.
Nothing here starts anything."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.controlplane import building

SERVICE_RANGE = "10.96.0.0/16"
ISSUER = "https://kubernetes.default.svc"


RULES_API = f"resource.k8s.io/{ {35: 'v1alpha3', 36: 'v1beta2'}.get(building.minor(), 'v1') }"
"""Of DeviceTaintRules, which are off by default before 1.37."""
RULES = f"{RULES_API}/devicetaintrules"
_GATES = "--feature-gates=DRADeviceTaints=true,DRADeviceTaintRules=true"


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True)
class Pki:
    """Files, all in one folder."""

    ca: Path
    server_certificate: Path
    server_key: Path
    service_account_key: Path


def etcd(ports: Ports, data: Path) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        "etcd",
        "--name=tests",
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=tests={peer}",
        "--unsafe-no-fsync",
        "--heartbeat-interval=20",
        "--election-timeout=200",
        "--log-level=warn",
    ]


def api_server(ports: Ports, pki: Pki) -> list[str]:
    return [
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.api_server}",
        # Loopback is refused here; nothing connects to this address (TEST-NET-1).
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        f"--client-ca-file={pki.ca}",
        f"--tls-cert-file={pki.server_certificate}",
        f"--tls-private-key-file={pki.server_key}",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki.service_account_key}",
        f"--service-account-signing-key-file={pki.service_account_key}",
        _GATES,
        f"--runtime-config={RULES}=true",
        "--v=1",
    ]


def _served_on_loopback(port: int, pki: Pki) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pki.server_certificate}",
        f"--tls-private-key-file={pki.server_key}",
        f"--client-ca-file={pki.ca}",
        "--authentication-skip-lookup",
    ]


def controller_manager(ports: Ports, pki: Pki, kubeconfig: Path) -> list[str]:
    return [
        "kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        *_served_on_loopback(ports.controller_manager, pki),
        "--leader-elect=false",
        # As kubeadm does it; admission then sees each controller's own user name.
        "--use-service-account-credentials",
        f"--service-account-private-key-file={pki.service_account_key}",
        f"--root-ca-file={pki.ca}",
        # Nodes are objects without heartbeats: this controller would mark them Unknown after
        # 40 s, and those node updates wake waiting pods.
        "--controllers=*,-node-lifecycle-controller",
        # The default rate makes about 20 claims from templates a second.
        "--kube-api-qps=2000",
        "--kube-api-burst=2000",
        _GATES,
        "--v=1",
    ]


def scheduler(ports: Ports, pki: Pki, configuration: Path) -> list[str]:
    return [
        "kube-scheduler",
        f"--config={configuration}",
        *_served_on_loopback(ports.scheduler, pki),
        _GATES,
        "--v=2",
    ]


def scheduler_configuration(given: dict[str, Any] | None, kubeconfig: Path) -> dict[str, Any]:
    """What was given, with only the connection and the election made to fit the tests."""
    made = copy.deepcopy(given or {})
    made.setdefault("apiVersion", "kubescheduler.config.k8s.io/v1")
    made.setdefault("kind", "KubeSchedulerConfiguration")
    made["clientConnection"] = {**made.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
    made["leaderElection"] = {"leaderElect": False}
    return made
