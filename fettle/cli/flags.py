"""The flags that several commands share. Imports nothing heavy."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fettle.cli.sources import Reading

Command = Callable[..., None]
DEFAULT_SERVER = "http://127.0.0.1:8090"
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
SETTINGS = click.option(
    "--settings", type=_FILE, help="Judge by a Fettle's settings file. By default by none."
)

_SNAPSHOT = click.option(
    "--snapshot",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Instead, read a folder that `fettle snapshot` wrote, or `kubectl get -o yaml`.",
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
        snapshot: Path | None,
        **rest: object,
    ) -> None:
        reading = Reading(kubeconfig, context, acts_as, settings, groups, snapshot)
        if snapshot is not None and reading.names_cluster:
            raise click.UsageError("--snapshot and the flags for a cluster are mutually exclusive.")
        call = click.get_current_context()
        if server and reading != Reading():
            if call.get_parameter_source("server") is ParameterSource.COMMANDLINE:
                raise click.UsageError(
                    "--kubeconfig, --context, --as, --as-group, --snapshot and --settings are for "
                    "reading the cluster itself: leave out --server."
                )
            server = ""  # flags go before the environment
        call.obj = reading
        command(server=server, **rest)

    return KUBECONFIG(CONTEXT(ACTS_AS(AS_GROUP(_SNAPSHOT(SETTINGS(run))))))


def _urls(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    from fettle.cli import calling

    for one in given:
        if not calling.is_url(one):
            raise click.BadParameter(f"{one!r}: write a URL such as {DEFAULT_SERVER}")
    return given


def _url(context: click.Context, parameter: click.Parameter, given: str | None) -> str:
    if given is None:
        return ""
    # In the environment there may be several, of which only some commands ask all.
    return _urls(context, parameter, (given.partition(" ")[0],))[0]


def _token_file(context: click.Context, parameter: click.Parameter, given: Path | None) -> None:
    from fettle.cli import tokens

    tokens.take_file(context, parameter, given)


_TOKEN_FILE = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    callback=_token_file,
    expose_value=False,
    help="Your token for it, also in FETTLE_TOKEN. By default that of your kubeconfig.",
)
_Decorator = Callable[[Command], Command]


def _with_token(server: _Decorator) -> _Decorator:
    return lambda command: server(_TOKEN_FILE(command))


_SERVER = _with_token(
    click.option(
        "--server",
        callback=_url,
        show_default="none: the cluster is read",
        envvar="FETTLE_SERVER",
        help="Browse listener of a running Fettle: a URL, or unix:PATH.",
    )
)


def source(command: Command) -> Command:
    """A running Fettle, or else the cluster itself."""
    return _SERVER(reads_cluster(command))


SERVERS = _with_token(
    click.option(
        "--server",
        "servers",
        multiple=True,
        callback=_urls,
        show_default="http://127.0.0.1:8090 and :8091",
        envvar="FETTLE_SERVER",
        help="Browse listener. Name each process: none knows what others decided.",
    )
)
OUTPUT = click.option(
    "--output",
    "-o",
    type=click.Choice(("table", "json", "yaml")),
    default="table",
    show_default=True,
)


class _ListOutput(click.Choice[str]):
    """One of the choices, or `jsonpath=` with a template."""

    def __init__(self) -> None:
        super().__init__(("table", "wide", "json", "yaml", "name", "jsonpath=TEMPLATE"))

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from fettle.cli import jsonpaths
        from fettle.model import BadInput

        template = value.removeprefix(jsonpaths.PREFIX)
        if template == value and value != "jsonpath":
            return super().convert(value, param, ctx)
        try:
            if template in ("", "jsonpath", "TEMPLATE"):
                raise BadInput("write a template, such as '{.pods[*].pod}'")
            jsonpaths.Template(template)
        except BadInput as error:
            self.fail(f"jsonpath: {error}", param, ctx)
        return value


LIST_OUTPUT = click.option(
    "--output",
    "-o",
    type=_ListOutput(),
    default="table",
    show_default=True,
    help="wide: all columns, names and times in full. name: as `fettle explain` takes them. "
    "jsonpath: of the JSON, as for kubectl: '{range .pods[*]}{.pod}{\"\\n\"}{end}'.",
)
STATES = ("Healthy", "Degraded", "Unhealthy", "Unknown")
STATE = click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only devices in this state. May be repeated.",
)
DRIVER = click.option(
    "--driver", default="", help="Only devices of this DRA driver or extended resource."
)


def selector(of: str) -> Callable[[Command], Command]:
    """A label selector, which whoever answers reads."""
    return click.option(
        "--selector",
        "-l",
        default="",
        metavar="LABELS",
        help=f"Only {of} with these labels, as for kubectl: a=b,c!=d,e in (f,g),h,!i.",
    )


def watched(command: Command) -> Command:
    """With a flag to ask again and again."""

    @click.option(
        "--watch", "-w", is_flag=True, help="Ask again every 2 s; every 30 s without a server."
    )
    @wraps(command)
    def run(*, watch: bool, **rest: Any) -> None:
        if not watch:
            command(**rest)
            return
        if rest.get("name") == "-":
            raise click.UsageError("--watch reads again, and standard input ends: name a file.")
        from fettle.cli import watching

        asks_server = rest.get("server") or "servers" in rest
        pause_s = watching.EVERY_S if asks_server else watching.EVERY_DIRECT_S
        watching.watch(lambda: _without_exit(command, rest), pause_s)

    return run


def _without_exit(command: Command, given: dict[str, Any]) -> None:
    with suppress(SystemExit):
        command(**given)


def age(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    from fettle.model import BadInput
    from fettle.records import seconds_of

    try:
        seconds_of(given)
    except BadInput as error:
        raise click.BadParameter(str(error).removeprefix("since ")) from error
    return given


def age_or_none(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """As `age`; "" if it is not given."""
    return given and age(context, parameter, given)
