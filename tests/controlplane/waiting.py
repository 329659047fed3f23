"""Waiting for something to come true, with a message that says what was last seen if it does
not. An error of the API counts as something seen, so that a test may wait across a restart."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiohttp

from tests.controlplane.api import Api, ApiError, Object

T = TypeVar("T")

PATIENCE_S = 60.0
"""More than anything takes on a busy machine; schedulers look at pods again by themselves after
minutes only."""


class NotInTime(AssertionError):
    """What was waited for did not come true."""


async def wait_until(
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], Any] = bool,
    *,
    what: str,
    timeout_s: float = PATIENCE_S,
    every_s: float = 0.05,
) -> T:
    """Look again and again; the first look for which it holds is the result. What an answer does
    not have yet (KeyError) may come."""
    deadline = time.monotonic() + timeout_s
    last = "nothing"
    while True:
        try:
            seen = await look()
        except (ApiError, aiohttp.ClientError, TimeoutError, OSError, KeyError) as error:
            last = repr(error)
        else:
            if holds(seen):
                return seen
            last = _brief(seen)
        if time.monotonic() > deadline:
            raise NotInTime(f"not within {timeout_s:g} s: {what}; last seen: {last}")
        await asyncio.sleep(every_s)


async def bound(
    api: Api, pod: str, *, namespace: str = "default", timeout_s: float = PATIENCE_S
) -> str:
    """The name of the node that the pod was bound to."""
    seen = await wait_until(
        lambda: api.get("pods", pod, namespace),
        node_of,
        what=f"pod {namespace}/{pod} is bound",
        timeout_s=timeout_s,
    )
    return str(node_of(seen))


async def refused(
    api: Api,
    pod: str,
    *,
    namespace: str = "default",
    timeout_s: float = PATIENCE_S,
    saying: str = "",
) -> str:
    """The scheduler's message once it could not place the pod; with `saying`, once it says that."""
    seen = await wait_until(
        lambda: api.get("pods", pod, namespace),
        lambda p: (m := refusal_of(p)) and saying in m,
        what=f"pod {namespace}/{pod} is refused" + (f" saying {saying!r}" if saying else ""),
        timeout_s=timeout_s,
    )
    return refusal_of(seen)


async def stays_pending(api: Api, *pods: str, for_s: float, namespace: str = "default") -> None:
    """Fails as soon as one of the pods is bound."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        for pod in pods:
            if node := node_of(await api.get("pods", pod, namespace)):
                raise AssertionError(f"pod {namespace}/{pod} was bound to {node}, expected pending")
        await asyncio.sleep(0.05)


async def in_phase(
    api: Api, pod: str, phase: str, *, namespace: str = "default", timeout_s: float = PATIENCE_S
) -> Object:
    return await wait_until(
        lambda: api.get("pods", pod, namespace),
        lambda p: p["status"].get("phase") == phase,
        what=f"pod {namespace}/{pod} is {phase}",
        timeout_s=timeout_s,
    )


async def gone(
    api: Api, resource: str, name: str, *, namespace: str = "default", timeout_s: float = PATIENCE_S
) -> None:
    await wait_until(
        lambda: api.find(resource, name, namespace),
        lambda found: found is None,
        what=f"{resource} {name} is gone",
        timeout_s=timeout_s,
    )


def node_of(pod: Object) -> str | None:
    node: str | None = pod["spec"].get("nodeName")
    return node


def condition(of: Object, kind: str) -> Object:
    """The condition of that type, empty when there is none."""
    for one in of.get("status", {}).get("conditions") or []:
        if one["type"] == kind:
            return dict(one)
    return {}


def refusal_of(pod: Object) -> str:
    scheduled = condition(pod, "PodScheduled")
    return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""


def _brief(seen: object) -> str:
    shown = seen
    if isinstance(seen, dict) and "status" in seen:
        node = seen.get("spec", {}).get("nodeName")
        shown = {"node": node, "status": seen["status"]}
    try:
        return json.dumps(shown, default=str)[:2000]
    except (TypeError, ValueError):
        return repr(shown)[:2000]
