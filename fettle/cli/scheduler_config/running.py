"""`fettle scheduler-config`: reads a configuration, and prints or writes what is to change in it,
with what people must know besides.
"""

import asyncio
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import click

from fettle.api import core, kinds
from fettle.cli.listing import objects
from fettle.cli.scheduler_config import merging
from fettle.cli.scheduler_config.entries import Wanted, can_be_listed
from fettle.cli.scheduler_config.yaml_edits import rewritten, value_of
from fettle.cli.sources import Reading
from fettle.client import Chosen, Session
from fettle.model import BadInput, SnapshotError

LARGEST_BYTES = 1024 * 1024
MOST_NAMED = 8
LONGEST_NAMED = 253
"""Characters. No name of a profile that works is longer."""


@dataclass(frozen=True)
class ConfigOptions:
    """`file`: None for a new configuration. `from_nodes`: whether Nodes say which resources there
    are, besides those that are named."""

    file: Path | None
    write: bool
    remove: bool
    wanted: Wanted
    scheduler_kubeconfig: str | None
    from_nodes: bool
    reading: Reading


def run(options: ConfigOptions) -> None:
    """Print the difference, or a new configuration whole; what to know goes to standard error.
    Raises FettleError, and OSError if the file cannot be read or written."""
    path = options.file
    before = merging.NEW if path is None else _read(path)
    wanted = _with_nodes(options)
    try:
        value = value_of(before)
        merging.check(value)
        after, notes = _changed(before, value, wanted, options)
    except (SnapshotError, BadInput) as error:
        raise type(error)(f"{path}: {error}" if path else str(error)) from error
    if path is None:
        click.echo(after, nl=False)
    elif after == before:
        notes = [f"{path} needs no change.", *notes]
    else:
        click.echo("".join(_difference(path, before, after)), nl=False)
        back = _leads_back(before, after, wanted)
        notes = [*notes, *_next_steps(path, options, removing_leads_back=back)]
        if options.write:
            _write(path, after)
    for note in notes:
        click.echo(_harmless(note), err=True)


def _harmless(note: str) -> str:
    """Without what would steer a terminal, as names in a configuration may."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in note)


def _read(path: Path) -> str:
    if path.is_dir():
        raise SnapshotError(
            f"{path} is a folder: give the file in it that kube-scheduler's flag --config names"
        )
    with path.open("rb") as file:
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise SnapshotError(f"{path}: it is larger than {LARGEST_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{path}: byte {error.start + 1} is no UTF-8") from error


def _with_nodes(options: ConfigOptions) -> Wanted:
    wanted = options.wanted
    if not options.from_nodes:
        return wanted
    found = asyncio.run(_resources(options.reading))
    named = dict.fromkeys((*(wanted.resources or ()), *found))
    return Wanted(wanted.enforces, wanted.url, tuple(named))


async def _resources(reading: Reading) -> list[str]:
    """The extended resources of all Nodes, in order of their names."""
    found: set[str] = set()
    chosen = Chosen(reading.context, reading.acts_as, reading.groups)
    async with await Session.open(reading.kubeconfig, chosen=chosen) as session:
        async for node in objects(session, kinds.NODE):
            if isinstance(node, core.Node) and node.status:
                found.update(node.status.capacity or (), node.status.allocatable or ())
    return sorted(name for name in found if can_be_listed(name))


def _changed(
    before: str, value: dict[str, Any], wanted: Wanted, options: ConfigOptions
) -> tuple[str, list[str]]:
    """The text after the change, and what to know of it."""
    if options.remove:
        return rewritten(before, merging.without_fettle(value, wanted.url)), []
    made = merging.with_fettle(value, wanted)
    if options.scheduler_kubeconfig:
        connection = value.get("clientConnection") or {}
        made["clientConnection"] = {**connection, "kubeconfig": options.scheduler_kubeconfig}
    return rewritten(before, made), list(_notes(value, wanted))


def _notes(value: dict[str, Any], wanted: Wanted) -> Iterator[str]:
    if wanted.resources == ():
        yield (
            "No Node has an extended resource now, so none is listed besides the marker: Fettle is "
            "asked about pods with claims alone. Name others with --resource."
        )
    taken = merging.taken_by_others(value, wanted)
    for name, url in islice(taken.items(), MOST_NAMED):
        yield (
            f"{name} is left out: the extender at {_short(url)} lists it, and kube-scheduler "
            "allows each resource one extender. Fettle is not asked about pods that request "
            "nothing else of its list."
        )
    if len(taken) > MOST_NAMED:
        yield f"So are {len(taken) - MOST_NAMED} more."
    names = merging.scheduler_names(value)
    if names != ["default-scheduler"]:
        named = ", ".join(map(_short, names[:MOST_NAMED]))
        left = len(names) - MOST_NAMED
        yield (
            f"Its profiles are {named}{f' and {left} more' if left > 0 else ''}. Tell Fettle's "
            "webhook and extender, in their settings: "
            f"`scheduler: {{names: [{named}{', …' if left > 0 else ''}]}}`."
        )
    if not value.get("extenders") and "PodTopologySpread" in str(value.get("profiles")):
        yield (
            "A profile configures PodTopologySpread. If this leaves it without default "
            "constraints, kube-scheduler places pods by OpportunisticBatching now, and no longer "
            "with an extender: docs/install-scheduler.md says what that costs."
        )


def _short(word: str) -> str:
    return word if len(word) <= LONGEST_NAMED else f"{word[:LONGEST_NAMED]}…"


def _leads_back(before: str, after: str, wanted: Wanted) -> bool:
    """Whether taking Fettle's entry out would leave the file as it was: not where there was an
    entry or an empty list, nor what was changed besides."""
    try:
        removed = merging.without_fettle(value_of(after), wanted.url)
        return rewritten(after, removed) == before
    except (SnapshotError, BadInput):
        return False


def _next_steps(path: Path, options: ConfigOptions, *, removing_leads_back: bool) -> list[str]:
    if not options.write:
        return [f"Nothing is written. To write it to {path}: the same command with --write."]
    back = (
        f"`fettle scheduler-config --in {path} --remove --write`"
        if removing_leads_back
        else f"keep the difference above, and `patch --reverse {path}` takes it"
    )
    return [
        f"{path} is written. Restart kube-scheduler: it reads the file only when it starts.",
        f"The way back: {back}; then restart it again.",
    ]


def _difference(path: Path, before: str, after: str) -> Iterator[str]:
    old, new = (list(StringIO(text, newline="\n")) for text in (before, after))
    for line in unified_diff(old, new, str(path), str(path)):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _write(path: Path, text: str) -> None:
    """Whole or not at all, with the owner and the rights that the file has."""
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        beside.touch(mode=0o600)
        beside.write_bytes(text.encode())
        shutil.copymode(path, beside)
        found = path.stat()
        os.chown(beside, found.st_uid, found.st_gid)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
