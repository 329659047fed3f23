"""What is done to the house: a table of named actions, and the sequence that a seed makes of it."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.controlplane import objects, shipped
from tests.controlplane.api import Object
from tests.controlplane.processes import ProcessFailed
from tests.controlplane.taints import publish
from tests.soak import attacks
from tests.soak.house import (
    DRA_GPUS,
    EVERYDAY,
    FAILING_DRA,
    FAILING_GPU,
    House,
    Replica,
    insist,
    leader,
    write_kubeconfig,
)

MENDED_S = (5.0, 25.0)
LOST = "AcceleratedHardwareReady"
YEAR_S = 365 * 86400.0
FULL_BYTES = 16 * 1024
"""No file of the process may grow beyond this: a full disk without a file system of its own."""
SOON_S = 6.0
"""After a disturbance watches come back one by one, and leases end."""
LATE_S = 25.0
"""After the API server was away the scheduler's own watches back off for as long as that."""
CALM_STEPS = 5
"""After a disturbance so many actions do not disturb, and pods get time to be placed."""


class Action(NamedTuple):
    """`run` says what it did, drawn from its own randomness. If it `disturbs`, pods may wait while
    it runs, and so long after it."""

    run: Callable[[House, Random], Awaitable[str]]
    weight: int
    calm_after_s: float = 0.0

    @property
    def disturbs(self) -> bool:
        return self.calm_after_s > 0


class Step(NamedTuple):
    number: int
    pause_s: float
    name: str
    seed: str


def steps(seed: str) -> Iterator[Step]:
    """The same for the same seed, without end: one that disturbs, then some that do not."""
    random = Random(seed)
    disturbing = _shuffled(random, disturbs=True)
    others = _shuffled(random, disturbs=False)
    for number in count():
        calm = number % (CALM_STEPS + 1)
        name = next(others if calm else disturbing)
        yield Step(number, random.uniform(1.5, 4.0), name, f"{seed}/{number}")


def _shuffled(random: Random, *, disturbs: bool) -> Iterator[str]:
    """Each as often as it weighs before any comes more often."""
    names = [n for n, a in ACTIONS.items() if a.disturbs is disturbs for _ in range(a.weight)]
    while True:
        yield from random.sample(names, len(names))


# --- faults of devices, which are mended


async def fail_gpu(house: House, random: Random) -> str:
    node, after_s = random.choice(FAILING_GPU), random.uniform(*MENDED_S)
    repaired = random.random() < 0.7

    async def mend() -> None:
        await house.kubelet.set_node_condition(node, LOST, "True", "Healthy")
        if repaired:
            await say_repaired(house, node)

    if not house.mend_later(f"{node} fails", after_s, mend):
        return f"{node} has failed already"
    await house.kubelet.set_node_condition(node, LOST, "False", "NvidiaXID79Error", "GPU is lost")
    return f"{node} fails for {after_s:.0f} s"


async def fail_dra(house: House, random: Random) -> str:
    node, after_s = random.choice(FAILING_DRA), random.uniform(*MENDED_S)
    lost = random.sample(range(DRA_GPUS), random.choice((1, 2)))

    async def mend() -> None:
        await publish(house.api, node, DRA_GPUS)
        await say_repaired(house, node)

    if not house.mend_later(f"devices of {node}", after_s, mend):
        return f"devices of {node} have failed already"
    await publish(house.api, node, DRA_GPUS, lost)
    return f"devices {lost} of {node} fail for {after_s:.0f} s"


async def refuse_pods(house: House, random: Random) -> str:
    node, after_s = random.choice(FAILING_GPU), random.uniform(*MENDED_S)

    async def mend() -> None:
        house.kubelet.accept_pods_on(node)
        await say_repaired(house, node)

    if not house.mend_later(f"{node} swallows", after_s, mend):
        return f"{node} swallows pods already"
    house.kubelet.refuse_pods_on(node)
    return f"the kubelet of {node} refuses pods for {after_s:.0f} s"


