"""`fettle hold`, `fettle release` and `fettle holds`: what operators take out of use, and why.

They talk to the API server with the operator's own kubeconfig, so they work without a Fettle. A
hold is recorded on its Node; what else is written makes the scheduler obey it too.
"""

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from fettle.api import core, kinds, resource
from fettle.cli.listing import objects
from fettle.cli.tables import console, is_plain, new_table, print_plain, readable
from fettle.client import Session
from fettle.dra import is_device_resource, units_of
from fettle.explain import is_held_by_rule, near, unit_called
from fettle.health import (
    describe_hold,
    hold_time,
    holds_on_devices,
    holds_on_node,
    in_force,
    name_of_held,
    one_line,
    written,
)
from fettle.model import (
    FURTHER_HOLD,
    HOLD,
    BadInput,
    ClusterError,
    DeviceId,
    Forbidden,
    Hold,
    Invalid,
    NodeId,
    NotFound,
    NotServed,
    Subject,
    UnitId,
    is_tainted_as_held,
)
from fettle.records import seconds_of
from fettle.steward import holding, taint_rules
from fettle.steward.holding import RawNode

_FEW = 8
_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_OBEYED = {True: "scheduler", False: "Fettle only"}

# The commands


def hold(where: str, reason: str, until: str | None, kubeconfig: Path | None) -> None:
    """Take a node, or a device or unit of it, out of use."""
    if not reason.strip():
        raise BadInput("--reason is empty: say why, for whoever finds the hold")
    ends = read_until(until, time.time()) if until is not None else math.inf
    for line in asyncio.run(begin_hold(where, reason, ends, kubeconfig)):
        click.echo(line)


def release(where: str, by: str | None, everybody: bool, kubeconfig: Path | None) -> None:
    """End holds on a node, or on a device or unit of it."""
    for line in asyncio.run(end_holds(where, by, everybody, kubeconfig)):
        click.echo(line)


def list_holds(node: str | None, output: str, kubeconfig: Path | None) -> None:
    """Print what is held, by whom, since and until when, and who obeys."""
    found = asyncio.run(find_holds(node, kubeconfig))
    if is_plain(output):
        print_plain([_plain(one) for one in found], output)
    elif found:
        _print_table(found)
    else:
        click.echo(f"nothing is held{f' on {node}' if node else ''}")


def read_until(text: str, now: float) -> float:
    """A duration such as 4h or 1d12h, or a time, in Unix seconds; raises BadInput.

    A time without an offset is in this machine's time zone.

    >>> read_until("4h", 1000.0)
    15400.0
    """
    try:
        try:
            ends = now + seconds_of(text)
        except BadInput:
            ends = datetime.fromisoformat(text).timestamp()
        shown = hold_time(ends)
    except (ValueError, OverflowError, OSError) as error:
        raise BadInput(
            f"--until {text!r} is neither a duration such as 4h or 1d12h, nor a time such as "
            "2026-05-01T18:00 or 2026-05-01T16:00Z"
        ) from error
    if ends <= now:
        raise BadInput(f"--until {text!r} is {shown}, which is past")
    return ends


# Holding and releasing


async def begin_hold(where: str, reason: str, until: float, kubeconfig: Path | None) -> list[str]:
    async with await Session.open(kubeconfig) as session:
        name, _, device = where.partition("/")
        node = await _node(session, name)
        subject = await _find(session, node, device) if device else NodeId(name)
        by, now = await _who(session), time.time()
        made = Hold(
            subject=subject,
            annotation=_key(subject, by),
            reason=reason.strip(),
            by=by,
            since=now,
            until=until,
        )
        said = await _change(session, name, {made.annotation: written(made)}, subject)
        obeyed = await _have_it_obeyed(session, subject) if device else said
        return [
            f"{where} is {describe_hold(made)}",
            *obeyed,
            f"Pods that are there stay; `kubectl drain {name}` evicts them."
            if isinstance(subject, NodeId)
            else "Pods that use it stay.",
        ]


async def _have_it_obeyed(session: Session, device: Subject) -> list[str]:
    if isinstance(device, UnitId):
        return [
            "Only Fettle obeys it, while the scheduler asks: a unit of a device plugin cannot be "
            "tainted. The kubelet chooses units by itself, so a pod for which enough others are "
            "left may still get this one; hold the node to be sure.",
            "No API object lists the units of a node: check that the name is right.",
        ]
    assert isinstance(device, DeviceId)
    name = holding.rule_name(device)
    try:
        served = await holding.create_rule(session, device)
    except ClusterError as error:
        return [_only_fettle(str(error))]
    if not served:
        return [_only_fettle("this cluster serves no DeviceTaintRules")]
    return [f"The scheduler obeys it: DeviceTaintRule {name} (taint {HOLD})."]


def _only_fettle(why: str) -> str:
    return (
        f"Only Fettle obeys it, while the scheduler asks: {why}. With the rights in "
        "deploy/rbac/optional/hold-taints.yaml, Fettle's steward sets the taint."
    )


