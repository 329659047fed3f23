"""Waits until Fettle is set up: each process is ready and has its rights, the API server asks the
webhook, a scheduler asks the extender. Each process says so of itself at `/setup`.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import click
import msgspec
from click.core import ParameterSource

from fettle.api import api_path, kinds
from fettle.cli import calling
from fettle.cli.sources import given
from fettle.client import Chosen, Session, decoded
from fettle.health import one_line
from fettle.model import ClusterError, FettleError, NoCluster
from fettle.records import seconds_of

EVERY_S = 2.0
ANSWERS_WITHIN_S = 5.0
MOST_SAID = 20
PARTS = "app.kubernetes.io/part-of=fettle"
"""The label of all pods of Fettle."""
TRIED = "fettle-check"
"""The name of the DevicePolicy that is created as a dry run: the API server asks the webhook about
it, and stores nothing."""
_NOBODY_ASKS = {
    "webhook": "the API server has not asked the webhook yet: is deploy/webhook/ applied?",
    "extender": "no scheduler has asked the extender yet: it does so for a pod with devices, once "
    "its configuration names Fettle (docs/install-scheduler.md)",
}


class Setup(msgspec.Struct, frozen=True):
    """What a process answers at `/setup`."""

    roles: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    asked: dict[str, bool] = {}
    denied: int = 0


class _Process(NamedTuple):
    name: str
    url: str


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct, frozen=True):
    ports: tuple[_Port, ...] = ()


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    deletion_timestamp: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    host_network: bool = False


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def url(self) -> str:
        """Of its browse listener; "" while it has no address."""
        ports = (port for container in self.spec.containers for port in container.ports)
        port = next((one.container_port for one in ports if one.name == "browse"), 8090)
        address = f"[{self.status.pod_ip}]" if ":" in self.status.pod_ip else self.status.pod_ip
        return f"http://{address}:{port}" if address else ""


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] | None = None


def wait(server: str, within: str, roles: Sequence[str], namespace: str) -> int:
    """Returns the exit status: 0 once nothing is missing, 1 if something is after `within`. Without
    a `server` Fettle's pods in `namespace` are asked. Raises FettleError if there is no cluster."""
    until = time.monotonic() + seconds_of(within)
    said: list[str] | None = None
    while True:
        try:
            missing = _missing(_servers(server) or asyncio.run(_pods(namespace)), roles)
        except ClusterError as error:  # the API server may be back in time
            missing = [str(error)]
        if missing != said:
            said = missing
            for sentence in (missing or ["Fettle is set up"])[:MOST_SAID]:
                click.echo(f"fettle: {one_line(sentence)}", err=bool(missing))
        left = until - time.monotonic()
        if not missing or left <= 0:
            return 1 if missing else 0
        time.sleep(min(EVERY_S, left))


def _servers(server: str) -> list[_Process]:
    """That of the flag, or all that the environment names."""
    call = click.get_current_context()
    if server and call.get_parameter_source("server") is ParameterSource.ENVIRONMENT:
        named = os.environ["FETTLE_SERVER"].split()
        return [_Process(one.partition("#")[0].rstrip("/"), one) for one in named]
    return [_Process(server.partition("#")[0].rstrip("/"), server)] if server else []


async def _pods(namespace: str) -> list[_Process]:
    """All pods of Fettle there, and in passing something to ask the webhook about."""
    # There alone: who labels a pod elsewhere is not believed.
    path = api_path(kinds.POD.api_version, kinds.POD.plural, namespace=namespace)
    reading = given()
    try:
        chosen = Chosen(reading.context, reading.acts_as, reading.groups)
        session = await Session.open(reading.kubeconfig, chosen=chosen)
    except NoCluster as error:
        raise NoCluster(f"{error}, or --server URL to ask a running Fettle") from error
    async with session:
        with suppress(ClusterError):  # then it is asked by others
            await session.create(kinds.POLICY.path, _TRIED, dry_run=True)
        body = await session.get(path, {"labelSelector": PARTS})
    found = decoded(body, _Pods, "list of pods").items or ()
    return [
        _Process(f"pod {pod.metadata.namespace}/{pod.metadata.name}", pod.url)
        for pod in found
        if not pod.metadata.deletion_timestamp
        and not pod.spec.host_network  # they listen on loopback: each is asked on its own host
        and pod.status.phase not in ("Succeeded", "Failed")
    ]


_TRIED = {
    "apiVersion": kinds.POLICY.api_version,
    "kind": kinds.POLICY.name,
    "metadata": {"name": TRIED},
    "spec": {},
}


def _missing(processes: Iterable[_Process], roles: Sequence[str]) -> list[str]:
    """What is missing, a sentence each."""
    missing: list[str] = []
    found: list[Setup] = []
    for process in processes:
        try:
            setup = _ask(process)
        except FettleError as error:
            said = str(error)  # it may begin with the URL
            missing.append(said if said.startswith(process.name) else f"{process.name}: {said}")
            continue
        found.append(setup)
        missing += (f"{process.name} is not ready: {why}" for why in setup.problems)
        if setup.denied:
            missing.append(f"{process.name} lacks a right: its /readyz?verbose says which")
    if not found and not missing:
        missing.append("no pod of Fettle is found that can be asked")
    there = {role for setup in found for role in setup.roles}
    missing += (f"no {role} answers" for role in roles if role not in there)
    return [*missing, *_unasked(found)]


def _unasked(found: Sequence[Setup]) -> Iterator[str]:
    """One of several replicas may be the only one that is asked."""
    for role, sentence in _NOBODY_ASKS.items():
        asked = [setup.asked[role] for setup in found if role in setup.asked]
        if asked and not any(asked):
            yield sentence


def _ask(process: _Process) -> Setup:
    if not process.url:
        raise FettleError("it does not run yet")
    url = calling.url_of(process.url.partition("#")[0], "/setup")
    body = calling.call(url, seconds=ANSWERS_WITHIN_S)
    try:
        return msgspec.json.decode(body, type=Setup)
    except msgspec.MsgspecError as error:
        raise FettleError(f"no answer of a Fettle of this version ({error})") from error
