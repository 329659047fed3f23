"""A webhook with a client CA: it answers the API server, which presents a certificate as the files
of deploy/api-server say, and nobody else."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import yaml

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.certificates import Authority
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.installed import until_trusted
from tests.controlplane.processes import free_port

FILES = shipped.DEPLOY / "api-server"


async def test_a_webhook_with_a_client_ca_answers_the_api_server_and_nobody_else(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    port, clients = free_port(), Authority("fettle-callers")
    (tmp_path / "clients.crt").write_bytes(clients.certificate)
    settings = tmp_path / "settings.yaml"
    tls = {"clientCaFile": str(tmp_path / "clients.crt")}
    settings.write_text(yaml.safe_dump({"mode": "enforce", "webhook": {"tls": tls}}))
    await shipped.apply(api, shipped.webhook_configurations(port))
    listen = ["--webhook-listen", f"127.0.0.1:{port}"]
    await start_fettle("webhook", settings=settings, arguments=listen)
    await until_trusted(api)

    wrong = objects.claim("wrong", objects.claim_spec(33))
    assert "FTL010" not in await _said_of(api, wrong)  # it presents nothing, and goes on without us
    with pytest.raises(ssl.SSLError):
        await _shake_hands(port)

    flag = f"--admission-control-config-file={_configured(tmp_path, port, clients)}"
    await control_plane.restart_api_server(flag, kill=True)
    await waiting.wait_until(
        lambda: _said_of(control_plane.tester, wrong),
        lambda said: "FTL010" in said,
        what="the API server asks Fettle",
    )


def _configured(folder: Path, port: int, clients: Authority) -> Path:
    """The shipped files, filled in; the one that the API server's flag names."""
    pair = clients.client("kube-apiserver")
    (folder / "api-server.crt").write_bytes(pair.certificate)
    (folder / "api-server.key").write_bytes(pair.key)
    kubeconfig = yaml.safe_load((FILES / "webhooks-kubeconfig.yaml").read_text())
    kubeconfig["users"][0] = {
        "name": f"127.0.0.1:{port}",
        "user": {
            "client-certificate": str(folder / "api-server.crt"),
            "client-key": str(folder / "api-server.key"),
        },
    }
    (folder / "webhooks-kubeconfig.yaml").write_text(yaml.safe_dump(kubeconfig))
    configuration = yaml.safe_load((FILES / "admission-configuration.yaml").read_text())
    for plugin in configuration["plugins"]:
        plugin["configuration"]["kubeConfigFile"] = str(folder / "webhooks-kubeconfig.yaml")
    (file := folder / "admission.yaml").write_text(yaml.safe_dump(configuration))
    return file


async def _said_of(api: Api, object: Object) -> str:
    try:
        await api.create(object, dry_run=True)
    except ApiError as error:
        return str(error)
    return ""


async def _shake_hands(port: int) -> None:
    """As a pod in the network would, without a certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        # With TLS 1.3 the client learns only now that the server wants a certificate.
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.transport.abort()
