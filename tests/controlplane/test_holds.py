"""A hold holds, also while Fettle is away: `fettle hold` as an operator calls it, on real nodes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import REPOSITORY, FettleProcess
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes
from tests.controlplane.installed import REFUSED, register_extender, scores
from tests.controlplane.taints import HOLD, HOLD_TAINTS, OURS, node_taints, rules, until_held

FURTHER = "fettle.dev/hold-"


class Operator:
    """Calls `fettle` with a kubeconfig of their own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    async def __call__(self, *arguments: str, fails: bool = False) -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "fettle", *arguments),
            *("--kubeconfig", self._kubeconfig),
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert bool(process.returncode) is fails, out.decode()
        return out.decode()


def operator(control_plane: ControlPlane, name: str, *groups: str) -> Operator:
    return Operator(control_plane.kubeconfig_for_user(name, *(groups or ("system:masters",))))


async def until_untainted(api: Api, node: str) -> None:
    await waiting.wait_until(
        lambda: node_taints(api, node), lambda t: not t, what=f"{node} has no taint"
    )


async def until_seen_as_held(fettle: FettleProcess, node: str) -> None:
    async def seen() -> str:
        return str(await fettle.browse("/devices", unsound="true"))

    await waiting.wait_until(
        seen, lambda said: f"'node': '{node}'" in said and "held by" in said, what="it is held"
    )


async def test_without_the_right_a_hold_by_hand_does_not_outlast_fettle(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    """As shipped until now: hands may be inside the chassis on which the pod starts."""
    await create_gpu_nodes(api, "n0", "n1")
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle, ignorable=True)
    for node in ("n0", "n1"):
        by_hand = {"metadata": {"annotations": {HOLD: "fan swap"}}}
        await api.patch("nodes", node, by_hand)
        await until_seen_as_held(fettle, node)
    await api.create(objects.pod("refused", gpus=8))
    await waiting.refused(api, "refused", saying=REFUSED)
    await waiting.wait_until(
        lambda: asyncio.to_thread(fettle.process.tail),
        lambda said: "holds are not kept as taints" in said and "hold-taints.yaml" in said,
        what="the log says which right is missing",
    )

    await fettle.stop()
    await api.create(objects.pod("lost", gpus=8))
    assert await waiting.bound(api, "lost") in ("n0", "n1")


async def test_pods_wait_for_held_nodes_while_fettle_is_gone_and_go_there_once_released(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "n0", "n1")
    await shipped.apply(api, shipped.manifests(HOLD_TAINTS))
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle, ignorable=True)
    alice = operator(control_plane, "alice")
    said = await alice("hold", "n0", "--reason", "fan swap, OPS-4711")
    assert "n0 is held by alice: fan swap, OPS-4711" in said
    assert "The scheduler obeys it: taint fettle.dev/hold on the node." in said
    # The other one is held as before, by hand: the steward taints it.
    await api.patch("nodes", "n1", {"metadata": {"annotations": {HOLD: "riser"}}})
    await until_held(api, "n1")
    listed = await alice("holds")
    assert [line.split()[0] for line in listed.splitlines()] == ["HELD", "n0", "n1"]
    assert listed.count("scheduler") == 2

    # For who tolerates every taint, Fettle's own refusal is still there.
    tolerant = objects.pod("tolerant", gpus=8)
    tolerant["spec"]["tolerations"] = [{"operator": "Exists"}]
    await api.create(tolerant)
    await waiting.refused(api, "tolerant", saying=REFUSED)
    await api.delete("pods", "tolerant", grace_s=0)

    await fettle.stop()
    await api.create(objects.pod("waits", gpus=8))
    said = await waiting.refused(api, "waits")
    assert "2 node(s) had untolerated taint(s)" in said
    await waiting.stays_pending(api, "waits", for_s=3)

    assert "n0 is no longer held by alice" in await alice("release", "n0")
    assert await node_taints(api, "n0") == []
    assert await waiting.bound(api, "waits") == "n0"
    assert OURS in await node_taints(api, "n1")

    # By hand again, with Fettle back: its steward takes the taint away.
    fettle.start()
    await fettle.ready()
    await api.patch("nodes", "n1", {"metadata": {"annotations": {HOLD: None}}})
    await until_untainted(api, "n1")


async def test_a_hold_ends_by_itself_at_its_time_and_takes_its_taint_along(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_gpu_nodes(api, "n0")
    await shipped.apply(api, shipped.manifests(HOLD_TAINTS))
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle)
    alice = operator(control_plane, "alice")
    await alice("hold", "n0", "--reason", "burn-in", "--until", "8s")
    assert OURS in await node_taints(api, "n0")
    await until_seen_as_held(fettle, "n0")
    await api.create(objects.pod("waits", gpus=8))
    await waiting.refused(api, "waits")
    assert await waiting.bound(api, "waits") == "n0"
    assert await node_taints(api, "n0") == []
    assert "nothing is held" in await alice("holds")
    assert (await scores(fettle, "waits"))["n0"]["allowed"]
    assert "is past" in await alice(
        "hold", "n0", "--reason", "x", "--until", "2020-01-01T00:00Z", fails=True
    )


