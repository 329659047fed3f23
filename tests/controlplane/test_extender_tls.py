"""An extender off loopback under its own authority: who may call it, and what the scheduler sees of
certificates that change, replicas that come and go, and an authority that ends."""

from __future__ import annotations

import asyncio
import base64
import copy
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cryptography import x509

from certs import issuing
from fettle.cli.scheduler_config.entries import OVER_TLS
from fettle.config import load_settings
from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.certificates import Authority
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_gpu_nodes, create_node
from tests.controlplane.installed import register_extender
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.processes import free_port
from tests.controlplane.relay import Relay

SECRET = "fettle-extender-ca"


class Remote:
    """What is needed to have an extender off loopback, and a scheduler that calls it."""

    def __init__(self, plane: ControlPlane, start: StartFettle, relay: Relay, folder: Path) -> None:
        self.plane = plane
        self.relay = relay
        self._start = start
        self._folder = folder
        self._clients = Authority("clients")
        (folder / "clients.crt").write_bytes(self._clients.certificate)
        self._client("scheduler", self._clients)
        self._client("stranger", Authority("strangers"))

    async def start(self, certificate_lifetime_s: float = 3600) -> FettleProcess:
        """Fettle on all interfaces; the relay leads to the one started last."""
        tls = {"clientCaFile": str(self._folder / "clients.crt")}
        lifetime = {"certificateLifetimeSeconds": certificate_lifetime_s}
        settings = self._folder / "settings.yaml"
        settings.write_text(yaml.safe_dump({"extender": {"tls": tls, **lifetime}}))
        port = free_port()
        listen = ["--extender-listen", f":{port}"]
        fettle = await self._start("extender", settings=settings, arguments=listen)
        self.relay.to_port = port
        return fettle

    def authority(self) -> bytes:
        """As people get it."""
        command = [sys.executable, "-m", "fettle", "certificates", "extender-ca"]
        command += ["--kubeconfig", str(self.plane.tester_kubeconfig)]
        command += ["--namespace", shipped.NAMESPACE]
        return subprocess.run(command, capture_output=True, check=True, timeout=60).stdout

    async def register(self, fettle: FettleProcess, who: str | None = "scheduler") -> None:
        """The shipped lines for such an extender, with this relay's address and these files."""
        (self._folder / "extender-ca.crt").write_bytes(self.authority())
        lines = shipped_lines()
        lines["urlPrefix"] = f"https://127.0.0.1:{self.relay.port}"
        tls = lines["tlsConfig"]
        tls["caFile"] = str(self._folder / "extender-ca.crt")
        for field, suffix in (("certFile", "crt"), ("keyFile", "key")):
            tls[field] = str(self._folder / f"{who}.{suffix}")
            if who is None:
                del tls[field]
        await register_extender(self.plane, fettle, ignorable=False, **lines)

    async def served(self) -> x509.Certificate:
        """The certificate that a new connection is shown."""
        context = ssl.create_default_context(cadata=self.authority().decode())
        context.load_cert_chain(self._folder / "scheduler.crt", self._folder / "scheduler.key")
        name = shipped_lines()["tlsConfig"]["serverName"]
        _, writer = await asyncio.open_connection(
            "127.0.0.1", self.relay.to_port, ssl=context, server_hostname=name
        )
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return x509.load_der_x509_certificate(shown)

    async def schedule(self, pod: str) -> None:
        """On a new connection of the scheduler's; it must succeed at the first try."""
        self.relay.cut()
        await asyncio.sleep(0.3)  # else it may write a request before it sees the connection's end
        accepted = self.relay.accepted
        await self.plane.tester.create(objects.pod(pod, gpus=1))
        await waiting.bound(self.plane.tester, pod, timeout_s=30)
        assert self.relay.accepted > accepted
        events = await self.plane.tester.events_about(pod)
        assert [e["message"] for e in events if e["reason"] == "FailedScheduling"] == []

    def rename(self, of: str, to: str) -> None:
        for suffix in ("crt", "key"):
            (self._folder / f"{of}.{suffix}").rename(self._folder / f"{to}.{suffix}")

    def _client(self, name: str, authority: Authority) -> None:
        pair = authority.client("system:kube-scheduler")
        (self._folder / f"{name}.crt").write_bytes(pair.certificate)
        (self._folder / f"{name}.key").write_bytes(pair.key)


