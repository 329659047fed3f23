"""The commands that run Fettle, set it up and take it away, with their flags. Each imports its
module when called, to start fast.
"""

import signal
import sys
from pathlib import Path

import click

from fettle.cli.flags import (
    ACTS_AS,
    AS_GROUP,
    CONTEXT,
    KUBECONFIG,
    OUTPUT,
    age,
    source,
    watched,
)
from fettle.cli.sources import Reading, given

ROLES = ("extender", "webhook", "steward")


@click.command()
@click.argument("roles", nargs=-1, type=click.Choice(ROLES))
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Kubeconfig of the cluster to serve."
)
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    help="Serve a folder of objects, as `kubectl get -o yaml` prints them, instead of a cluster.",
)
@click.option("--settings", type=click.Path(path_type=Path), help="Settings file (YAML).")
@click.option("--extender-listen", default="127.0.0.1:8088", show_default=True)
@click.option("--webhook-listen", default="127.0.0.1:8443", show_default=True)
@click.option(
    "--browse-listen",
    multiple=True,
    default=("127.0.0.1:8090",),
    show_default=True,
    help="HOST:PORT, or unix:PATH for whoever can open that socket. May be repeated.",
)
@click.option(
    "--records",
    type=click.Path(path_type=Path),
    envvar="FETTLE_RECORDS",
    help="Folder for records of decisions, where the settings name none.",
)
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(("debug", "info", "warning", "error")),
)
def serve(
    roles: tuple[str, ...],
    kubeconfig: Path | None,
    snapshot: Path | None,
    settings: Path | None,
    extender_listen: str,
    webhook_listen: str,
    browse_listen: tuple[str, ...],
    records: Path | None,
    log_level: str,
) -> None:
    """Serve the extender, the webhook and the steward (default: all three).

    Plain HTTP is served on loopback only; elsewhere the settings must name certificates.
    """
    # Process 1 of a container ignores signals that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it means: read the settings anew
    from fettle.serve import ServeOptions
    from fettle.serve import serve as serve_with

    if kubeconfig is not None and snapshot is not None:
        raise click.UsageError("--kubeconfig and --snapshot are mutually exclusive.")
    serve_with(
        ServeOptions(
            roles=frozenset(roles or ROLES),
            kubeconfig=kubeconfig,
            snapshot=snapshot,
            settings=settings,
            extender_listen=extender_listen,
            webhook_listen=webhook_listen,
            browse_listen=browse_listen,
            records=records,
            log_level=log_level,
        )
    )