async def hold(house: House, random: Random) -> str:
    node, after_s = random.choice(FAILING_GPU + FAILING_DRA), random.uniform(*MENDED_S)
    key = "fettle.dev/hold-soak"

    async def write(value: str | None) -> None:
        await house.api.patch("nodes", node, {"metadata": {"annotations": {key: value}}})

    if not house.mend_later(f"hold of {node}", after_s, partial(write, None)):
        return f"{node} is held already"
    await write(json.dumps({"reason": "soak", "by": "soak"}))
    return f"{node} is held for {after_s:.0f} s"


async def say_repaired(house: House, node: str) -> None:
    said = {"metadata": {"annotations": {"fettle.dev/repaired": objects.now()}}}
    await house.api.patch("nodes", node, said)


# --- the control plane


async def kill_api_server(house: House, random: Random) -> str:
    with house.taken("kube-apiserver"):
        await house.plane.stop_api_server(kill=random.random() < 0.7)
        await asyncio.sleep(random.uniform(0, 3))
        await house.plane.start_api_server()
    return "API server killed and started"


async def kill_etcd(house: House, random: Random) -> str:
    # Without its etcd the API server may end by itself.
    with house.taken("etcd", "kube-apiserver"):
        await house.plane.stop_etcd(kill=True)
        await asyncio.sleep(random.uniform(0, 3))
        await house.plane.start_etcd()
        if not house.plane.process("kube-apiserver").running:
            await house.plane.restart_api_server(kill=True)
        await insist(lambda: house.api.request_text("GET", "/readyz"))
    return "etcd killed and started"


async def kill_scheduler(house: House, random: Random) -> str:
    with house.taken("kube-scheduler"):
        await house.plane.stop_scheduler(kill=True)
        await asyncio.sleep(random.uniform(0, 2))
        await house.start_scheduler()
    return "scheduler killed and started"


async def freeze_component(house: House, random: Random) -> str:
    name, for_s = random.choice(("etcd", "kube-apiserver", "kube-scheduler")), random.uniform(1, 6)
    process = house.plane.process(name)
    process.signal_all(signal.SIGSTOP)
    try:
        await asyncio.sleep(for_s)
    finally:
        process.signal_all(signal.SIGCONT)
    return f"{name} stood still for {for_s:.1f} s"


async def kill_prometheus(house: House, random: Random) -> str:
    if house.prometheus is None:
        return "no Prometheus is installed"
    house.prometheus.kill()
    await asyncio.sleep(random.uniform(0, 3))
    house.prometheus.start()
    return "Prometheus killed and started"


# --- Fettle's processes


def _victim(house: House, random: Random) -> Replica:
    return random.choice([one for one in house.replicas.values() if not one.spared])


async def _kill(house: House, replica: Replica, random: Random) -> None:
    with house.taken(replica.name):
        replica.fettle.kill()
        await asyncio.sleep(random.uniform(0, 3))
        await house.start_replica(replica)


async def kill_replica(house: House, random: Random) -> str:
    victim = _victim(house, random)
    await _kill(house, victim, random)
    return f"{victim.name} killed and started"


async def stop_replica(house: House, random: Random) -> str:
    victim = _victim(house, random)
    with house.taken(victim.name):
        await victim.fettle.stop()
        await house.start_replica(victim)
    return f"{victim.name} stopped and started"


async def end_leader(house: House, random: Random) -> str:
    """The steward that leads is killed, or if it is spared stands still for longer than a lease."""
    leading = await leader(house)
    if leading is None:
        return "no steward leads"
    if not leading.spared:
        await _kill(house, leading, random)
        return f"{leading.name}, which leads, killed and started"
    leading.fettle.freeze()
    try:
        await asyncio.sleep(random.uniform(6, 10))
    finally:
        leading.fettle.thaw()
    return f"{leading.name}, which leads, stood still for longer than its lease"