def shipped_lines() -> dict[str, Any]:
    """What `fettle scheduler-config` writes for an extender off loopback."""
    return copy.deepcopy(OVER_TLS)


async def filter_calls(fettle: FettleProcess) -> float:
    _, text = await fettle.browse("/metrics")
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith('fettle_extender_request_seconds_count{verb="filter"')
    )


@pytest.fixture
async def remote(
    control_plane: ControlPlane, start_fettle: StartFettle, tmp_path: Path
) -> AsyncIterator[Remote]:
    async with Relay(0) as relay:
        yield Remote(control_plane, start_fettle, relay, tmp_path)


async def test_the_scheduler_is_answered_over_tls_and_steered(
    api: Api, kubelet: Kubelet, remote: Remote
) -> None:
    await create_node(api, objects.node("dead", 8, cpu="512"))
    await create_node(api, objects.node("good", 8, cpu="16"))
    await kubelet.set_node_condition(
        "dead", "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await remote.plane.start_scheduler()
    await api.create(objects.pod("before", gpus=1, cpu="4"))
    assert await waiting.bound(api, "before") == "dead"

    fettle = await remote.start()
    await remote.register(fettle)
    await api.create(objects.pod("after", gpus=1, cpu="4"))
    assert await waiting.bound(api, "after") == "good"
    assert await filter_calls(fettle) > 0


async def test_a_scheduler_without_a_certificate_is_turned_away(api: Api, remote: Remote) -> None:
    await create_gpu_nodes(api, "w0")
    fettle = await remote.start()
    await remote.register(fettle, None)
    await api.create(objects.pod("asks", gpus=1))
    await waiting.refused(api, "asks", saying="tls: certificate required")
    assert await filter_calls(fettle) == 0


async def test_a_scheduler_with_a_strangers_certificate_is_turned_away_until_it_gets_its_own(
    api: Api, remote: Remote
) -> None:
    await create_gpu_nodes(api, "w0")
    fettle = await remote.start()
    await remote.register(fettle, "stranger")
    await api.create(objects.pod("asks", gpus=1))
    await waiting.refused(api, "asks", saying="tls: unknown certificate authority")
    assert await filter_calls(fettle) == 0

    # The scheduler reads its own certificate again, without a restart.
    remote.rename("scheduler", "stranger")
    assert await waiting.bound(api, "asks") == "w0"
    assert await filter_calls(fettle) > 0


async def test_certificates_are_replaced_under_a_running_scheduler_without_a_failed_call(
    api: Api, remote: Remote
) -> None:
    await create_gpu_nodes(api, "w0", gpus=100)
    await remote.register(await remote.start(certificate_lifetime_s=10))
    shown = {(await remote.served()).serial_number}
    pods = 0
    async with asyncio.timeout(120):
        while len(shown) < 3 or pods < 5:
            await remote.schedule(f"pod-{pods}")
            pods += 1
            shown.add((await remote.served()).serial_number)


async def test_the_shipped_files_of_an_extender_fit_together(api: Api, tmp_path: Path) -> None:
    """As they are, and patched for cert-manager: each file in the settings is mounted."""
    await shipped.apply_rbac(api)
    for folder in ("server", "extender"):
        await shipped.apply(api, shipped.manifests(shipped.DEPLOY / folder))
    assert await mounted(api, "fettle-extender", tmp_path) == {
        "clientCaFile": "ConfigMap fettle-extender-clients ca.crt"
    }
    for document in shipped.manifests(shipped.DEPLOY / "certificates" / "cert-manager.yaml"):
        if document["kind"] == "ConfigMap":
            await api.apply(document)
    for deployment, file in (
        ("fettle-webhook", "webhook.yaml"),
        ("fettle-extender", "extender.yaml"),
    ):
        (patch,) = shipped.manifests(shipped.DEPLOY / "certificates" / "patches" / file)
        await api.patch("deployments", deployment, patch, shipped.NAMESPACE, form="strategic")
    assert await mounted(api, "fettle-webhook", tmp_path) == {
        "certificateFile": "Secret fettle-webhook-tls tls.crt",
        "keyFile": "Secret fettle-webhook-tls tls.key",
    }
    assert await mounted(api, "fettle-extender", tmp_path) == {
        "certificateFile": "Secret fettle-extender-tls tls.crt",
        "keyFile": "Secret fettle-extender-tls tls.key",
        "clientCaFile": "Secret fettle-clients tls.crt",
    }


async def test_restarted_and_further_replicas_serve_under_the_same_authority(
    api: Api, remote: Remote
) -> None:
    await create_gpu_nodes(api, "w0", gpus=100)
    first = await remote.start()
    await remote.register(first)
    await remote.schedule("one")
    before = await api.get("secrets", SECRET, shipped.NAMESPACE)
    shown = await remote.served()

    first.kill()
    first.start()
    await first.ready()
    await remote.schedule("restarted")
    assert await remote.served() != shown

    second = await remote.start()
    await remote.schedule("other-replica")
    assert await filter_calls(second) > 0
    first.kill()
    await remote.schedule("without-the-first")
    assert await api.get("secrets", SECRET, shipped.NAMESPACE) == before


async def test_at_its_end_an_authority_is_followed_by_the_one_that_was_announced(
    api: Api, remote: Remote
) -> None:
    """Made long ago, so that it has 70 s left, and its leaves live 20 s: Fettle has 50 s to start
    in, for the old one signs no longer."""
    await create_gpu_nodes(api, "w0", gpus=100)
    await remote.plane.create_namespace(shipped.NAMESPACE)
    old = issuing.root("old", now_s=time.time() - 6000, lifetime_s=6070)
    await api.create(secret({"ca.crt": old.certificate, "ca.key": old.key}))
    fettle = await remote.start(certificate_lifetime_s=20)

    _, told = await fettle.browse("/readyz", verbose="")
    assert told.startswith("ok")
    assert "fettle certificates extender-ca" in told
    both = issuing.certificates(remote.authority())
    assert both[0] == issuing.certificates(old.certificate)[0]
    assert len(both) == 2

    signers = [signer(await remote.served(), both)]
    await remote.register(fettle)
    while signers.count(1) < 3:
        await remote.schedule(f"pod-{len(signers)}")
        signers.append(signer(await remote.served(), both))
        assert signers[-1] == 1 or time.time() < issuing.expires_at(old.certificate)
    assert signers[0] == 0
    assert "a new certificate authority signs from" in fettle.process.log.read_text()
    assert signers == sorted(signers)


def signer(leaf: x509.Certificate, roots: list[x509.Certificate]) -> int:
    for number, root in enumerate(roots):
        try:
            leaf.verify_directly_issued_by(root)
        except Exception:
            continue
        return number
    raise AssertionError("signed by somebody else")


def secret(content: dict[str, bytes]) -> dict[str, Any]:
    metadata = {"name": SECRET, "namespace": shipped.NAMESPACE}
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


async def mounted(api: Api, deployment: str, folder: Path) -> dict[str, str]:
    """Field of the TLS settings of a Deployment's role → where its file comes from."""
    spec = (await api.get("deployments", deployment, shipped.NAMESPACE))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    at = {m["mountPath"]: volumes[m["name"]] for m in container["volumeMounts"]}
    (argument,) = [a for a in container["args"] if a.startswith("--settings=")]
    path = Path(argument.removeprefix("--settings="))
    config_map = at[str(path.parent)]["configMap"]["name"]
    data = (await api.get("configmaps", config_map, shipped.NAMESPACE))["data"]
    file = folder / path.name
    file.write_text(data[path.name])
    settings = load_settings(file)
    role = settings.extender if "extender" in container["args"] else settings.webhook
    files = {k: Path(v) for k, v in msgspec.to_builtins(role.tls).items() if isinstance(v, str)}
    return {field: source(at[str(path.parent)], path.name) for field, path in files.items()}


def source(volume: dict[str, Any], name: str) -> str:
    """What a volume shows under that name."""
    if "configMap" in volume:
        assert "secret" not in volume
        return f"ConfigMap {volume['configMap']['name']} {name}"
    items = {i["path"]: i["key"] for i in volume["secret"].get("items", [])}
    return f"Secret {volume['secret']['secretName']} {items[name] if items else name}"
