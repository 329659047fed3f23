"""What strangers do to a listener, and a tenant with the role `edit` to the API, for seconds."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

from tests.controlplane import objects
from tests.controlplane.api import Api, Object
from tests.controlplane.test_tenants import event
from tests.hostile.texts import repeated

MEBIBYTE = 2**20
PIECES = ("x", "1%,,", "NVRM: Xid (PCI:0000:3b:00): 79, ", "/dev/nvidia", "Claim ", "(a", "{[")
NOWHERE = {"no": "where"}
ENTERS = b"POST /filter HTTP/1.1\r\nHost: x\r\n"
CHUNKED = ENTERS + b"Transfer-Encoding: chunked\r\n\r\n"


async def _hold(port: int, source: str, begun: bytes, dribble: bytes, for_s: float) -> None:
    """One connection that begins with this, and goes on with a bit now and then."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(for_s):
            address = (source, 0)
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=address)
            try:
                writer.write(begun)
                while True:
                    await writer.drain()
                    await asyncio.sleep(0.5)
                    writer.write(dribble)
            finally:
                writer.transport.abort()


async def _ask_on(port: int, question: bytes, for_s: float) -> None:
    """Ask, and ask again once there is an answer."""
    with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        async with asyncio.timeout(for_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                while True:
                    writer.write(question)
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                    await reader.readexactly(int(length))
            finally:
                writer.transport.abort()


async def _many(count: int, one: Callable[[int], Awaitable[None]]) -> None:
    await asyncio.gather(*(one(number) for number in range(count)))


async def silent(port: int, random: Random) -> str:
    """More connections than a listener keeps, of one address or of many, that say nothing."""
    count, spread = random.choice((50, 400, 1200)), random.choice((1, 200))
    sources = [f"127.0.{random.randrange(1, 250)}.{i + 1}" for i in range(spread)]
    await _many(count, lambda i: _hold(port, sources[i % spread], b"", b"", 6))
    return f"{count} silent connections of {spread} addresses"


async def half(port: int, random: Random) -> str:
    """Heads and bodies that never end."""
    body = b"Content-Length: %d\r\n\r\n" % (15 * MEBIBYTE) + b"[" * MEBIBYTE
    begun = random.choice((ENTERS + b"X-Slow: ", ENTERS + body, b"\x16\x03\x01\x02\x00"))
    count = random.choice((5, 40))
    await _many(count, lambda _: _hold(port, "127.0.0.1", begun, b"a", 10))
    return f"{count} connections with half of {begun[:60]!r}"


async def endless(port: int, random: Random) -> str:
    """Trailers, extensions of chunks and heads that go on and on."""
    trailer = CHUNKED + b"2\r\n{}\r\n0\r\nX-T: "
    begun = random.choice((trailer, CHUNKED + b"1;x=", ENTERS + b"X-H: "))
    await _many(3, lambda _: _hold(port, "127.0.0.1", begun, b"a" * 65536, 5))
    return f"endless {begun[-12:]!r}"


async def nonsense(port: int, random: Random) -> str:
    """Bytes that are no HTTP, and requests that are no questions."""
    deep = b"[" * 100_000
    asked = (
        random.randbytes(5000),
        ENTERS + b"Content-Length: 2\r\n\r\n{}",
        ENTERS + b"Content-Length: %d\r\n\r\n" % len(deep) + deep,
        b"GET /explain?pod=%00/..%2f HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 200,
    )
    begun = random.choice(asked)
    await _many(20, lambda _: _hold(port, "127.0.0.1", begun, b"", 2))
    return f"nonsense {begun[:40]!r}"


async def pressing(port: int, random: Random) -> str:
    """Questions that anybody may ask, one after the other without a pause."""
    asked = random.choice((b"GET /metrics", b"GET /livez", b"POST /validate"))
    begun = asked + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
    count = random.choice((1, 100))
    await _many(count, lambda _: _ask_on(port, begun, 5))
    return f"{count} connections that ask {asked!r}"


async def ahead(port: int, random: Random) -> str:
    """Requests without an end that wait for no reply."""
    asked = random.choice((b"GET /livez HTTP/1.1\r\n", ENTERS + b"Content-Length: 2\r\n"))
    body = b"" if asked.startswith(b"GET") else b"{}"
    begun = (asked + b"Host: 127.0.0.1\r\n\r\n" + body) * 2000
    await _many(3, lambda _: _hold(port, "127.0.0.1", begun, begun, 5))
    return f"requests ahead: {asked!r}"


async def packed(port: int, random: Random) -> str:
    """Bodies that grow a thousandfold if somebody inflates them."""
    zeros = gzip.compress(bytes(8 * MEBIBYTE))[:-8]
    head = b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\n"
    begun = head + b"Content-Length: %d\r\n\r\n" % (len(zeros) + 8) + zeros
    await _many(60, lambda _: _hold(port, "127.0.0.1", begun, b"", 5))
    return "60 packed bodies"


UNFINISHED = (silent, half, endless, nonsense)
"""What takes connections and memory."""
QUESTIONS = (pressing, ahead, packed)
"""What takes time."""
AT_LISTENERS = (*UNFINISHED, *QUESTIONS)


# --- a tenant


def bombs(random: Random, number: int) -> list[Object]:
    """Objects of the namespace `evil`."""
    kind = random.choice(("event", "pods", "claim", "owner", "policy"))
    name = f"evil-{number}"
    if kind == "event":
        return [event(repeated(random.choice(PIECES), 20_000)) for _ in range(10)]
    if kind == "pods":
        notes = {"note": "x" * 200_000, "fettle.dev/policy": "\x00{"}
        return [_pod(f"{name}-{i}", annotations=notes) for i in range(10)]
    if kind == "claim":
        costly = "device.attributes['gpu.nvidia.com'].productName.matches('" + "(a*)*" * 20
        selectors = [f"{costly}b{number}{i}')" for i in range(8)]
        spec = objects.claim_spec(selectors=selectors)
        claims = {"gpu": name}
        return [objects.claim(name, spec, namespace="evil"), _pod(f"{name}-p", claims=claims)]
    made = _pod(name)
    if kind == "policy":
        made["metadata"]["annotations"] = {"fettle.dev/policy": "training", "fettle.dev/hold": "x"}
        return [made]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "uid": name, "controller": True}
    made["metadata"]["ownerReferences"] = [{**reference, "name": "../../victim/jobs/backup"}]
    return [made]