async def _change(
    session: Session, name: str, annotations: dict[str, str | None], subject: Subject
) -> list[str]:
    """Patch annotations of a Node, and the taint that goes with them. Says who obeys the hold."""
    try:
        node, _ = await holding.change_node(session, name, lambda node: _patch(node, annotations))
    except (Forbidden, Invalid) as refused:
        await holding.change_node(
            session, name, lambda node: _patch(node, annotations, tainting=False)
        )
        return [_only_fettle(str(refused))]
    if isinstance(subject, NodeId) and holding.is_node_held(node, time.time()):
        return [f"The scheduler obeys it: taint {HOLD} on the node."]
    return []


def _patch(
    node: RawNode, annotations: dict[str, str | None], *, tainting: bool = True
) -> dict[str, Any]:
    """With the holds that are over removed, and the taints as they should be then."""
    now = time.time()
    holds = holds_on_node(holding.metadata_of(node))
    over = {one.annotation: None for one in holds if one.until <= now}
    changes = {**over, **annotations}
    left = {**(node["metadata"].get("annotations") or {}), **changes}
    metadata = {
        **node["metadata"],
        "annotations": {key: value for key, value in left.items() if value is not None},
    }
    changed = {**node, "metadata": metadata}
    taints = holding.taints_changed(changed, held=holding.is_node_held(changed, now))
    patch: dict[str, Any] = {"metadata": {"annotations": changes}}
    if tainting and taints is not None:
        patch["spec"] = {"taints": taints}
    return patch


async def end_holds(
    where: str, by: str | None, everybody: bool, kubeconfig: Path | None
) -> list[str]:
    async with await Session.open(kubeconfig) as session:
        name, _, device = where.partition("/")
        node = await _node(session, name)
        holds = in_force(holds_on_node(node.metadata), time.time())
        subject = _named(where, device, holds) if device else NodeId(name)
        on_it = [one for one in holds if one.subject == subject]
        if subject is None or not on_it:
            raise BadInput(f"{where} is not held{_held_instead(name, holds)}")
        me = by or await _who(session)
        chosen = [one for one in on_it if everybody or one.by in ((by,) if by else (me, ""))]
        if not chosen:
            others = ", ".join(sorted({one.by or "an unnamed operator" for one in on_it}))
            raise BadInput(
                f"{where} is not held by {me}, but by {others}: pass --by NAME to release what "
                "somebody else holds, or --all"
            )
        await _change(session, name, {one.annotation: None for one in chosen}, subject)
        lines = [f"{where} is no longer {describe_hold(one)}" for one in chosen]
        left = [one for one in on_it if one not in chosen]
        lines += [f"{where} is still {describe_hold(one)}" for one in left]
        if isinstance(subject, DeviceId) and not left:
            lines += await _remove_rule(session, holding.rule_name(subject))
        return lines


async def _remove_rule(session: Session, name: str) -> list[str]:
    try:
        await taint_rules.delete_rule(session, name)
    except ClusterError as error:
        return [f"DeviceTaintRule {name} is left for Fettle's steward to remove: {error}"]
    return []


def _held_instead(name: str, holds: Iterable[Hold]) -> str:
    held = ", ".join(sorted({where_held(name, one.subject) for one in holds}))
    return f"; held there: {held}" if held else ""


def where_held(node: str, subject: Subject) -> str:
    """As `fettle release` takes it."""
    return node if isinstance(subject, NodeId) else f"{node}/{name_of_held(subject)}"


def _key(subject: Subject, by: str) -> str:
    """One annotation for each subject and operator: who holds it again replaces their own hold."""
    return FURTHER_HOLD + hashlib.sha256(f"{subject}\n{by}".encode()).hexdigest()[:10]


