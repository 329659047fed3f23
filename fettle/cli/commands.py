"""The commands and their flags. Each command imports its module when called, to start fast."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click

from fettle import __version__
from fettle.cli.sources import (
    ACTS_AS,
    AS_GROUP,
    CONTEXT,
    KUBECONFIG,
    Reading,
    reads_cluster,
)
from fettle.model import FettleError

ROLES = ("extender", "webhook", "steward")
DEFAULT_SERVER = "http://127.0.0.1:8090"


class _Group(click.Group):
    """Prints Fettle's own errors as one sentence, without a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except FettleError as error:
            click.echo(f"fettle: {error}", err=True)
        except OSError as error:  # such as a full disk behind standard output
            click.echo(f"fettle: {error.filename or 'output'}: {error.strerror}", err=True)
        sys.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fettle")
def main() -> None:
    """Place Kubernetes pods by device health."""


@main.command()
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
_Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def _with_token(server: _Decorator) -> _Decorator:
    return lambda command: server(_TOKEN_FILE(command))


_SERVER_OPTION = _with_token(
    click.option(
        "--server",
        callback=_url,
        show_default="none: the cluster is read",
        envvar="FETTLE_SERVER",
        help="Browse listener of a running Fettle: a URL, or unix:PATH.",
    )
)


def _source(command: Callable[..., None]) -> Callable[..., None]:
    """A running Fettle, or else the cluster itself."""
    return _SERVER_OPTION(reads_cluster(command))