async def test_a_held_dra_device_is_not_allocated_while_fettle_is_gone(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "n0", 2)
    await api.create(objects.claim_template("one-gpu"))
    await shipped.apply(api, shipped.manifests(HOLD_TAINTS))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    fettle = await start_fettle("extender", "steward")
    alice, bob = operator(control_plane, "alice"), operator(control_plane, "bob")
    assert "it has gpu-0, gpu-1" in await alice("hold", "n0/gpu-9", "--reason", "x", fails=True)
    assert "near: n0" in await alice("hold", "n00/gpu-0", "--reason", "x", fails=True)
    said = await alice("hold", "n0/gpu-0", "--reason", "reseat")
    assert "The scheduler obeys it: DeviceTaintRule fettle-hold-" in said
    await bob("hold", "n0/gpu-0", "--reason", "cable", "--until", "1h")
    await fettle.stop()

    await api.create(objects.pod("first", templates={"gpu": "one-gpu"}))
    assert await waiting.bound(api, "first") == "n0"
    (claim,) = await api.list("resourceclaims", "default")
    (given,) = claim["status"]["allocation"]["devices"]["results"]
    assert given["device"] == "gpu-1"
    await api.create(objects.pod("second", templates={"gpu": "one-gpu"}))
    await waiting.refused(api, "second")

    fettle.start()
    await fettle.ready()
    await alice("release", "n0/gpu-0")
    await waiting.stays_pending(api, "second", for_s=3)
    assert len(await rules(api)) == 1
    assert "bob: pass --by NAME" in await alice("release", "n0/gpu-0", fails=True)
    await alice("release", "n0/gpu-0", "--by", "bob")
    assert await waiting.bound(api, "second") == "n0"
    assert await rules(api) == []


async def test_the_steward_makes_and_removes_the_rule_of_a_device_held_by_hand(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_dra_node(api, "n0", 2)
    theirs: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "theirs"},
        "spec": {
            "deviceSelector": {"driver": objects.DRIVER, "pool": "n0", "device": "gpu-1"},
            "taint": {"key": HOLD, "effect": "NoSchedule"},
        },
    }
    await api.create(theirs)
    await shipped.apply(api, shipped.manifests(HOLD_TAINTS))
    await start_fettle("steward")
    held = '{"device": "gpu.nvidia.com/n0/gpu-0", "reason": "reseat"}'
    await api.patch("nodes", "n0", {"metadata": {"annotations": {HOLD: held}}})
    seen = await waiting.wait_until(
        lambda: rules(api), lambda found: len(found) == 2, what="the device has a rule"
    )
    ours = next(one for one in seen if one["taint"].get("value") == OURS["value"])
    assert ours["deviceSelector"] == {"driver": objects.DRIVER, "pool": "n0", "device": "gpu-0"}
    await api.patch("nodes", "n0", {"metadata": {"annotations": {HOLD: None}}})
    await waiting.wait_until(lambda: rules(api), lambda found: len(found) == 1, what="it is gone")
    assert (await api.get("devicetaintrules", "theirs"))["spec"]["taint"]["key"] == HOLD
    assert await node_taints(api, "n0") == []


async def test_in_observe_the_steward_sets_no_taint_and_takes_away_what_is_over(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("mode: observe\n")
    await create_dra_node(api, "n0", 1)
    await create_dra_node(api, "n1", 1)
    held = {HOLD: "fan", f"{FURTHER}device": '{"device": "gpu.nvidia.com/n0/gpu-0"}'}
    await api.patch("nodes", "n0", {"metadata": {"annotations": held}})
    await api.patch("nodes", "n1", {"spec": {"taints": [OURS]}})
    await shipped.apply(api, shipped.manifests(HOLD_TAINTS))
    await start_fettle("steward", settings=settings)
    await until_untainted(api, "n1")
    await asyncio.sleep(3)
    assert await node_taints(api, "n0") == []
    assert await rules(api) == []


async def test_two_operators_at_once_lose_no_hold_of_each_other_nor_a_taint_of_anybody(
    control_plane: ControlPlane, api: Api
) -> None:
    await create_dra_node(api, "n0", 8)
    theirs = {"key": "maintenance", "value": "yes", "effect": "NoExecute"}
    await api.patch("nodes", "n0", {"spec": {"taints": [theirs]}})
    operators = [operator(control_plane, name) for name in ("alice", "bob", "carol")]
    wheres = ("n0", "n0/gpu-0", "n0/gpu-1")
    await asyncio.gather(
        *(one("hold", where, "--reason", "mine") for one in operators for where in wheres)
    )
    annotations = (await api.get("nodes", "n0"))["metadata"]["annotations"]
    assert len([key for key in annotations if key.startswith(FURTHER)]) == 9
    assert await node_taints(api, "n0") == [theirs, OURS]
    assert len(await rules(api)) == 2
    await asyncio.gather(*(one("release", "n0") for one in operators))
    assert await node_taints(api, "n0") == [theirs]
    assert len((await operators[0]("holds", "n0")).splitlines()) == 1 + 6


async def test_an_operator_without_the_right_to_taint_is_told_who_obeys(
    control_plane: ControlPlane, api: Api
) -> None:
    await create_dra_node(api, "n0", 1)
    may: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "holder"},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
            {
                "apiGroups": ["resource.k8s.io"],
                "resources": ["resourceslices"],
                "verbs": ["list"],
            },
        ],
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "holder"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "dave"}
    binding = {**may, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [user]}
    del binding["rules"]
    dave = operator(control_plane, "dave", "people")
    assert '"get" on the resource "nodes"' in await dave("hold", "n0", "--reason", "x", fails=True)
    await api.create(may)
    await api.create(binding)
    await waiting.wait_until(
        lambda: dave("hold", "n0", "--reason", "x"), what="the right took effect"
    )
    said = await dave("hold", "n0/gpu-0", "--reason", "x")
    assert "Only Fettle obeys it, while the scheduler asks" in said
    assert "devicetaintrules" in said
