"""Prints what other programs are set up with to ask Fettle, or to alert: rules for Prometheus, the
CA that kube-scheduler trusts, and webhook configurations for the API server.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from certs import SecretStore, authority
from fettle.cli.linting.files import read
from fettle.client import Session, served_kinds
from fettle.config import Settings, load_settings
from fettle.health import load_rules, metrics
from fettle.model import CertificateError, SnapshotError
from webhook import fit_configuration, groups_to_discover

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def alerting_rules(settings: Path | None) -> str:
    """The rules about metrics as a file for Prometheus: the shipped ones, with the rows of the
    settings' rules file. Raises SettingsError."""
    rows = load_rules(load_settings(settings).health.rules_file)
    return yaml.safe_dump(metrics.alerting_rules(rows), sort_keys=False, width=100)


def extender_ca(kubeconfig: Path | None, settings: Path | None, namespace: str | None) -> None:
    """Print the CA that kube-scheduler must trust, PEM; near a rotation the next one too."""
    bundle = asyncio.run(_bundle(kubeconfig, load_settings(settings), namespace))
    click.echo(bundle, nl=False)


async def _bundle(kubeconfig: Path | None, settings: Settings, namespace: str | None) -> bytes:
    name = settings.extender.secret
    async with await Session.open(kubeconfig) as session:
        where = namespace or settings.namespace or session.namespace
        store = SecretStore(session, where, name)
        content = await store.read()
    if not content:
        raise CertificateError(
            f"there is no certificate authority in {store.full_name}: it is made by the first "
            "extender that runs with extender.certificates: self and extender.tls.clientCaFile; if "
            "Fettle runs in another namespace, pass --namespace"
        )
    with authority.errors_naming(store.full_name):
        return authority.read(content).bundle


def fit_webhooks(names: Sequence[str], kubeconfig: Path | None, settings: Path | None) -> None:
    """Print the configurations in these files, fitted to the cluster, as YAML."""
    documents, _, problems, _ = read(names)
    if problems:
        raise SnapshotError("; ".join(problems))
    configurations = [d.object for d in documents if d.object["kind"] in KINDS]
    if not configurations:
        raise SnapshotError(f"no {' or '.join(KINDS)} found in {', '.join(names)}")
    for document in asyncio.run(_fitted(configurations, kubeconfig, load_settings(settings))):
        click.echo("---")
        click.echo(yaml.dump(document, Dumper=_Plain, sort_keys=False, width=100), nl=False)


async def _fitted(
    configurations: Sequence[dict[str, Any]], kubeconfig: Path | None, settings: Settings
) -> list[dict[str, Any]]:
    workloads = settings.webhook.workloads
    async with await Session.open(kubeconfig) as session:
        served = {
            group: await served_kinds(session, group)
            for group in sorted(groups_to_discover(configurations, workloads))
        }
    return [fit_configuration(one, served, workloads) for one in configurations]


class _Plain(yaml.SafeDumper):
    """Writes no anchors, which would be hard to read in the result."""

    def ignore_aliases(self, data: object) -> bool:
        return True
