"""The commands that ask how the fleet is and what was decided, with their flags. Each imports its
module when called, to start fast.
"""

import difflib
import shlex
import sys
import time
from pathlib import Path

import click
from click.core import ParameterSource

from fettle.cli.flags import (
    ACTS_AS,
    AS_GROUP,
    CONTEXT,
    DRIVER,
    KUBECONFIG,
    LIST_OUTPUT,
    OUTPUT,
    SERVERS,
    SETTINGS,
    STATE,
    age,
    age_or_none,
    selector,
    source,
    watched,
)
from fettle.cli.sources import Reading, program, typed


class _Kinds(click.Group):
    """Says how to write it if the kind was left out."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if "/" in name or name not in self.commands:
            kinds = _kinds_of(name)
            rest = shlex.join(args)[:_LONGEST]
            written = " or ".join(f"`{program()} explain {kind} {rest}`" for kind in kinds)
            if kinds and not difflib.get_close_matches(name, self.commands):
                raise click.UsageError(f"Say of what kind {name[:80]!r} is: {written}.", ctx)
        return super().resolve_command(ctx, args)


_LONGEST = 200


def _kinds_of(name: str) -> tuple[str, ...]:
    """Which kinds can have a name of this form."""
    if name.startswith("-"):
        return ()
    parts = name.split("/")
    if len(parts) == 2 and all(parts):
        return ("pod", "device")
    if len(parts) > 2:
        return ("device",)
    return ("reason",) if name[:1].isupper() else ("node", "device", "policy")


@click.group(cls=_Kinds)
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


def _pod_of(given: str, namespace: str, server: str) -> str:
    if not server and not namespace and given and "/" not in given:
        return f"/{given}"  # of the namespace of the kubeconfig's context
    return _pod_name(given, namespace)


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
@source
@OUTPUT
@watched
def pod(
    name: str, namespace: str, node: str, evidence: bool, summary: bool, server: str, output: str
) -> None:
    """Where a pod can go: the answer in one line, then node by node, each with its reasons."""
    from fettle.cli import explained_pods

    name = _pod_of(name, namespace, server)
    explained_pods.explain_pod(server, name, output, explained_pods.Extent(node, evidence, summary))


@explain.command()
@click.argument("name")
@source
@OUTPUT
@watched
def node(name: str, server: str, output: str) -> None:
    """A node's health: each piece of evidence, who uses it, and when it is Healthy again."""
    from fettle.cli import explaining

    explaining.explain_node(server, name, output)


@explain.command()
@click.argument("name", metavar="DRIVER/POOL/DEVICE | NODE/RESOURCE/UNIT | UUID")
@source
@OUTPUT
@watched
def device(name: str, server: str, output: str) -> None:
    """A device's health: each piece of evidence, who uses it, and when it is Healthy again.

    Any shorter name will do that only one device has, such as POOL/DEVICE or a PCI address.
    """
    from fettle.cli import explaining

    explaining.explain_device(server, name, output)


@explain.command()
@click.argument("name", metavar="NAMESPACE/POD | NAME")
@_NAMESPACE
@source
@OUTPUT
@watched
def policy(name: str, namespace: str, server: str, output: str) -> None:
    """The policy that applies to a pod, or one by name: each value, and where it comes from."""
    from fettle.cli import printing

    printing.explain_policy(server, _pod_or_policy(name, namespace), output)


@explain.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--webhooks",
    multiple=True,
    type=click.Path(),
    help="Files or folders of webhook configurations, if not deploy/webhook. May be repeated.",
)
@click.option(
    "--scheduler-config",
    "scheduler",
    default="",
    type=click.Path(),
    help="A KubeSchedulerConfiguration, if not that of deploy/scheduler.",
)
@click.option("--namespace", "-n", default="default", help="For objects without one.")
@click.option(
    "--output", "-o", type=click.Choice(("table", "json")), default="table", show_default=True
)
def sent(
    files: tuple[str, ...], webhooks: tuple[str, ...], scheduler: str, namespace: str, output: str
) -> None:
    """Would creating these objects reach Fettle's webhook, and the scheduler ask about their pods?

    By the configurations that are applied: no cluster is asked. Namespaces among the files are
    known by their labels.
    """
    import asyncio

    from fettle.cli.sent import explain_sent
    from fettle.model import BadInput

    try:
        asyncio.run(explain_sent(files, webhooks, scheduler, namespace, output))
    except BadInput as error:
        raise click.UsageError(str(error)) from error