class _Rules(click.Group):
    """Lists or explains rules where no command is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] and args[0] in (*self.commands, *self.get_help_option_names(ctx)):
            return super().parse_args(ctx, args)
        return super().parse_args(ctx, ["list", *args])


@click.group(cls=_Rules)
def rules() -> None:
    """The rules of `fettle lint`, and rules files for health.rulesFile.

    Without a command as `list`: `fettle rules FTL036` explains one.
    """


@rules.command("list")
@click.argument("rules", nargs=-1, metavar="[RULE]...")
@click.option(
    "--prometheus",
    is_flag=True,
    help="Instead, the rules about metrics as alerting rules of Prometheus.",
)
@click.option(
    "--settings", type=click.Path(path_type=Path), help="With --prometheus: settings file (YAML)."
)
@click.option(
    "--output", "-o", type=click.Choice(("table", "json")), default="table", show_default=True
)
def list_rules(
    rules: tuple[str, ...], prometheus: bool, settings: Path | None, output: str
) -> None:
    """List the rules of `fettle lint`, or explain those that are named, such as FTL036.

    With --prometheus: print the rules about metrics, for Prometheus to evaluate and Alertmanager
    to send back.
    """
    if prometheus:
        from fettle.cli import setup_files

        if rules or output == "json":
            raise click.UsageError("--prometheus goes with --settings only.")
        click.echo(setup_files.alerting_rules(settings), nl=False)
        return
    from fettle.cli.linting import reports
    from fettle.model import BadInput

    if settings is not None:
        raise click.UsageError("--settings goes with --prometheus.")
    if rules and output == "json":
        raise click.UsageError("--output json lists all rules: name none.")
    if rules:
        try:
            click.echo("\n\n".join(map(reports.explained, rules)))
        except BadInput as error:
            raise click.BadParameter(str(error)) from error
    else:
        click.echo(reports.rules_as_json() if output == "json" else reports.rules_in_text())


@rules.command("test")
@click.argument("file", metavar="FILE")
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    help="A folder of objects, as `kubectl get -o yaml` prints them, instead of the cluster.",
)
@KUBECONFIG
@CONTEXT
@ACTS_AS
@AS_GROUP
@click.option("--settings", type=click.Path(path_type=Path), help="Settings file (YAML).")
@OUTPUT
@click.option(
    "--fail-on",
    type=click.Choice(("unknown", "silent")),
    default="unknown",
    show_default=True,
    help="silent: also if a row says nothing.",
)
def test_rules(
    file: str,
    snapshot: Path | None,
    kubeconfig: Path | None,
    context: str,
    acts_as: str,
    groups: tuple[str, ...],
    settings: Path | None,
    output: str,
    fail_on: str,
) -> None:
    """What each row of a rules file would say about the objects of a snapshot, or of your cluster.

    A row says (+) what is not said without it, and keeps others from saying (-) what would be.
    With ?, a row about objects, or a part of its message, cannot be evaluated on some. With !, it
    matches objects whose node or device is not there. What is remembered of faults that are over
    does not count, and neither does health.rulesFile of the settings.

    Exits with 0, or with 1 if a row cannot be evaluated on some object, 2 on bad input.
    """
    from fettle.cli import rule_tests
    from fettle.model import FettleError

    reading = Reading(kubeconfig, context, acts_as, settings, groups)
    if snapshot is not None and reading.names_cluster:
        raise click.UsageError("--snapshot and the flags for a cluster are mutually exclusive.")
    options = rule_tests.RulesTestOptions(file, snapshot, reading, output, fail_on)
    try:
        code = rule_tests.run(options)
    except FettleError as error:
        click.echo(f"fettle: {error}", err=True)
        code = rule_tests.UNUSABLE
    sys.exit(code)


@click.command()
@click.option(
    "--wait",
    "within",
    metavar="DURATION",
    callback=lambda context, parameter, given: age(context, parameter, given) if given else "",
    help="Instead, wait at most so long, such as 5m, until Fettle is set up.",
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ROLES),
    help="With --wait: must be there. May be repeated. By default what is found must be set up.",
)
@click.option(
    "--namespace",
    "-n",
    default="fettle-system",
    show_default=True,
    help="With --wait: where Fettle's pods are.",
)
@source
@OUTPUT
@watched
def status(within: str, roles: tuple[str, ...], namespace: str, server: str, output: str) -> None:
    """How many nodes and devices are in which state, and pods at risk or waiting; of a server also
    whether it is ready, who asks it, its sources, its leader, rights and certificates.

    Exits with 1 if the server is not ready, lacks a right or has an expired certificate, or if
    something of the cluster cannot be seen; else with 0.

    With --wait: exits with 0 once every process is ready and has its rights, the API server asks
    the webhook, and a scheduler asks the extender; with 1 if that takes too long, and says what is
    missing. Without --server the pods of Fettle are asked, which only a pod can reach.
    """
    from fettle.cli import printing, setup_waiting

    if not within:
        if roles:
            raise click.UsageError("--role goes with --wait.")
        sys.exit(printing.show_status(server, output))
    if output != "table":
        raise click.UsageError("--wait prints no JSON or YAML: leave out --output.")
    if given().snapshot is not None:
        raise click.UsageError("--wait asks who runs: leave out --snapshot.")
    sys.exit(setup_waiting.wait(server, within, roles, namespace))


@click.command()
@click.option(
    "--within",
    metavar="DURATION",
    default="4m",
    show_default=True,
    callback=lambda context, parameter, given: age(context, parameter, given),
    help="How long to wait for the steward.",
)
@click.option(
    "--namespace",
    "-n",
    default="fettle-system",
    show_default=True,
    help="Where the ConfigMap of the steward's settings is.",
)
@KUBECONFIG
def withdraw(within: str, namespace: str, kubeconfig: Path | None) -> None:
    """Take back what Fettle wrote about nodes, devices and pods, before it is uninstalled.

    Its webhook configurations are deleted. Its settings become `mode: observe` and `steward:
    {dryRun: true}`, and the steward then takes back its marks. Exits with 1 if some are left.
    While Kueue has an AdmissionCheck that Fettle answers, nothing is taken back (exit 1): else what
    is queued with it would wait for ever.
    """
    from fettle.cli import withdrawing

    sys.exit(withdrawing.withdraw(within, namespace, kubeconfig))


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Kubeconfig of the cluster to fit them to.",
)
@click.option("--settings", type=click.Path(path_type=Path), help="Fettle's settings, if any.")
def webhooks(files: tuple[str, ...], kubeconfig: Path | None, settings: Path | None) -> None:
    """Print webhook configurations (deploy/webhook/) with rules for what a cluster serves.

    For clusters without resource.k8s.io/v1, and for workload kinds added in the settings. Kinds
    that the cluster does not serve are left out: print and apply again once they are installed.
    """
    from fettle.cli import setup_files

    setup_files.fit_webhooks(files, kubeconfig, settings)


def _extender_url(
    _context: click.Context, _parameter: click.Parameter, given: str | None
) -> str | None:
    from fettle.cli.scheduler_config.entries import read_url
    from fettle.model import BadInput

    try:
        return given and read_url(given)
    except BadInput as error:
        raise click.BadParameter(str(error)) from error


def _resources(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    from fettle.cli.scheduler_config.entries import can_be_listed

    for name in given:
        if not can_be_listed(name):
            raise click.BadParameter(
                f"{name!r}: write an extended resource such as nvidia.com/gpu; claims are asked "
                "about without"
            )
    return tuple(dict.fromkeys(given))


@click.command("scheduler-config")
@click.option(
    "--in",
    "file",
    type=click.Path(path_type=Path),
    help="The file that kube-scheduler's flag --config names. Without: a new one is printed.",
)
@click.option("--write", is_flag=True, help="Write FILE. By default only the difference is shown.")
@click.option("--remove", is_flag=True, help="Take Fettle's entry out.")
@click.option(
    "--mode",
    type=click.Choice(("observe", "steer", "enforce")),
    help="Fettle's mode: an entry for enforce is not ignorable. A new entry is for observe.",
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="NAME",
    callback=_resources,
    help="An extended resource of your cluster. May be repeated. Without: the usual ones.",
)
@click.option("--from-nodes", is_flag=True, help="Those that the Nodes of your cluster have.")
@KUBECONFIG
@CONTEXT
@ACTS_AS
@AS_GROUP
@click.option(
    "--url",
    callback=_extender_url,
    help="Where the extender is, if not on loopback: https://ADDRESS:8088 (docs/extender-tls.md).",
)
@click.option(
    "--scheduler-kubeconfig",
    metavar="PATH",
    help="The kubeconfig of kube-scheduler itself, if not /etc/kubernetes/scheduler.conf.",
)
def scheduler_config(
    file: Path | None,
    write: bool,
    remove: bool,
    mode: str | None,
    resources: tuple[str, ...],
    from_nodes: bool,
    kubeconfig: Path | None,
    context: str,
    acts_as: str,
    groups: tuple[str, ...],
    url: str | None,
    scheduler_kubeconfig: str | None,
) -> None:
    """Put Fettle's extender into a KubeSchedulerConfiguration, and show what that changes.

    All else stays as it is, comments too. An entry for Fettle that is there is brought up to date.
    """
    from fettle.cli.scheduler_config import running
    from fettle.cli.scheduler_config.entries import Wanted

    if file is None and (write or remove):
        raise click.UsageError("--write and --remove need --in FILE; a new one goes to > FILE.")
    reading = Reading(kubeconfig, context, acts_as, groups=groups)
    if remove and (mode or resources or from_nodes or kubeconfig or scheduler_kubeconfig):
        raise click.UsageError("--remove goes with --in, --write and --url only.")
    if reading != Reading() and not from_nodes:
        raise click.UsageError("--kubeconfig, --context, --as and --as-group are for --from-nodes.")
    running.run(
        running.ConfigOptions(
            file=file,
            write=write,
            remove=remove,
            wanted=Wanted(mode == "enforce" if mode else None, url, resources or None),
            scheduler_kubeconfig=scheduler_kubeconfig,
            from_nodes=from_nodes,
            reading=reading,
        )
    )


@click.group()
def certificates() -> None:
    """Print certificates that the programs calling Fettle need."""


@certificates.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Kubeconfig of the cluster Fettle runs in.",
)
@click.option(
    "--settings", type=click.Path(path_type=Path), help="Fettle's settings, if it has any."
)
@click.option(
    "--namespace", "-n", help="Fettle's namespace; by default that of the kubeconfig's context."
)
def extender_ca(kubeconfig: Path | None, settings: Path | None, namespace: str | None) -> None:
    """Print the CA that kube-scheduler must trust (its tlsConfig.caFile), PEM."""
    from fettle.cli import setup_files

    setup_files.extender_ca(kubeconfig, settings, namespace)


COMMANDS = (serve, rules, status, withdraw, webhooks, scheduler_config, certificates)