async def kill_worker(house: House, random: Random) -> str:
    """Of CEL: each serving process has one once it has evaluated something."""
    victim = random.choice([*house.replicas.values()])
    with suppress(ProcessFailed, OSError):
        serving = victim.fettle.serving_pid
        children = Path(f"/proc/{serving}/task/{serving}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        return f"{len(children)} CEL workers of {victim.name} killed"
    return f"{victim.name} is away"


async def cut_watches(house: House, random: Random) -> str:
    cut = random.sample([*house.replicas.values()], random.choice((1, 2, 6)))
    for one in cut:
        one.relay.cut()
    return f"connections to the API server of {', '.join(one.name for one in cut)} cut"


async def lose_api_server(house: House, random: Random) -> str:
    victim, for_s = random.choice([*house.replicas.values()]), random.uniform(2, 8)
    victim.relay.to_port, port = 1, house.plane.ports.api_server
    victim.relay.cut()
    try:
        await asyncio.sleep(for_s)
    finally:
        victim.relay.to_port = port
    return f"{victim.name} does not reach the API server for {for_s:.1f} s"


async def jump_clock(house: House, random: Random) -> str:
    victim = random.choice([*house.replicas.values()])
    ahead_s = random.choice((-YEAR_S, -3600.0, 3600.0, YEAR_S))
    victim.clock.jump(ahead_s)
    try:
        await asyncio.sleep(random.uniform(3, 8))
    finally:
        victim.clock.jump(0.0)
    return f"the clock of {victim.name} was {ahead_s:+.0f} s off"


async def fill_disk(house: House, random: Random) -> str:
    victim = random.choice([*house.replicas.values()])
    try:
        pid = victim.fettle.serving_pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES, before[1]))
        try:
            await asyncio.sleep(random.uniform(5, 10))
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    except (OSError, ProcessFailed):
        return f"{victim.name} is away"
    return f"the disk of {victim.name} was full"


async def reload(house: House, random: Random) -> str:
    victim = _victim(house, random)
    with house.taken(victim.name):
        await victim.fettle.reload()
    return f"{victim.name} reloaded by SIGHUP"


async def break_settings(house: House, random: Random) -> str:
    """Files that cannot be read, or say what nobody knows: the old settings stay."""
    victim = _victim(house, random)
    good = victim.settings.read_text()
    bad = ("", "mode: [", '{"mode": 7}', '{"future": {"x": 1}}', "\x00")
    victim.settings.write_text(text := random.choice(bad))
    # An empty file means the defaults: then there is a successor.
    with house.taken(victim.name):
        await asyncio.sleep(5)
        victim.settings.write_text(good)
        await asyncio.sleep(8)
        await victim.fettle.ready(60)
    return f"the settings of {victim.name} were {text!r}"


async def rotate_webhook_ca(house: House, random: Random) -> str:
    gone = {"data": None}
    await house.api.patch("secrets", "fettle-webhook-ca", gone, shipped.NAMESPACE)
    await asyncio.sleep(random.uniform(2, 5))
    return "the webhook's CA deleted, for Fettle to make another one"


async def renew_token(house: House, random: Random) -> str:
    victim = random.choice([*house.replicas.values()])
    await write_kubeconfig(house, victim)
    return f"{victim.name} got a new token"


# --- strangers and tenants


async def attack_listener(house: House, random: Random) -> str:
    ports = house.ports()
    which = random.choice([*ports, "extender", "webhook"])
    return f"{which}: {await random.choice(attacks.AT_LISTENERS)(ports[which], random)}"


async def attack_all_listeners(house: House, random: Random) -> str:
    how = random.choice(attacks.AT_LISTENERS)
    each = [how(port, Random(random.random())) for port in house.ports().values()]
    return f"every listener: {(await asyncio.gather(*each))[-1]}"


async def attack_as_tenant(house: House, random: Random) -> str:
    tenant, number = house.tenant, random.randrange(10**6)
    assert tenant is not None
    house.mend_later("the tenant's objects", 15.0, partial(attacks.clean, house.api))
    made, refused = 0, 0
    for one in attacks.bombs(random, number):
        try:
            await tenant.create(one)
            made += 1
        except EVERYDAY:
            refused += 1
    return f"a tenant wrote {made} {one['kind']}s and the like; {refused} were refused"


async def write_odd_node(house: House, random: Random) -> str:
    node, patch = random.choice(FAILING_GPU), attacks.odd_node(random)
    (key,) = patch["metadata"]["annotations"]
    undo = {"metadata": {"annotations": {key: None}}}
    mend = partial(house.api.patch, "nodes", node, undo)
    house.mend_later(f"{key} of {node}", 10.0, mend)
    await house.api.patch("nodes", node, patch)
    return f"{node} has {str(patch['metadata']['annotations'])[:80]}"


