"""`fettle certificates`: certificates that the programs calling Fettle need."""

import asyncio
from pathlib import Path

import click

from certs import SecretStore, authority
from fettle.client import Session
from fettle.config import Settings, load_settings
from fettle.model import CertificateError


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
