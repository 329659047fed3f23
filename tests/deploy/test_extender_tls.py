"""The shipped files for an extender off loopback agree, and the documented commands work."""

import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certs import issuing
from certs.issuing import Usage
from fettle.config import Settings, load_settings
from tests.fettle.cli.linted import called

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCUMENT = ROOT / "docs" / "extender-tls.md"
NAMESPACE = "fettle-system"
SHIPPED = Settings()
_SCHEDULER = ("scheduler-config", "--url", "https://10.96.0.88:8088")


def documents(*parts: str) -> list[Any]:
    return [d for d in yaml.safe_load_all(DEPLOY.joinpath(*parts).read_text()) if d]


def of_kind(found: list[Any], kind: str) -> dict[str, Any]:
    """By name."""
    return {d["metadata"]["name"]: d for d in found if d["kind"] == kind}


CERT_MANAGER = documents("certificates", "cert-manager.yaml")
CERTIFICATES = of_kind(CERT_MANAGER, "Certificate")
ISSUERS = of_kind(CERT_MANAGER, "Issuer")


@pytest.mark.parametrize(
    ("account", "secret"),
    [("fettle-webhook", SHIPPED.webhook.secret), ("fettle-extender", SHIPPED.extender.secret)],
)
def test_each_service_account_may_keep_its_own_authority_only(account: str, secret: str) -> None:
    found = documents("rbac", "namespace.yaml")
    (binding,) = [
        d
        for d in of_kind(found, "RoleBinding").values()
        if [s["name"] for s in d["subjects"]] == [account]
    ]
    role = of_kind(found, "Role")[binding["roleRef"]["name"]]
    rules = [r for r in role["rules"] if r["resources"] == ["secrets"] and "resourceNames" in r]
    assert [set(rule["resourceNames"]) for rule in rules] == [{secret}]
    assert set(rules[0]["verbs"]) == {"get", "update"}


