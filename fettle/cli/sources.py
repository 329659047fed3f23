"""Where the answer to a command comes from, as its flags say: a running Fettle, or the cluster
itself. Imports nothing heavy.
"""

from pathlib import Path
from typing import NamedTuple

import click


class Reading(NamedTuple):
    """Which cluster to read, as whom and in which groups, and by which settings; or, instead of a
    cluster, which folder. `context` and `acts_as` are "" for those of the kubeconfig."""

    kubeconfig: Path | None = None
    context: str = ""
    acts_as: str = ""
    settings: Path | None = None
    groups: tuple[str, ...] = ()
    snapshot: Path | None = None

    @property
    def names_cluster(self) -> bool:
        return self._replace(settings=None, snapshot=None) != Reading()


def given() -> Reading:
    """What the flags of this command say."""
    context = click.get_current_context(silent=True)
    return (context and context.find_object(Reading)) or Reading()