def _pod(name: str, **template: object) -> Object:
    needs = {} if "claims" in template else {"gpus": 1}
    return objects.pod(name, namespace="evil", node_selector=NOWHERE, **needs, **template)


async def clean(api: Api) -> None:
    """Nothing of the tenant's is left."""
    for resource in ("pods", "resourceclaims"):
        for one in await api.list(resource, "evil"):
            await api.delete(resource, one["metadata"]["name"], "evil", grace_s=0)


# --- odd objects, which an administrator, a monitor or a newer version writes


ODD_KEYS = (
    "fettle.dev/repaired",
    "fettle.dev/repaired-x",
    "fettle.dev/health-reason",
    "hami.io/node-nvidia-register",
    "dgxc.nvidia.com/health",
)


def odd_node(random: Random) -> Object:
    """A patch of a Node's metadata."""
    odd = ("", "yes", "9999-12-31T23:59:59Z", "-1", '{"at": 1e400}', "[" * 5000, '{"until": 12}')
    return {"metadata": {"annotations": {random.choice(ODD_KEYS): random.choice(odd)}}}


def odd_condition(random: Random) -> Object:
    kind = random.choice(("GpuXidWatch", "AcceleratedHardwareReady", "FutureWatch" * 20))
    message = repeated(random.choice(PIECES), 20_000)
    at = random.choice(("1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"))
    return {**objects.node_condition(kind, "Unknown", "Odd", message), "lastTransitionTime": at}


def odd_slice(random: Random, generation: int) -> Object:
    """A node's slice of a version to come: fields that nobody knows, values of all types."""
    values = ({"version": "1.0.0-rc.1"}, {"string": "é" * 30}, {"int": -(2**63)}, {"bool": True})
    devices = objects.gpu_devices(4)
    for device in devices:
        device["attributes"] |= {"odd": random.choice(values)}
        device["future"] = {"nested": [1, None]}
    return objects.resource_slice("dra-3", devices, generation=generation)


def future_definition(definition: Object) -> Object:
    """The definition of a custom resource whose next version lets anything through."""
    future: Object = json.loads(json.dumps(definition))
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for version in future["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": anything}
    return future


def future_policy(random: Random, number: int) -> Object:
    wrong: tuple[object, ...] = (
        {"minScore": "high"},
        {"mode": 7},
        "text",
        [1],
        {"placement": None, "next": {}},
        None,
    )
    return {
        "apiVersion": "fettle.dev/v1alpha1",
        "kind": "DevicePolicy",
        "metadata": {"name": f"future-{number}"},
        "spec": random.choice(wrong),
    }
