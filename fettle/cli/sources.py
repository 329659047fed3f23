"""Where the answer to a command comes from, as its flags say: a running Fettle, or the cluster
itself. Imports nothing heavy.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource

Command = Callable[..., None]


class Reading(NamedTuple):
    """Which cluster to read, as whom and in which groups, and by which settings. `context` and
    `acts_as` are "" for those of the kubeconfig."""

    kubeconfig: Path | None = None
    context: str = ""
    acts_as: str = ""
    settings: Path | None = None
    groups: tuple[str, ...] = ()


def given() -> Reading:
    """What the flags of this command say."""
    context = click.get_current_context(silent=True)
    return (context and context.find_object(Reading)) or Reading()


_FILE = click.Path(path_type=Path)
KUBECONFIG = click.option(
    "--kubeconfig", type=_FILE, help="Your kubeconfig. By default as for kubectl."
)
CONTEXT = click.option("--context", default="", help="Another context of your kubeconfig.")
ACTS_AS = click.option(
    "--as",
    "acts_as",
    default="",
    is_eager=True,  # --as-group looks at it
    help="Whom to impersonate, as with kubectl.",
)


def _groups(
    context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    if given and not context.params.get("acts_as"):
        raise click.UsageError("--as-group goes with --as: say whom to impersonate, too.")
    return given


AS_GROUP = click.option(
    "--as-group",
    "groups",
    multiple=True,
    callback=_groups,
    help="In which group, beside --as. May be repeated.",
)
_SETTINGS = click.option(
    "--settings", type=_FILE, help="Judge by a Fettle's settings file. By default by none."
)


def reads_cluster(command: Command) -> Command:
    """With flags that say how to read the cluster; `server` becomes "" where that is to be done."""

    @wraps(command)
    def run(
        *,
        server: str,
        kubeconfig: Path | None,
        context: str,
        acts_as: str,
        settings: Path | None,
        groups: tuple[str, ...],
        **rest: object,
    ) -> None:
        reading = Reading(kubeconfig, context, acts_as, settings, groups)
        call = click.get_current_context()
        if server and reading != Reading():
            if call.get_parameter_source("server") is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    "--kubeconfig, --context, --as, --as-group and --settings are for reading the "
                    "cluster itself: leave out --server."
                )
            server = ""  # flags go before the environment
        call.obj = reading
        command(server=server, **rest)

    return KUBECONFIG(CONTEXT(ACTS_AS(AS_GROUP(_SETTINGS(run)))))