async def write_odd_condition(house: House, random: Random) -> str:
    node, odd = random.choice(FAILING_GPU), attacks.odd_condition(random)

    async def patch(condition: Object) -> None:
        await house.api.patch_status("nodes", node, {"conditions": [condition]}, form="strategic")

    mended = objects.node_condition(odd["type"], "False" if odd["type"] != LOST else "True")
    house.mend_later(f"condition {odd['type'][:20]} of {node}", 10.0, partial(patch, mended))
    await patch(odd)
    return f"{node} has an odd condition {odd['type'][:30]} since {odd['lastTransitionTime']}"


async def write_odd_slice(house: House, random: Random) -> str:
    name, generation = "dra-3", random.randrange(2, 10**6)
    whole = objects.resource_slice(name, DRA_GPUS, generation=generation + 1)

    async def publish_as(one: Object) -> None:
        await house.api.patch("resourceslices", one["metadata"]["name"], {"spec": one["spec"]})

    house.mend_later("the odd slice", 8.0, partial(publish_as, whole))
    await publish_as(attacks.odd_slice(random, generation))
    return "dra-3 published fields that nobody knows"


async def write_future_objects(house: House, random: Random) -> str:
    """Custom resources whose definition lets fields of any type through."""
    crds = shipped.manifests(shipped.DEPLOY / "crds")
    policy = attacks.future_policy(random, random.randrange(10**6))
    node, status = random.choice(FAILING_GPU), random.choice(({"state": 7}, {"subjects": "all"}))

    async def mend() -> None:
        with suppress(*EVERYDAY):
            await house.api.delete("devicepolicies", policy["metadata"]["name"])
        await shipped.apply(house.api, crds)

    if not house.mend_later("definitions", 8.0, mend):
        return "the definitions are of the future already"
    for crd in crds:
        await house.api.apply(attacks.future_definition(crd))
    await asyncio.sleep(1)
    with suppress(*EVERYDAY):
        await house.api.create(policy)
    with suppress(*EVERYDAY):
        await house.api.patch("devicehealths", node, {"status": status})
    return f"a policy {str(policy['spec'])[:60]} and a DeviceHealth {status}"


ACTIONS: Mapping[str, Action] = {
    "GPU fails": Action(fail_gpu, 6),
    "DRA devices fail": Action(fail_dra, 5),
    "kubelet refuses": Action(refuse_pods, 2),
    "hold": Action(hold, 3),
    "API server killed": Action(kill_api_server, 1, LATE_S),
    "etcd killed": Action(kill_etcd, 1, LATE_S),
    "scheduler killed": Action(kill_scheduler, 1, SOON_S),
    "component frozen": Action(freeze_component, 1, LATE_S),
    "Prometheus killed": Action(kill_prometheus, 1),
    "replica killed": Action(kill_replica, 1, SOON_S),
    "replica stopped": Action(stop_replica, 1, SOON_S),
    "leader ended": Action(end_leader, 1, SOON_S),
    "CEL workers killed": Action(kill_worker, 3),
    "watches cut": Action(cut_watches, 1, SOON_S),
    "API server lost": Action(lose_api_server, 1, SOON_S),
    "clock jumps": Action(jump_clock, 1, SOON_S),
    "disk full": Action(fill_disk, 2),
    "settings reloaded": Action(reload, 1, SOON_S),
    "settings broken": Action(break_settings, 1, SOON_S),
    "webhook's CA rotated": Action(rotate_webhook_ca, 1),
    "token renewed": Action(renew_token, 1),
    "listener attacked": Action(attack_listener, 6),
    "all listeners attacked": Action(attack_all_listeners, 2),
    "tenant attacks": Action(attack_as_tenant, 6),
    "odd annotation": Action(write_odd_node, 3),
    "odd condition": Action(write_odd_condition, 3),
    "odd slice": Action(write_odd_slice, 2),
    "future objects": Action(write_future_objects, 2),
}
