"""`fettle snapshot`: the cluster as Fettle reads it, in a folder that `serve --snapshot` and `lint
--snapshot` read: for a bug report. Only kinds and fields of its own structs are written, so there
is no Secret, no environment, no command line and no image in it.
"""

import asyncio
import hashlib
import json
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from fettle import __version__
from fettle.api import core, kinds
from fettle.api.kinds import EVENTS, KINDS, Kind
from fettle.cli.listing import objects
from fettle.cli.sources import Reading
from fettle.client import Chosen, Session, server_version
from fettle.health import SignalRules, load_rules
from fettle.model import BadInput, ClusterError, FettleError, Forbidden

_OWN = "fettle.dev/"
_NAMED = (
    *(kinds.NODE, kinds.NAMESPACE, kinds.POD, kinds.CLAIM, kinds.TEMPLATE, kinds.SLICE),
    *(kinds.TAINT_RULE, kinds.DEVICE_HEALTH),
)
"""Kinds whose names are hashed. Classes and policies say what is meant."""
_WELL_KNOWN = frozenset(("default", "kube-system", "kube-public", "kube-node-lease"))
_AS_IT_IS = frozenset(
    (
        *("apiVersion", "kind", "type", "status", "reason", "operator", "effect", "key", "phase"),
        *("driver", "deviceClassName", "health", "allocationMode", "resourceVersion"),
    )
)
"""Fields whose values are words of Kubernetes, not names."""
_ABOUT = "ABOUT.txt"
_WITHIN = "-."
_MOST_PARTS = 40
"""Of a word; a name has at most 253 letters, and few of these parts."""


def take(reading: Reading, folder: Path, *, hashes: bool) -> None:
    """Write the snapshot; says what is in it. Raises FettleError."""
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty: name a folder that is new")
    found, notes, version = asyncio.run(_read(reading))
    if hashes:
        found = hashed(found, secrets.token_bytes(16))
    folder.mkdir(parents=True, exist_ok=True)
    for plural, items in found.items():
        listed = {"apiVersion": "v1", "kind": "List", "items": items}  # if empty: there are none
        text = json.dumps(listed, indent=1, ensure_ascii=False)
        (folder / f"{plural}.json").write_text(text + "\n", encoding="utf-8")
    counts = [f"{len(items)} {plural}" for plural, items in found.items() if items]
    about = [
        f"Fettle {__version__}, Kubernetes {version or 'of unknown version'}",
        *(counts or ["nothing was found"]),
        *notes,
        "names are hashed" if hashes else "names are as they are: --hash-names hashes them",
    ]
    (folder / _ABOUT).write_text("\n".join(about) + "\n", encoding="utf-8")
    click.echo(f"{folder}: {', '.join(counts) or 'nothing was found'}")
    for note in notes:
        click.echo(f"fettle: {note}", err=True)
    click.echo(
        f"look through it before you send it; what reads it: fettle devices --snapshot {folder}"
    )


async def _read(reading: Reading) -> tuple[dict[str, list[Any]], list[str], str]:
    """Objects by the plural of their kind, what could not be read, and Kubernetes' version."""
    chosen = Chosen(reading.context, reading.acts_as, reading.groups)
    rules = load_rules(None)
    found: dict[str, list[Any]] = {}
    notes: list[str] = []
    async with await Session.open(reading.kubeconfig, chosen=chosen) as session:
        for kind in dict.fromkeys((*KINDS, *EVENTS)):
            items = found.setdefault(kind.plural, [])
            if sys.stderr.isatty():
                click.echo(f"\r\x1b[Kreading {kind.plural}", nl=False, err=True)
            try:
                async for one in objects(session, kind, kind.fields):
                    items.append(plain(kind, one, rules))
            except Forbidden:
                notes.append(f"you may not list {kind.plural}: they are not in it")
                found.pop(kind.plural)
        if len(notes) > len(KINDS):
            raise FettleError("you may list nothing that Fettle reads in this cluster")
        try:
            version = await server_version(session)
        except ClusterError:
            version = ""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
    return found, [*dict.fromkeys(notes)], version


