"""Asks the extender all the time as kube-scheduler does, from a process of its own so that nothing
else here slows it down: `python -m tests.soak.asking PORT`. It writes a line of JSON a call."""

from __future__ import annotations

import http.client
import itertools
import json
import sys
import time
from collections.abc import Iterator
from uuid import uuid4

import msgspec

from tests.controlplane import objects
from tests.soak.house import DRA_NODES, GPU_NODES

EVERY_S = 0.05
TIMEOUT_S = 2.0
"""The shipped `httpTimeout`."""
CALLS_A_CONNECTION = 20
"""The two replicas share the port, and a connection stays with one of them."""


class Call(msgspec.Struct):
    """One filter call. `at` is in Unix seconds; `broken` is why there was no answer, `error` what
    Fettle answered instead of a verdict, and `mute` the nodes that it refused without a reason."""

    at: float
    took_s: float
    broken: str = ""
    error: str = ""
    mute: list[str] = []


def bodies() -> Iterator[bytes]:
    """About pods of each policy, in turn."""
    for number in itertools.count():
        policy = ("training", "inference", "scavenger")[number % 3]
        pod = objects.pod("asks", gpus=number % 4 + 1, annotations={"fettle.dev/policy": policy})
        pod["metadata"] |= {"name": f"asks-{number % 50}", "uid": str(uuid4())}
        asked = {"Pod": pod, "Nodes": None, "NodeNames": [*GPU_NODES, *DRA_NODES]}
        yield json.dumps(asked).encode()


def ask(connection: http.client.HTTPConnection, body: bytes) -> Call:
    at, began = time.time(), time.monotonic()
    try:
        connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
        answer = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()
        return Call(at, time.monotonic() - began, broken=repr(error))
    took_s = time.monotonic() - began
    failed = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    return Call(at, took_s, error=answer["Error"], mute=[n for n, why in failed.items() if not why])


def main(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    for number, body in enumerate(bodies()):
        if number % CALLS_A_CONNECTION == 0:
            connection.close()
        print(msgspec.json.encode(ask(connection, body)).decode(), flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main(int(sys.argv[1]))