@explain.command()
@click.argument("code", default="")
@OUTPUT
def reason(code: str, output: str) -> None:
    """What a reason code means, such as NodeHeld, and what comes of it; without CODE, all codes.

    Codes stand in `fettle decisions`, in the report, in metrics, and in JSON beside each text.
    """
    from fettle.cli import explaining
    from fettle.model import BadInput

    try:
        explaining.explain_reason(code, output)
    except BadInput as error:
        raise click.BadParameter(typed(str(error))) from error


@click.command("what-if")
@click.argument("name", metavar="NAMESPACE/NAME | FILE")
@click.option(
    "--namespace", "-n", default="", help="Of a pod named without one, or a manifest without one."
)
@click.option("--policy", default="", metavar="NAME", help="If the pod's policy were this one.")
@click.option(
    "--mend",
    default="",
    metavar="DEVICE",
    help="If this device, or node with its devices, were sound:"
    " without taints on devices, and with nothing held against them.",
)
@click.option("--cordon", default="", metavar="NODE", help="If this node were cordoned.")
@source
@OUTPUT
@watched
def what_if(
    name: str, namespace: str, policy: str, mend: str, cordon: str, server: str, output: str
) -> None:
    """What would become of a pod if its policy, a device or a node were otherwise.

    With a FILE (.yaml, .yml, .json, or - for standard input): which nodes would take its pods now,
    those of workloads too. ResourceClaims, templates and policies in it count.

    Judged by the code that answers the scheduler; nothing is changed.
    """
    from fettle.cli import explained_pods
    from fettle.model import BadInput

    asked = {"policy": policy, "mend": mend, "cordon": cordon}
    change = {how: value for how, value in asked.items() if value}
    is_file = name == "-" or name.endswith((".yaml", ".yml", ".json")) or Path(name).exists()
    if len(change) > 1 or not (change or is_file):
        raise click.UsageError(
            "Give one of --policy, --mend and --cordon, or a FILE such as job.yaml."
        )
    if not is_file:
        explained_pods.what_if(server, _pod_of(name, namespace, server), output, change)
        return
    call = click.get_current_context()
    if call.get_parameter_source("server") is ParameterSource.COMMANDLINE:
        raise click.UsageError(
            "A server knows the pods of its cluster, and no file: "
            "leave out --server, and give its settings with --settings FILE, "
            "or without a cluster --snapshot DIR."
        )
    try:
        explained_pods.suppose(name, namespace, output, change)
    except BadInput as error:
        click.echo(f"fettle: {error}", err=True)
        sys.exit(2)


@click.command()
@click.option("--all", "everything", is_flag=True, help="Include sound devices.")
@click.option("--node", default="", help="Only this node and its devices.")
@selector("nodes")
@STATE
@DRIVER
@click.option(
    "--since",
    default="",
    metavar="DURATION",
    callback=age_or_none,
    help="Only what got into its state within so long, such as 30m or 7d.",
)
@source
@LIST_OUTPUT
@watched
def devices(
    everything: bool,
    node: str,
    selector: str,
    states: tuple[str, ...],
    driver: str,
    since: str,
    server: str,
    output: str,
) -> None:
    """Devices that are not Healthy or that there is evidence about, the worst first, with why."""
    from fettle.cli import device_tables

    begun = time.time() - _seconds(since) if since else 0.0
    wanted = device_tables.WantedDevices(everything, node, selector, states, driver, begun)
    device_tables.list_devices(server, output, wanted)


def _seconds(age: str) -> float:
    from fettle.records import seconds_of

    return seconds_of(age)


@click.command()
@click.option(
    "--at-risk", is_flag=True, help="Only those whose own policy refuses where they are now."
)
@click.option("--node", default="", help="Only those on this node.")
@click.option("--namespace", "-n", default="", help="Only those of this namespace.")
@selector("pods")
@STATE
@DRIVER
@click.option(
    "--since",
    default="",
    metavar="DURATION",
    callback=age_or_none,
    help="Only those bound within so long, such as 30m or 7d.",
)
@source
@LIST_OUTPUT
@watched
def pods(
    at_risk: bool,
    node: str,
    namespace: str,
    selector: str,
    states: tuple[str, ...],
    driver: str,
    since: str,
    server: str,
    output: str,
) -> None:
    """Pods with devices that have a node: what they hold, and what their policy says of it.

    With --at-risk, the worst come first, and it exits with 3 if there are any whose policy refuses
    where they are, with 0 if there is none, and with 1 if that cannot be told.
    """
    from fettle.cli import printing

    asked = {
        "at-risk": "true" if at_risk else "",
        "node": node,
        "namespace": namespace,
        "selector": selector,
        "state": ",".join(states),
        "driver": driver,
        "since": since,
    }
    sys.exit(printing.list_pods(server, output, asked))