def plain(kind: Kind, one: kinds.WireObject, rules: SignalRules) -> dict[str, Any]:
    """What is written of an object: the fields that Fettle reads, and of free text only what rules
    know."""
    told = msgspec.json.decode(msgspec.json.encode(one))
    told = {"apiVersion": kind.api_version, "kind": kind.name, **told}
    if isinstance(one, core.Node):
        kept = {k: v for k, v in (one.metadata.annotations or {}).items() if _tells(k, v, rules)}
        told["metadata"]["annotations"] = kept
        told.get("status", {}).pop("addresses", None)
    if isinstance(one, core.Pod):
        _without_words(told.get("status", {}), rules)
    return told


def _tells(key: str, value: str, rules: SignalRules) -> bool:
    return key.startswith(_OWN) or rules.annotation(key, value) is not None


def _without_words(status: dict[str, Any], rules: SignalRules) -> None:
    """A runtime writes command lines into what it says of containers."""
    for field in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(field) or ():
            for state in (container.get("state") or {}, container.get("lastState") or {}):
                for one in filter(None, state.values()):
                    if rules.said_of_start(one.get("message", "")) is None:
                        one.pop("message", None)
    if (said := status.get("message")) and rules.refusal(said) is None:
        del status["message"]


# --- names


def hashed(found: Mapping[str, list[Any]], salt: bytes) -> dict[str, list[Any]]:
    """The same with a hash for each name, wherever it stands as a word of its own. The same name
    has the same hash in one snapshot, and in no other."""
    names = {name for kind in _NAMED for one in found.get(kind.plural, ()) for name in _names(one)}
    names -= _WELL_KNOWN | {""}
    by_name = {name: f"n-{hashlib.sha256(salt + name.encode()).hexdigest()[:12]}" for name in names}
    return {plural: [_renamed(one, by_name) for one in items] for plural, items in found.items()}


def _names(one: Mapping[str, Any]) -> Iterator[str]:
    metadata = one["metadata"]
    yield from (metadata.get("name", ""), metadata.get("namespace", ""))
    yield metadata.get("generateName", "").rstrip("-.")
    yield from (owner.get("name", "") for owner in metadata.get("ownerReferences") or ())
    if (pool := (one.get("spec") or {}).get("pool")) and isinstance(pool, dict):
        yield pool.get("name", "")


def _renamed(value: Any, by_name: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _without_names(value, by_name)
        case list():
            return [_renamed(each, by_name) for each in value]
        case dict():
            return {
                key: each if key in _AS_IT_IS and isinstance(each, str) else _renamed(each, by_name)
                for key, each in value.items()
            }
    return value


def _without_names(text: str, by_name: Mapping[str, str]) -> str:
    parts: list[str] = []
    word = ""
    for letter in f"{text}\0":
        if letter.isascii() and (letter.isalnum() or letter in _WITHIN):
            word += letter
            continue
        parts += (_word_without(word, by_name), letter)
        word = ""
    return "".join(parts[:-1])


def _word_without(word: str, by_name: Mapping[str, str]) -> str:
    """The word may be a name, or have one in it, as pools and slices have their node's: the longest
    first. Plain words, such as a namespace `gpu`, stand in others by chance."""
    name = word.strip(_WITHIN)
    if name in by_name:
        return word.replace(name, by_name[name], 1)
    cuts = [0, *(at + 1 for at, letter in enumerate(word) if letter in _WITHIN), len(word) + 1]
    if len(cuts) > _MOST_PARTS:
        return word
    runs = sorted(
        ((a, b - 1) for x, a in enumerate(cuts) for b in cuts[x + 1 :]), key=lambda r: r[0] - r[1]
    )
    for begin, end in runs:
        part = word[begin:end]
        if part in by_name and not part.isalpha():
            before, after = word[:begin], word[end:]
            rest = _word_without(before, by_name), _word_without(after, by_name)
            return f"{rest[0]}{by_name[part]}{rest[1]}"
    return word