async def _who(session: Session) -> str:
    """The operator, as the API server knows them, else as the kubeconfig calls them."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = json.loads(await session.create(_REVIEW, review))
        return one_line(answer["status"]["userInfo"]["username"])
    except (NotServed, NotFound, Forbidden, KeyError, TypeError, ValueError):
        return one_line(session.user)


# Which node and device is meant


async def _node(session: Session, name: str) -> core.Node:
    if not name:
        raise BadInput("write NODE or NODE/DEVICE, such as gpu-node-1/gpu-3")
    try:
        found = kinds.NODE.decode(await session.get(kinds.NODE.path_of(name)))
        assert isinstance(found, core.Node)
        return found
    except NotFound:
        names = [one.metadata.name async for one in objects(session, kinds.NODE)]
        raise BadInput(f"there is no node {name}{near(name, names)}") from None


async def _find(session: Session, node: core.Node, given: str) -> Subject:
    """The device or unit that is meant; raises BadInput."""
    name = node.metadata.name
    published = await _devices(session, name)
    matching = [one for one in published if given in _forms(one)]
    if len(matching) > 1:
        forms = ", ".join(map(str, matching))
        raise BadInput(f"several devices of {name} are called {given!r}: write one of {forms}")
    if matching:
        return matching[0]
    status = node.status
    capacity = (status.capacity if status is not None else None) or {}
    units = {r: units_of(q) for r, q in capacity.items() if is_device_resource(r) and units_of(q)}
    if (unit := unit_called(name, given, units)) is not None:
        return unit
    names = [one.device for one in published]
    known = [*dict.fromkeys(names), *(f"units of {r}, such as {r}/index:0" for r in sorted(units))]
    some = ", ".join(known[:_FEW]) + (", …" if len(known) > _FEW else "")
    has = f"; it has {some}" if known else "; it has no devices"
    raise BadInput(f"node {name} has no device {given!r}{near(given, names)}{has}")


def _forms(device: DeviceId) -> tuple[str, str, str]:
    return device.device, f"{device.pool}/{device.device}", str(device)


def _named(where: str, device: str, holds: Iterable[Hold]) -> Subject | None:
    """The held device that is meant, also if it is no longer there; None if it is not held."""
    found = {
        one.subject
        for one in holds
        if (isinstance(one.subject, DeviceId) and device in _forms(one.subject))
        or (isinstance(one.subject, UnitId) and device in _unit_forms(one.subject))
    }
    if len(found) > 1:
        names = ", ".join(sorted(map(name_of_held, found)))
        raise BadInput(f"{where} may be several that are held: write one of {names}")
    return found.pop() if found else None


def _unit_forms(unit: UnitId) -> tuple[str, ...]:
    names = (unit.unit, unit.unit.removeprefix("index:"))
    return (*names, *(f"{unit.resource}{gap}{name}" for gap in "/ " for name in names))


async def _devices(session: Session, node: str) -> list[DeviceId]:
    """The node's own devices."""
    found: list[DeviceId] = []
    async for one in objects(session, kinds.SLICE, f"spec.nodeName={node}"):
        assert isinstance(one, resource.ResourceSlice)
        found += _ids(one)
    return list(dict.fromkeys(found))


def _ids(slice_: resource.ResourceSlice) -> list[DeviceId]:
    pool = slice_.spec.pool.name
    return [DeviceId(slice_.spec.driver, pool, d.name) for d in slice_.spec.devices or ()]


# What is held


class _Listed(NamedTuple):
    """A hold, the node that it is on ("" for a device that a ResourceSlice holds), the object that
    records it, and whether the scheduler itself obeys it."""

    hold: Hold
    node: str
    recorded_on: str
    obeyed: bool


async def find_holds(node: str | None, kubeconfig: Path | None) -> list[_Listed]:
    now, found = time.time(), []
    async with await Session.open(kubeconfig) as session:
        if node:
            await _node(session, node)
        rules = [
            rule
            async for rule in objects(session, kinds.TAINT_RULE)
            if isinstance(rule, resource.DeviceTaintRule)
        ]
        async for one in objects(session, kinds.NODE, f"metadata.name={node}" if node else ""):
            assert isinstance(one, core.Node)
            name, taints = one.metadata.name, (one.spec.taints if one.spec else None) or ()
            for held in in_force(holds_on_node(one.metadata), now):
                obeyed = _is_obeyed(held.subject, rules) or (
                    isinstance(held.subject, NodeId) and is_tainted_as_held(taints)
                )
                found.append(_Listed(held, name, f"Node {name}", obeyed))
        async for one in objects(session, kinds.SLICE, f"spec.nodeName={node}" if node else ""):
            assert isinstance(one, resource.ResourceSlice)
            recorded_on = f"ResourceSlice {one.metadata.name}"
            for held in in_force(holds_on_devices(one.metadata, _ids(one)), now):
                obeyed = _is_obeyed(held.subject, rules)
                found.append(_Listed(held, one.spec.node_name or "", recorded_on, obeyed))
    return found


def _is_obeyed(subject: Subject, rules: Iterable[resource.DeviceTaintRule]) -> bool:
    return isinstance(subject, DeviceId) and is_held_by_rule(subject, rules)


def _plain(one: _Listed) -> dict[str, Any]:
    held = one.hold
    return {
        "node": one.node,
        "device": None if isinstance(held.subject, NodeId) else name_of_held(held.subject),
        "reason": held.reason,
        "by": held.by or None,
        "since": hold_time(held.since),
        "until": hold_time(held.until),
        "schedulerObeys": one.obeyed,
        "recordedOn": one.recorded_on,
        "annotation": held.annotation,
    }


def _print_table(found: Iterable[_Listed]) -> None:
    from rich.markup import escape

    table = new_table("HELD", "BY", "SINCE", "UNTIL", "OBEYED BY", "REASON")
    for one in found:
        plain = readable(_plain(one))
        where = f"{one.node}/{plain['device']}" if plain["device"] else one.node
        times = (plain["since"] or "–", plain["until"] or "–")
        cells = (where, plain["by"] or "–", *times, _OBEYED[one.obeyed], plain["reason"])
        table.add_row(*map(escape, cells))
    console().print(table)
