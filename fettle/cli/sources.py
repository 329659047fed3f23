"""Where the answer to a command comes from, as its flags say: a running Fettle, or the cluster
itself; and how to ask the same one again, as hints say it. Imports nothing heavy.
"""

import shlex
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import click
from click.core import ParameterSource


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


_CARRIED = frozenset(
    (
        *("--server", "--token-file", "--kubeconfig", "--context", "--as", "--as-group"),
        *("--snapshot", "--settings"),
    )
)
"""Flags that say whom or what to ask, as whom, and by which settings."""
_BEGINS = "`fettle "


def program() -> str:
    """What to type for this program in a shell that was started in the same folder."""
    begun = Path(sys.argv[0])
    if begun.name == "kubectl-fettle":
        return "kubectl fettle"
    is_module = begun.parts[-2:] == ("fettle", "__main__.py")
    if shutil.which("fettle") or not (is_module or begun.name == "fettle"):
        return "fettle"
    return f"{shlex.quote(sys.executable)} -m fettle" if is_module else shlex.quote(str(begun))


def typed(sentence: str) -> str:
    """A sentence in which each command of ours that it names between backquotes can be typed as it
    stands: it has the flags of this call that say whom to ask. Only for showing."""
    call = click.get_current_context(silent=True)
    if call is None or _BEGINS not in sentence:
        return sentence
    before, *others = sentence.split(_BEGINS)
    shown = [before]
    for one in others:
        command, ends, after = one.partition("`")
        more = _flags(call, command) if ends else None
        if more is None:  # it is none of ours
            shown.append(f"{_BEGINS}{one}")
        else:
            shown.append(f"`{' '.join((program(), command, *more))}`{after}")
    return "".join(shown)


def _flags(call: click.Context, command: str) -> list[str] | None:
    """Those of this call that the command takes, too; None if there is no such command."""
    found: click.Command | None = call.find_root().command
    for word in command.split():
        if not isinstance(found, click.Group):
            break
        found = found.commands.get(word)
    if found is None or isinstance(found, click.Group):
        return None
    known = {option for each in found.params for option in each.opts}
    given: list[str] = []
    for flag in call.command.params:
        (option,) = {*flag.opts} & _CARRIED or ("",)
        if option in known and _is_typed(call, flag):
            values = call.params.get(flag.name or "", call.meta.get(option))
            several = values if isinstance(values, tuple) else (values,)
            given += (f"{option} {shlex.quote(str(value))}" for value in several)
    return given


def _is_typed(call: click.Context, flag: click.Parameter) -> bool:
    return call.get_parameter_source(flag.name or "") is ParameterSource.COMMANDLINE