_SERVERS = _with_token(
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
_OUTPUT = click.option(
    "--output", "-o", type=click.Choice(("table", "json")), default="table", show_default=True
)


@main.group()
def explain() -> None:
    """Explain what Fettle decides, or would decide, and why."""


_NAMESPACE = click.option("--namespace", "-n", default="", help="Of a pod named without one.")


def _pod_name(given: str, namespace: str) -> str:
    parts = [*filter(None, [namespace]), *given.split("/")]
    if len(parts) != 2 or not all(parts):
        name = parts[-1] or "NAME"
        raise click.BadParameter(
            f"{given!r}: write NAMESPACE/NAME, such as default/{name}, or NAME with --namespace"
        )
    return "/".join(parts)


def _pod_or_policy(given: str, namespace: str) -> str:
    parts = [*filter(None, [namespace]), *given.split("/")]
    if len(parts) > 2 or not all(parts):
        raise click.BadParameter(
            f"{given!r}: write NAMESPACE/POD for the policy of a pod, or NAME for a policy by its "
            "name, such as training"
        )
    return "/".join(parts)


@explain.command()
@click.argument("name", metavar="NAMESPACE/NAME")
@_NAMESPACE
@click.option("--node", default="", metavar="NAME", help="Only this node, and all about it.")
@click.option(
    "--evidence", is_flag=True, help="Also what is behind it: evidence, holds, decisions."
)
@click.option("--summary", is_flag=True, help="Only the answer, in one line.")
@_source
@_OUTPUT
def pod(
    name: str, namespace: str, node: str, evidence: bool, summary: bool, server: str, output: str
) -> None:
    """Where a pod can go: the answer in one line, then node by node, each with its reasons."""
    from fettle.cli import explained_pods

    if not server and not namespace and name and "/" not in name:
        name = f"/{name}"  # of the namespace of the kubeconfig's context
    else:
        name = _pod_name(name, namespace)
    explained_pods.explain_pod(server, name, output, explained_pods.Extent(node, evidence, summary))


@explain.command()
@click.argument("name")
@_source
@_OUTPUT
def node(name: str, server: str, output: str) -> None:
    """A node's health: each piece of evidence, who uses it, and when it is Healthy again."""
    from fettle.cli import explaining

    explaining.explain_node(server, name, output)


@explain.command()
@click.argument("name", metavar="DRIVER/POOL/DEVICE | NODE/RESOURCE/UNIT | UUID")
@_source
@_OUTPUT
def device(name: str, server: str, output: str) -> None:
    """A device's health: each piece of evidence, who uses it, and when it is Healthy again.

    Any shorter name will do that only one device has, such as POOL/DEVICE or a PCI address.
    """
    from fettle.cli import explaining

    explaining.explain_device(server, name, output)


@explain.command()
@click.argument("name", metavar="NAMESPACE/POD | NAME")
@_NAMESPACE
@_source
@_OUTPUT
def policy(name: str, namespace: str, server: str, output: str) -> None:
    """The policy that applies to a pod, or one by name: each value, and where it comes from."""
    from fettle.cli import printing

    printing.explain_policy(server, _pod_or_policy(name, namespace), output)


@main.command()
@click.option("--all", "everything", is_flag=True, help="Include sound devices.")
@_source
@_OUTPUT
def devices(everything: bool, server: str, output: str) -> None:
    """Devices that are not Healthy or that there is evidence about, the worst first, with why."""
    from fettle.cli import device_tables

    device_tables.list_devices(server, output, everything=everything)


@main.command()
@click.option("--prometheus", is_flag=True, required=True, help="As alerting rules of Prometheus.")
@click.option("--settings", type=click.Path(path_type=Path), help="Settings file (YAML).")
def rules(prometheus: bool, settings: Path | None) -> None:
    """Print the rules about metrics, for Prometheus to evaluate and Alertmanager to send back."""
    from fettle.cli import setup_files

    assert prometheus
    click.echo(setup_files.alerting_rules(settings), nl=False)


@main.command()
@click.option(
    "--wait",
    "within",
    metavar="DURATION",
    callback=lambda context, parameter, given: _age(context, parameter, given) if given else "",
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
@_source
@_OUTPUT
def status(within: str, roles: tuple[str, ...], namespace: str, server: str, output: str) -> None:
    """How many nodes and devices are in which state, and pods at risk or waiting.

    With --wait: exits with 0 once every process is ready and has its rights, the API server asks
    the webhook, and a scheduler asks the extender; with 1 if that takes too long, and says what is
    missing. Without --server the pods of Fettle are asked, which only a pod can reach.
    """
    from fettle.cli import printing, setup_waiting

    if not within:
        if roles:
            raise click.UsageError("--role goes with --wait.")
        printing.show_status(server, output)
        return
    if output == "json":
        raise click.UsageError("--wait prints no JSON: leave out --output.")
    sys.exit(setup_waiting.wait(server, within, roles, namespace))


@main.command()
@click.option(
    "--within",
    metavar="DURATION",
    default="4m",
    show_default=True,
    callback=lambda context, parameter, given: _age(context, parameter, given),
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
    """
    from fettle.cli import withdrawing

    sys.exit(withdrawing.withdraw(within, namespace, kubeconfig))


@main.command()
@click.argument("where", metavar="NODE[/DEVICE]")
@click.option("--reason", required=True, help="Why, for whoever finds the hold.")
@click.option(
    "--until",
    metavar="TIME|DURATION",
    help="When it ends by itself, such as 4h, 1d12h or 2026-05-01T18:00Z. By default it stays.",
)
@KUBECONFIG
def hold(where: str, reason: str, until: str | None, kubeconfig: Path | None) -> None:
    """Keep new pods off a node, or off one device or unit of it.

    DEVICE is a DRA device (gpu-3; POOL/gpu-3 or DRIVER/POOL/gpu-3 if there are several), or a unit
    of a device plugin: 3, index:3, a UUID or pci:ADDRESS, after RESOURCE/ if there are several.
    """
    from fettle.cli import holding

    holding.hold(where, reason, until, kubeconfig)


@main.command()
@click.argument("where", metavar="NODE[/DEVICE]")
@click.option("--by", metavar="NAME", help="Release what this operator holds, instead of yours.")
@click.option("--all", "everybody", is_flag=True, help="Release it, whoever holds it.")
@KUBECONFIG
def release(where: str, by: str | None, everybody: bool, kubeconfig: Path | None) -> None:
    """End your hold on a node, or on a device or unit of it, and holds that name nobody.

    A node's hold and those of its devices end each by itself.
    """
    from fettle.cli import holding

    if by and everybody:
        raise click.UsageError("--by and --all are mutually exclusive.")
    holding.release(where, by, everybody, kubeconfig)


@main.command()
@click.argument("node", required=False)
@_OUTPUT
@KUBECONFIG
def holds(node: str | None, output: str, kubeconfig: Path | None) -> None:
    """What is held, by whom, since when, until when, and whether the scheduler itself obeys."""
    from fettle.cli import holding

    holding.list_holds(node, output, kubeconfig)


@main.command()
@click.option(
    "--at-risk", is_flag=True, help="Only those whose own policy refuses where they are now."
)
@click.option("--node", default="", help="Only those on this node.")
@click.option("--namespace", "-n", default="", help="Only those of this namespace.")
@_source
@_OUTPUT
def pods(at_risk: bool, node: str, namespace: str, server: str, output: str) -> None:
    """Pods with devices that have a node: what they hold, and what their policy says of it.

    With --at-risk, the worst come first, and it exits with 3 if there are any whose policy refuses
    where they are, with 0 if there is none, and with 1 if that cannot be told.
    """
    from fettle.cli import printing

    sys.exit(printing.list_pods(server, output, at_risk=at_risk, node=node, namespace=namespace))


def _age(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    from fettle.model import BadInput
    from fettle.records import seconds_of

    try:
        seconds_of(given)
    except BadInput as error:
        raise click.BadParameter(str(error).removeprefix("since ")) from error
    return given


@main.command()
@click.option("--since", default="1h", show_default=True, callback=_age, help="Such as 30m or 7d.")
@click.option("--pod", default="", metavar="NAMESPACE/NAME", help="Only about this pod.")
@click.option("--node", default="", help="Only those that refused or preferred this node.")
@click.option("--policy", default="", help="Only by this policy.")
@_SERVERS
@_OUTPUT
def decisions(
    since: str, pod: str, node: str, policy: str, servers: tuple[str, ...], output: str
) -> None:
    """What Fettle decided, the newest first, and what became of the pods."""
    from fettle.cli import decision_tables

    wanted = {"pod": _pod_name(pod, "") if pod else "", "node": node, "policy": policy}
    decision_tables.list_decisions(servers, since, wanted, output)


@main.command()
@click.option("--since", default="7d", show_default=True, callback=_age, help="Such as 12h or 7d.")
@_SERVERS
@click.option(
    "--output",
    "-o",
    type=click.Choice(("table", "json", "html")),
    default="table",
    show_default=True,
    help="html: one page that needs no other file.",
)
def report(since: str, servers: tuple[str, ...], output: str) -> None:
    """What Fettle kept, or would have kept, from which devices, and where it was wrong."""
    from fettle.cli import report_pages

    report_pages.show_report(servers, since, output)


@main.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    help="A folder of objects from the cluster that the manifests are for.",
)
@click.option("--cluster", is_flag=True, help="Read the cluster of your kubeconfig instead.")
@KUBECONFIG
@CONTEXT
@ACTS_AS
@AS_GROUP
@click.option("--settings", type=click.Path(path_type=Path), help="Settings file (YAML).")
@click.option(
    "--namespace", "-n", default="default", show_default=True, help="For objects without one."
)
@click.option("--strict", is_flag=True, help="Also deny what only growth could satisfy.")
@click.option(
    "--output",
    "-o",
    type=click.Choice(("text", "json", "sarif", "github")),
    default="text",
    show_default=True,
)
@click.option(
    "--fail-on",
    type=click.Choice(("deny", "warn", "undecided")),
    default="deny",
    show_default=True,
    help="undecided: also where what the cluster has leaves a rule open.",
)
@click.option("--skip-others", is_flag=True, help="Skip documents without a kind, as in folders.")
@click.option(
    "--crds",
    type=click.Path(path_type=Path),
    help="A folder or file of CustomResourceDefinitions, whose objects are checked by them.",
)
def lint(
    files: tuple[str, ...],
    snapshot: Path | None,
    cluster: bool,
    kubeconfig: Path | None,
    context: str,
    acts_as: str,
    groups: tuple[str, ...],
    settings: Path | None,
    namespace: str,
    strict: bool,
    output: str,
    fail_on: str,
    skip_others: bool,
    crds: Path | None,
) -> None:
    """Find claims and workloads that can never work, in files, folders or standard input (-).

    Also checks rules files for health.rulesFile.

    Exits with 0 if nothing was found, 1 on findings at or above --fail-on, 2 on bad input.
    """
    from fettle.cli.linting import running
    from fettle.observing import logs

    reading = Reading(kubeconfig, context, acts_as, groups=groups)
    asked = reading if cluster or reading != Reading() else None
    if asked is not None and snapshot is not None:
        raise click.UsageError("--snapshot and the flags for a cluster are mutually exclusive.")
    options = running.LintOptions(
        files, snapshot, asked, settings, namespace, strict, output, fail_on, skip_others, crds
    )
    logs.configure("error")
    try:
        code = running.run(options)
    except FettleError as error:
        click.echo(f"fettle: {error}", err=True)
        code = 2
    sys.exit(code)


@main.command()
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


@main.command("scheduler-config")
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


@main.group()
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


@main.command()
@click.option("--serve", "stay", is_flag=True, help="Keep running and print what to try.")
def demo(stay: bool) -> None:
    """Fettle on an embedded fleet with real faults: no cluster, no network."""
    from fettle.cli.demo import story

    sys.exit(story.run(stay=stay))
