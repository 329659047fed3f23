"""`fettle`: all commands, how errors and closed pipes end them, and those that act on files and
devices. Each command imports its module when called, to start fast.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from fettle import __version__
from fettle.cli import asking, setting_up
from fettle.cli.flags import ACTS_AS, AS_GROUP, CONTEXT, KUBECONFIG, OUTPUT, watched
from fettle.cli.sources import Reading

CLOSED_PIPE = 141
"""The exit status if nobody reads on, as behind `| head`: what shells say of SIGPIPE."""


@contextmanager
def _while_read() -> Iterator[None]:
    """Ends the process without a word once nobody reads its output."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # not when Python ends, which would complain
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        sys.exit(CLOSED_PIPE)


def _own_error() -> type[Exception]:
    from fettle.model import FettleError

    return FettleError


def _advice(error: Exception) -> str:
    from fettle.model import Silent, Unreachable

    if isinstance(error, Silent | Unreachable):
        return (
            "; does it run, and is there a way to it from here (VPN, proxy)? --context and "
            "--kubeconfig name another cluster"
        )
    return ""


class _Group(click.Group):
    """Prints Fettle's own errors as one sentence, without a traceback."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        with _while_read():
            return super().make_context(*given, **more)

    def invoke(self, ctx: click.Context) -> object:
        with _while_read():
            try:
                return super().invoke(ctx)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise
            except _own_error() as error:
                click.echo(f"fettle: {error}{_advice(error)}", err=True)
            except BrokenPipeError:
                raise
            except KeyError as error:
                from fettle.cli.calling import of_another_version

                if not (said := of_another_version(error)):
                    raise
                click.echo(f"fettle: {said}", err=True)
            except OSError as error:  # such as a full disk behind standard output
                click.echo(f"fettle: {error.filename or 'output'}: {error.strerror}", err=True)
        sys.exit(1)


ENVIRONMENT = {
    "FETTLE_SERVER": "--server: browse listeners, with blanks between them",
    "FETTLE_TOKEN": "--token-file: your token for them, or of `serve` alone",
    "FETTLE_RECORDS": "serve --records: folder for records of decisions",
    "KUBECONFIG": "--kubeconfig: files, as for kubectl",
    "HTTPS_PROXY": "the way to servers elsewhere; HTTP_PROXY, NO_PROXY too",
    "NO_COLOR": "if it is set, nothing is coloured",
}
"""What of the environment counts, for `--help` and docs/commands.md."""
SHELLS = {
    "bash": 'eval "$(fettle completion bash)"       # in ~/.bashrc',
    "zsh": 'eval "$(fettle completion zsh)"        # in ~/.zshrc, after compinit',
    "fish": "fettle completion fish | source        # in ~/.config/fish/config.fish",
}


def _epilog() -> str:
    width = max(map(len, ENVIRONMENT))
    lines = (f"  {name:{width}}  {about}" for name, about in ENVIRONMENT.items())
    return "\n".join(("\b\nEnvironment:", *lines))


@click.group(cls=_Group, epilog=_epilog(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fettle")
def main() -> None:
    """Place Kubernetes pods by device health."""


for _command in (*asking.COMMANDS, *setting_up.COMMANDS):
    main.add_command(_command)


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
@OUTPUT
@KUBECONFIG
@watched
def holds(node: str | None, output: str, kubeconfig: Path | None) -> None:
    """What is held, by whom, since when, until when, and whether the scheduler itself obeys."""
    from fettle.cli import holding

    holding.list_holds(node, output, kubeconfig)


def _explain(context: click.Context, _parameter: click.Parameter, rule: str | None) -> None:
    if rule is None:
        return
    from fettle.cli.linting import reports

    try:
        click.echo(reports.explained(rule))
    except _own_error() as error:
        raise click.BadParameter(str(error)) from error
    context.exit()


@main.command()
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option(
    "--explain",
    metavar="RULE",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Only say what this rule is about, such as FTL036. `fettle rules` lists all.",
)
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
    "--namespace",
    "-n",
    default="default",
    show_default=True,
    help="For objects without one. Without FILE, only this namespace is checked.",
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
    type=click.Choice(("never", "deny", "warn", "undecided")),
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
@click.option(
    "--docs",
    "site",
    default="",
    metavar="URL",
    help="Where your copy of these documents is (`make site`): SARIF links its rules to it.",
)
@click.option(
    "--report",
    is_flag=True,
    help="Without FILE: keep the findings in the cluster, too, as Reports or PolicyReports.",
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
    site: str,
    report: bool,
) -> None:
    """Find claims and workloads that can never work, in files, folders or standard input (-).

    Also checks rules files for health.rulesFile. With --cluster or --snapshot and no FILE, it
    checks the objects that are there.

    Exits with 0 if nothing was found, 1 on findings at or above --fail-on, 2 on bad input.
    """
    from fettle import logs
    from fettle.cli.linting import running

    if site and not site.startswith(("https://", "http://")):
        raise click.BadParameter(
            f"--docs: {site[:60]!r}: write a URL, such as https://docs.example.com/fettle"
        )
    reading = Reading(kubeconfig, context, acts_as, groups=groups)
    asked = reading if cluster or reading != Reading() else None
    if asked is not None and snapshot is not None:
        raise click.UsageError("--snapshot and the flags for a cluster are mutually exclusive.")
    if not files and asked is None and snapshot is None:
        raise click.UsageError(
            "Missing argument 'FILE...': name files or folders, or - for standard input; with "
            "--cluster or --snapshot and no FILE, what is there already is checked."
        )
    if report and (files or asked is None):
        raise click.UsageError("--report is for --cluster without FILE: it reports what is there.")
    is_given = click.get_current_context().get_parameter_source("namespace") is not _DEFAULT
    options = running.LintOptions(
        files,
        snapshot,
        asked,
        settings,
        namespace,
        strict,
        output,
        fail_on,
        skip_others,
        crds,
        site,
        namespace if is_given else "",
        report,
    )
    logs.configure("error")
    try:
        code = running.run(options)
    except _own_error() as error:
        click.echo(f"fettle: {error}", err=True)
        code = 2
    sys.exit(code)


_DEFAULT = click.core.ParameterSource.DEFAULT
_COMPLETIONS = "\n".join(f"  {line}" for line in SHELLS.values())


@main.command(
    epilog=f"\b\nFor good:\n{_COMPLETIONS}",
    help="Print what completes commands and flags in a shell.",
)
@click.argument("shell", type=click.Choice(tuple(SHELLS)))
def completion(shell: str) -> None:
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(main, {}, "fettle", "_FETTLE_COMPLETE").source())


@main.command()
@click.option("--serve", "stay", is_flag=True, help="Keep running and print what to try.")
def demo(stay: bool) -> None:
    """Fettle on an embedded fleet with real faults: no cluster, no network."""
    from fettle.cli.demo import story

    sys.exit(story.run(stay=stay))


_SHORT = {
    "certificates": "Certificates that the programs calling Fettle need",
    "completion": "Completion for bash, zsh and fish",
    "decisions": "What Fettle decided, and what became of the pods",
    "demo": "Fettle on an embedded fleet with real faults",
    "devices": "Devices that are not sound, and why",
    "explain": "Why: a pod, node, device, policy or reason code",
    "hold": "Keep new pods off a node or a device",
    "holds": "What is held, by whom, and until when",
    "lint": "Mistakes in claims, workloads and policies in files",
    "pods": "Pods on devices, and whether they are at risk",
    "release": "End a hold",
    "report": "What Fettle kept from which devices",
    "rules": "Rules: those of `fettle lint`, and files of yours",
    "scheduler-config": "Fettle's entry in kube-scheduler's configuration",
    "serve": "Run the extender, the webhook and the steward",
    "snapshot": "A folder for a bug report",
    "status": "The fleet in a few lines; with --wait, for scripts",
    "top": "Devices in use and bad by node, or by pod",
    "ui": "The page of your cluster in your browser",
    "webhooks": "Webhook configurations for your cluster",
    "what-if": "Where a file's pods could go; a pod, if one thing changed",
    "withdraw": "Take back what Fettle wrote, before it goes",
}
"""Each command in so many words as fit beside it."""
for _name, _about in _SHORT.items():
    main.commands[_name].short_help = _about
