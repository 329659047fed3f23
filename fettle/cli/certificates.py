"""`fettle certificates`: what the programs that call Fettle must be given."""

import asyncio
from pathlib import Path

import click

from certs import SecretStore, authority
from fettle.client import Session
from fettle.config import Settings, load
from fettle.model import CertificateError


def extender_ca(kubeconfig: Path | None, settings: Path | None, namespace: str | None) -> None:
    """Print what kube-scheduler must trust, PEM; near a change the next authority too."""
    bundle = asyncio.run(_bundle(kubeconfig, load(settings), namespace))
    click.echo(bundle, nl=False)


async def _bundle(kubeconfig: Path | None, settings: Settings, namespace: str | None) -> bytes:
    name = settings.extender.secret
    async with await Session.open(kubeconfig) as session:
        where = namespace or settings.namespace or session.namespace
        store = SecretStore(session, where, name)
        content = await store.read()
    if not content:
        raise CertificateError(
            f"there is no certificate authority in {store.full_name}: it is created by the first "
            "extender that runs with extender.certificates: self and extender.tls.clientCaFile; if "
            "Fettle runs in another namespace, pass --namespace"
        )
    with authority.errors_naming(store.full_name):
        return authority.read(content).bundle
