"""`fettle withdraw`: takes back what Fettle wrote about others' objects, before it is uninstalled.
First nobody asks the webhook any more. Then the steward takes back its marks, which only it knows
all of: its settings tell it to, and it is awaited.

Entries in a scheduler's configuration, and holds, are people's: they are said, and left. So are
Kueue's AdmissionChecks that Fettle answers; while there is one, nothing is taken back.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from fettle.api import api_path, core, kinds, kueue
from fettle.api.kinds import WEBHOOK_CONFIGURATIONS
from fettle.cli.listing import objects
from fettle.client import Session, decoded
from fettle.config import Settings
from fettle.health import holds_on_node
from fettle.model import (
    CORDONED,
    DEVICE_FAILED,
    DEVICES_SOUND,
    HEALTH,
    HEALTH_OF,
    HEALTH_REASON,
    FettleError,
    Forbidden,
    NotFound,
)
from fettle.records import seconds_of
from fettle.steward import HEALTH_RULES, SOUND_DEVICES

EVERY_S = 2.0
SETTINGS = "fettle"
"""The ConfigMap of the steward's settings."""
FILE = "settings.yaml"
MOST_SAID = 10
_RUNNING = "status.phase!=Failed,status.phase!=Succeeded"


class _ConfigMap(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


def withdraw(within: str, namespace: str, kubeconfig: Path | None) -> int:
    """Returns the exit status: 0 once nothing of Fettle is on others' objects, 1 if something is
    after `within` or Kueue waits for Fettle. Raises FettleError."""
    return asyncio.run(_withdraw(seconds_of(within), namespace, kubeconfig))


async def _withdraw(within_s: float, namespace: str, kubeconfig: Path | None) -> int:
    until = time.monotonic() + within_s
    async with await Session.open(kubeconfig) as session:
        if checks := await _answered_for_kueue(session):
            _say("is answered by Fettle alone", checks)
            click.echo(
                "fettle: nothing is taken back, or what Kueue queues with it would wait for ever. "
                "Take it out of all ClusterQueues and delete it, then try again",
                err=True,
            )
            return 1
        await _ask_no_webhook(session)
        if left := await _marked(session):
            await _observe(session, namespace)
        while left and time.monotonic() < until:
            await asyncio.sleep(min(EVERY_S, max(0.0, until - time.monotonic())))
            left = await _marked(session)
        held = [name async for name in _held(session)]
    _say("is still marked by Fettle", left)
    _say("is held, and keeps its taint: `fettle release` ends that", held)
    if left:
        click.echo(
            "fettle: the steward has not taken back all: does it run, and may it write? "
            "Its /readyz?verbose says what it cannot do",
            err=True,
        )
    return 1 if left else 0


async def _answered_for_kueue(session: Session) -> list[str]:
    """Kueue's AdmissionChecks that nobody would answer any more, where it may list them."""
    found = []
    with suppress(Forbidden):
        async for check in objects(session, kinds.ADMISSION_CHECK):
            assert isinstance(check, kueue.AdmissionCheck)
            if check.spec.controller_name == SOUND_DEVICES:
                found.append(f"AdmissionCheck {check.metadata.name}")
    return found


async def _ask_no_webhook(session: Session) -> None:
    name = Settings().webhook.configuration
    for kind in WEBHOOK_CONFIGURATIONS:
        with suppress(NotFound):
            await session.delete(kind.path_of(name))
            click.echo(f"{kind.name} {name} is deleted")


async def _observe(session: Session, namespace: str) -> None:
    """Have the steward write nothing: the mode of a policy goes before that of the settings, and
    `dryRun` before all."""
    path = api_path("v1", "configmaps", namespace=namespace, name=SETTINGS)
    try:
        stored = decoded(await session.get(path), _ConfigMap, f"ConfigMap {namespace}/{SETTINGS}")
        text = _observing(stored.data.get(FILE, ""))
    except NotFound as error:
        raise FettleError(
            f"there is no ConfigMap {namespace}/{SETTINGS} with the steward's settings: set `mode: "
            "observe` and `steward: {dryRun: true}` yourself, or name its namespace by --namespace"
        ) from error
    if text != stored.data.get(FILE):
        await session.patch(path, {"data": {FILE: text}})
        click.echo(f"the steward is told to take back its marks, by ConfigMap {namespace}/fettle")


def _observing(text: str) -> str:
    try:
        settings: Any = yaml.safe_load(text) or {}
        wanted = {"mode": "observe", "steward": {**(settings.get("steward") or {}), "dryRun": True}}
        return text if settings | wanted == settings else yaml.safe_dump({**settings, **wanted})
    except (yaml.YAMLError, AttributeError, TypeError) as error:
        raise FettleError(f"the steward's settings cannot be read: {error}") from error


async def _marked(session: Session) -> list[str]:
    """What bears a mark of health."""
    found = [f"Node {node.metadata.name}" async for node in _nodes(session) if _is_marked(node)]
    rules = [rule.metadata.name async for rule in objects(session, kinds.TAINT_RULE)]
    found += [f"DeviceTaintRule {name}" for name in rules if name.startswith(HEALTH_RULES)]
    async for pod in objects(session, kinds.POD, _RUNNING):
        assert isinstance(pod, core.Pod)
        conditions = (pod.status.conditions if pod.status else None) or ()
        if any(one.type == DEVICE_FAILED for one in conditions):
            found.append(f"Pod {pod.metadata.key}")
    return found


def _is_marked(node: core.Node) -> bool:
    labels, annotations = node.metadata.labels or {}, node.metadata.annotations or {}
    conditions = (node.status.conditions if node.status else None) or ()
    return (
        any(label == HEALTH or label.startswith(HEALTH_OF) for label in labels)
        or not annotations.keys().isdisjoint((HEALTH_REASON, CORDONED))
        or any(one.type == DEVICES_SOUND for one in conditions)
    )


async def _held(session: Session) -> AsyncIterator[str]:
    with suppress(Forbidden):
        async for node in _nodes(session):
            if holds_on_node(node.metadata):
                yield f"Node {node.metadata.name}"


async def _nodes(session: Session) -> AsyncIterator[core.Node]:
    async for node in objects(session, kinds.NODE):
        assert isinstance(node, core.Node)
        yield node


def _say(what: str, names: list[str]) -> None:
    for name in names[:MOST_SAID]:
        click.echo(f"fettle: {name} {what}", err=True)
    if len(names) > MOST_SAID:
        click.echo(f"fettle: and {len(names) - MOST_SAID} more", err=True)
