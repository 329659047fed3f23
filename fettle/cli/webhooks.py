"""`fettle webhooks`: webhook configurations with rules for what one cluster serves."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from fettle.cli.linting.files import read
from fettle.client import Session, served_kinds
from fettle.config import Settings, load_settings
from fettle.model import SnapshotError
from webhook import fit_configuration, groups_to_discover

KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def fit(names: Sequence[str], kubeconfig: Path | None, settings: Path | None) -> None:
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