@click.command()
@click.argument("what", type=click.Choice(("nodes", "pods")), default="nodes")
@click.option("--namespace", "-n", default="", help="Of pods: only those of this namespace.")
@selector("nodes, or pods,")
@source
@LIST_OUTPUT
@watched
def top(what: str, namespace: str, selector: str, server: str, output: str) -> None:
    """How many devices each node has, in use, bad and missing; or how many each pod holds.

    Nodes with most that is bad come first, pods with most devices.
    """
    from fettle.cli import device_tables, printing

    if what == "nodes":
        device_tables.list_usage(server, output, selector)
        return
    asked = {"namespace": namespace, "selector": selector}
    printing.list_pods_by_devices(server, output, asked)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--hash-names", "hashes", is_flag=True, help="A hash for each name of an object.")
@KUBECONFIG
@CONTEXT
@ACTS_AS
@AS_GROUP
def snapshot(
    folder: Path,
    hashes: bool,
    kubeconfig: Path | None,
    context: str,
    acts_as: str,
    groups: tuple[str, ...],
) -> None:
    """Write the cluster as Fettle reads it into a new folder: for a bug report.

    Only kinds and fields that Fettle reads: no Secrets, environment, command lines or images.
    `fettle serve`, `lint`, `explain`, `devices` and others read it with --snapshot DIR.
    """
    from fettle.cli import snapshots

    reading = Reading(kubeconfig, context, acts_as, groups=groups)
    snapshots.take(reading, folder, hashes=hashes)


VERBS = ("filter", "prioritize", "preempt", "seen", "mutate", "validate", "steward")


@click.command()
@click.option("--since", default="1h", show_default=True, callback=age, help="Such as 30m or 7d.")
@click.option("--pod", default="", metavar="NAMESPACE/NAME", help="Only about this pod.")
@click.option("--namespace", "-n", default="", help="Only about objects of this namespace.")
@click.option("--node", default="", help="Only those that refused or preferred this node.")
@click.option("--policy", default="", help="Only by this policy.")
@click.option("--verb", type=click.Choice(VERBS), help="Only those of this verb.")
@SERVERS
@LIST_OUTPUT
@watched
def decisions(
    since: str,
    pod: str,
    namespace: str,
    node: str,
    policy: str,
    verb: str | None,
    servers: tuple[str, ...],
    output: str,
) -> None:
    """What Fettle decided, the newest first, and what became of the pods."""
    from fettle.cli import decision_tables

    wanted = {
        "pod": _pod_name(pod, "") if pod else "",
        "namespace": namespace,
        "node": node,
        "policy": policy,
        "verb": verb or "",
    }
    decision_tables.list_decisions(servers, since, wanted, output)


@click.command()
@click.option("--since", default="7d", show_default=True, callback=age, help="Such as 12h or 7d.")
@SERVERS
@click.option(
    "--output",
    "-o",
    type=click.Choice(("table", "json", "yaml", "html")),
    default="table",
    show_default=True,
    help="html: one page that needs no other file.",
)
@watched
def report(since: str, servers: tuple[str, ...], output: str) -> None:
    """What Fettle kept, or would have kept, from which devices, and where it was wrong."""
    from fettle.cli import report_pages

    report_pages.show_report(servers, since, output)


@click.command()
@KUBECONFIG
@CONTEXT
@ACTS_AS
@AS_GROUP
@SETTINGS
@click.option("--namespace", "-n", default="", help="Of pods, show only those of this namespace.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="On 127.0.0.1. By default any that is free.",
)
@click.option("--no-open", is_flag=True, help="Only print the URL, for your browser.")
def ui(
    kubeconfig: Path | None,
    context: str,
    acts_as: str,
    groups: tuple[str, ...],
    settings: Path | None,
    namespace: str,
    port: int,
    no_open: bool,
) -> None:
    """Show the cluster of your kubeconfig as a page in your browser, until Ctrl-C.

    It follows the cluster with your rights, and writes nothing. Only this machine reaches the page,
    and only whoever has its URL sees anything.
    """
    from fettle.cli import direct

    reading = Reading(kubeconfig, context, acts_as, settings, groups)
    direct.show_page(reading, namespace, port, opens=not no_open)


COMMANDS = (explain, what_if, devices, pods, top, decisions, report, snapshot, ui)
