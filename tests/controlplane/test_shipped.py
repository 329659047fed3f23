"""The shipped files reach the control plane as users apply them, led to loopback."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from tests.controlplane import shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.certificates import Authority
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.processes import free_port

AUTHORITY = Authority("webhook-tests")
CONFIG_MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
VALIDATING: Object = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": "fettle"},
    "webhooks": [
        {
            "name": "deny.fettle.dev",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "rules": [{**RULE, "operations": ["CREATE"]}],
            "clientConfig": {
                "service": {"name": "fettle", "namespace": "fettle-system", "path": "/validate"}
            },
        }
    ],
}
READS_NODES: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "fettle"},
    "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
}
BINDING: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "fettle"},
    "subjects": [
        {"kind": "ServiceAccount", "name": "fettle-steward", "namespace": "fettle-system"}
    ],
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fettle"},
}


def write(file: Path, *documents: Object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump_all(documents))


@pytest.fixture
async def denying_webhook(tmp_path: Path) -> AsyncIterator[int]:
    """The port of a webhook that denies, and warns of it."""

    async def deny(request: web.Request) -> web.Response:
        uid = (await request.json())["request"]["uid"]
        said = {"code": 422, "message": "not in good condition"}
        answer = {"uid": uid, "allowed": False, "status": said, "warnings": ["look at it"]}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        return web.json_response({**review, "response": answer})

    pair = AUTHORITY.server("webhook")
    (tmp_path / "webhook.pem").write_bytes(pair.certificate + pair.key)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "webhook.pem")
    app = web.Application()
    app.router.add_post("/validate", deny)
    runner = web.AppRunner(app)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
    yield port
    await runner.cleanup()


async def test_a_webhook_configuration_for_a_service_calls_a_webhook_on_loopback(
    api: Api, denying_webhook: int, tmp_path: Path
) -> None:
    write(tmp_path / "webhook" / "validating.yaml", VALIDATING)
    made = shipped.webhook_configurations(
        denying_webhook, ca=AUTHORITY.certificate, deploy=tmp_path
    )
    await shipped.apply(api, made)

    async def denied() -> str:
        try:
            await api.create(CONFIG_MAP, dry_run=True)
        except ApiError as error:
            return error.message
        return ""

    message = await waiting.wait_until(denied, what="the webhook denies")
    assert message.endswith("denied the request: not in good condition")
    assert api.warnings == ["look at it"]


async def test_the_service_account_gets_what_the_shipped_rbac_gives(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    write(tmp_path / "rbac" / "fettle.yaml", READS_NODES, BINDING)
    await shipped.apply_rbac(api, tmp_path)
    account = await control_plane.api_as_service_account(shipped.STEWARD_ACCOUNT, shipped.NAMESPACE)
    async with account:
        nodes = await waiting.wait_until(
            lambda: account.list("nodes"), lambda found: found == [], what="it lists nodes"
        )
        assert nodes == []
        with pytest.raises(ApiError, match="pods is forbidden"):
            await account.list("pods")


def test_the_scheduler_configuration_differs_only_in_the_address(tmp_path: Path) -> None:
    file = tmp_path / "scheduler" / "kube-scheduler-config-enforce.yaml"
    entry = {"filterVerb": "filter", "weight": 7, "ignorable": True}
    away = {"urlPrefix": "https://fettle.fettle-system.svc/v1/", "enableHTTPS": True}
    secured = {"tlsConfig": {"caFile": "/etc/fettle/ca.crt"}}
    write(file, {"kind": "KubeSchedulerConfiguration", "extenders": [entry | away | secured]})
    made = shipped.scheduler_configuration("http://127.0.0.1:1234", tmp_path)
    assert made["extenders"] == [entry | {"urlPrefix": "http://127.0.0.1:1234/v1"}]
    kept = shipped.scheduler_configuration("https://127.0.0.1:1234", tmp_path)
    assert kept["extenders"][0]["tlsConfig"] == secured["tlsConfig"]


def test_a_shipped_ca_bundle_stays_unless_another_is_given(tmp_path: Path) -> None:
    given = json.loads(json.dumps(VALIDATING))
    given["webhooks"][0]["clientConfig"]["caBundle"] = "c2hpcHBlZA=="
    write(tmp_path / "webhook" / "validating.yaml", given)
    (kept,) = shipped.webhook_configurations(1234, deploy=tmp_path)
    expected = {"url": "https://127.0.0.1:1234/validate", "caBundle": "c2hpcHBlZA=="}
    assert kept["webhooks"][0]["clientConfig"] == expected
    (changed,) = shipped.webhook_configurations(1234, ca=b"other", deploy=tmp_path)
    assert base64.b64decode(changed["webhooks"][0]["clientConfig"]["caBundle"]) == b"other"