def test_a_drain_leaves_one_replica_of_each_deployment() -> None:
    for file in (
        ("server", "webhook.yaml"),
        ("server", "steward.yaml"),
        ("extender", "extender.yaml"),
    ):
        found = documents(*file)
        (deployment,) = of_kind(found, "Deployment").values()
        (budget,) = of_kind(found, "PodDisruptionBudget").values()
        (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
        selected = deployment["spec"]["selector"]
        kept = {"minAvailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
        assert budget["spec"] == {**kept, "selector": selected}
        assert spread["labelSelector"] == selected
        assert deployment["spec"]["replicas"] > budget["spec"]["minAvailable"]


def test_the_scheduler_calls_the_service_by_a_name_that_is_in_its_certificate() -> None:
    (lines,) = yaml.safe_load(called(*_SCHEDULER).stdout)["extenders"]
    (service,) = of_kind(documents("extender", "extender.yaml"), "Service").values()
    assert service["metadata"]["name"] == SHIPPED.extender.service
    assert lines["urlPrefix"].endswith(f":{service['spec']['ports'][0]['port']}")
    names = issuing.service_names(SHIPPED.extender.service, service["metadata"]["namespace"])
    assert lines["tlsConfig"]["serverName"] in names
    assert lines["enableHTTPS"] is True
    assert "insecure" not in lines["tlsConfig"]
    (documented,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert yaml.safe_load(documented).items() <= lines.items()


def test_the_service_leads_to_the_port_of_pods_that_only_it_selects() -> None:
    found = documents("extender", "extender.yaml")
    service = of_kind(found, "Service")[SHIPPED.extender.service]["spec"]
    template = of_kind(found, "Deployment")["fettle-extender"]["spec"]["template"]
    assert service["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert f"--extender-listen=:{ports[service['ports'][0]['targetPort']]}" in container["args"]
    webhook = of_kind(documents("server", "service.yaml"), "Service")[SHIPPED.webhook.service]
    assert not webhook["spec"]["selector"].items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("certificate", "service"),
    [("fettle-webhook", SHIPPED.webhook.service), ("fettle-extender", SHIPPED.extender.service)],
)
def test_cert_manager_signs_for_the_names_that_fettle_would(certificate: str, service: str) -> None:
    spec = CERTIFICATES[certificate]["spec"]
    assert spec["dnsNames"] == issuing.service_names(service, NAMESPACE)
    assert "server auth" in spec["usages"]


def test_every_issuer_and_secret_that_is_named_exists() -> None:
    secrets = {c["spec"]["secretName"] for c in CERTIFICATES.values()}
    assert len(secrets) == len(CERTIFICATES)
    for certificate in CERTIFICATES.values():
        assert certificate["spec"]["issuerRef"]["name"] in ISSUERS
    for issuer in ISSUERS.values():
        authority = issuer["spec"].get("ca")
        if authority is not None:
            named = [c for c in CERTIFICATES.values() if c["spec"].get("isCA")]
            assert authority["secretName"] in {c["spec"]["secretName"] for c in named}
    for file in ("webhook.yaml", "extender.yaml"):
        (patch,) = documents("certificates", "patches", file)
        for volume in patch["spec"]["template"]["spec"]["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["secretName"] in secrets
    injected = re.search(r"inject-ca-from=(\S+)/(\S+)", DOCUMENT.read_text())
    assert injected is not None
    assert injected[1] == NAMESPACE
    assert injected[2] in CERTIFICATES


def test_only_certificates_of_the_client_authority_are_for_clients() -> None:
    for name, certificate in CERTIFICATES.items():
        spec = certificate["spec"]
        from_clients = spec["issuerRef"]["name"] == "fettle-clients"
        assert from_clients is ("client auth" in spec.get("usages", [])), name


def test_the_certificate_that_cert_manager_makes_for_the_scheduler_is_answered_by_name() -> None:
    spec = CERTIFICATES["fettle-scheduler"]["spec"]
    assert spec["commonName"] in SHIPPED.extender.tls.client_names


@pytest.mark.parametrize(
    ("file", "base", "role"),
    [
        ("webhook.yaml", ("server", "webhook.yaml"), "webhook"),
        ("extender.yaml", ("extender", "extender.yaml"), "extender"),
    ],
)
def test_files_in_the_settings_are_mounted_by_the_patch(
    tmp_path: Path, file: str, base: tuple[str, str], role: str
) -> None:
    (patch,) = documents("certificates", "patches", file)
    spec = patch["spec"]["template"]["spec"]
    (shipped,) = of_kind(documents(*base), "Deployment").values()
    (before,) = shipped["spec"]["template"]["spec"]["containers"]
    (container,) = spec["containers"]
    arguments = [a for a in before["args"] if not a.startswith("--settings")]
    arguments.append("--settings=/etc/fettle/settings/settings.yaml")
    assert container.get("args", before["args"]) == arguments
    assert container["name"] == before["name"]

    (config_map,) = [v["configMap"]["name"] for v in spec["volumes"] if v["name"] == "settings"]
    settings = tmp_path / "settings.yaml"
    settings.write_text(of_kind(CERT_MANAGER, "ConfigMap")[config_map]["data"]["settings.yaml"])
    read = getattr(load_settings(settings), role)
    assert read.certificates == "files"
    mounts = [*before.get("volumeMounts", []), *container["volumeMounts"]]
    folders = {mount["mountPath"] for mount in mounts}
    for path in (read.tls.certificate_file, read.tls.key_file, read.tls.client_ca_file):
        assert path is None or str(Path(path).parent) in folders


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the commands need openssl")
def test_the_documented_commands_make_a_certificate_for_the_scheduler(tmp_path: Path) -> None:
    commands = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[0]
    subprocess.run(
        ["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    authority = (tmp_path / "client-ca.crt").read_bytes()
    scheduler = (tmp_path / "scheduler.crt").read_bytes()
    issuing.check_pair(
        issuing.Pair(scheduler, (tmp_path / "scheduler.key").read_bytes()), "the scheduler's"
    )
    (leaf,) = issuing.certificates(scheduler)
    (root,) = issuing.certificates(authority)
    leaf.verify_directly_issued_by(root)
    verified = ["openssl", "verify", "-purpose", "sslclient", "-CAfile", "client-ca.crt"]
    subprocess.run([*verified, "scheduler.crt"], cwd=tmp_path, check=True, timeout=60)
    assert issuing.expires_at(scheduler) > time.time() + 9 * 365 * 86400
    der = leaf.public_bytes(serialization.Encoding.DER)
    assert issuing.names_in(der)[0] in SHIPPED.extender.tls.client_names
    assert (
        Usage.CLIENT.value in leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    )
