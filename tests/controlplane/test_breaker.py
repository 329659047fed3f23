"""Refusals hold on a bad day; a wrong rule alone is set aside, for pods that have waited, and
everything says which."""

from __future__ import annotations

from pathlib import Path

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender, scores
from tests.controlplane.kubelet import Kubelet

WAITS_S = 10
STRICT = {"fettle.dev/policy": "training"}
NODES = [f"n{number:02}" for number in range(12)]
HELD, LOST, DOUBLE_BIT, BUSY = NODES[:3], NODES[3], NODES[4], NODES[5:]


async def test_a_bad_day_puts_no_pod_on_a_bad_node(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    for name in NODES:
        held = {"fettle.dev/hold": "hands inside"} if name in HELD else {}
        node = objects.node(name, 8, cpu="64")
        node["metadata"].setdefault("annotations", {}).update(held)
        await create_node(api, node)
    await kubelet.set_node_condition(
        LOST, "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await kubelet.set_node_condition(
        DOUBLE_BIT, "AcceleratedHardwareReady", "False", "NvidiaDoubleBitError", "double-bit error"
    )
    fettle = await start_fettle("extender", "steward")
    await control_plane.start_scheduler()
    await register_extender(control_plane, fettle)
    for number, _ in enumerate(BUSY):
        await api.create(objects.pod(f"busy-{number}", gpus=8, annotations=STRICT))
    for number, _ in enumerate(BUSY):
        assert await waiting.bound(api, f"busy-{number}") in BUSY
    for name in ("waits-0", "waits-1"):
        await api.create(objects.pod(name, gpus=8, annotations=STRICT))
        await waiting.refused(api, name)
    await kubelet.set_node_condition(BUSY[0], "KernelDeadlock", "True", "DockerHung", "hung task")
    await kubelet.set_node_condition(
        BUSY[1], "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    await waiting.stays_pending(api, "waits-0", "waits-1", for_s=6)
    verdicts = await scores(fettle, "waits-0")
    assert not any(verdict["overruled"] for verdict in verdicts.values())


async def test_a_bad_month_puts_no_pod_on_a_dead_gpu_that_is_named(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    """Four of fourteen nodes have one dead GPU each, by the driver's own line under one monitor's
    condition: more than a fifth of the nodes, and 4 of 112 devices."""
    nodes = [f"m{number:02}" for number in range(14)]
    for name in nodes:
        await create_node(api, objects.node(name, 8, cpu="64"))
    for number, name in enumerate(nodes[:4]):
        line = f"NVRM: Xid (PCI:0000:1{number}:00): 79, GPU has fallen off the bus."
        await kubelet.set_node_condition(name, "GpuLost", "True", "XID", line)
    fettle = await start_fettle("extender", "steward")
    await control_plane.start_scheduler()
    await register_extender(control_plane, fettle)
    for number in range(10):
        await api.create(objects.pod(f"runs-{number}", gpus=8, annotations=STRICT))
    for number in range(10):
        assert await waiting.bound(api, f"runs-{number}") in nodes[4:]
    for name in ("waits-0", "waits-1"):
        await api.create(objects.pod(name, gpus=8, annotations=STRICT))
        await waiting.refused(api, name)
    line = "NVRM: Xid (PCI:0000:1f:00): 79, GPU has fallen off the bus."
    await kubelet.set_node_condition(nodes[4], "GpuLost", "True", "XID", line)
    await waiting.stays_pending(api, "waits-0", "waits-1", for_s=6)
    _, devices = await fettle.browse("/devices")
    assert devices["setAside"] == []


async def test_a_wrong_monitor_is_set_aside_alone_and_named_everywhere(
    control_plane: ControlPlane,
    api: Api,
    kubelet: Kubelet,
    start_fettle: StartFettle,
    tmp_path: Path,
) -> None:
    wrong, sound, lost = NODES[:7], NODES[7:11], NODES[11]
    for name in NODES:
        await create_node(api, objects.node(name, 8, cpu="64"))
    for name in wrong:
        await kubelet.set_node_condition(
            name, "KernelDeadlock", "True", "DockerHung", "a regular expression that fits all"
        )
    await kubelet.set_node_condition(
        lost, "AcceleratedHardwareReady", "False", "NvidiaXID79Error", "GPU is lost"
    )
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"mode: enforce\nbreaker: {{burstPatienceSeconds: {WAITS_S}}}\n")
    fettle = await start_fettle("extender", "steward", settings=settings)
    rule = "condition KernelDeadlock"
    _, ready = await fettle.browse("/readyz", verbose="")
    assert f"breaker: {rule} is set aside in nvidia.com/gpu" in ready
    _, metrics = await fettle.browse("/metrics")
    labels = f'policy="training",pool="nvidia.com/gpu",rule="{rule}"'
    assert f"fettle_breaker_open{{{labels}}} 1.0" in metrics
    _, devices = await fettle.browse("/devices")
    (told,) = devices["setAside"]
    assert (told["rule"], told["condemned"], told["devices"]) == (rule, 56, 96)

    await control_plane.start_scheduler()
    await register_extender(control_plane, fettle)
    for number, _ in enumerate(sound):
        await api.create(objects.pod(f"first-{number}", gpus=8, annotations=STRICT))
        assert await waiting.bound(api, f"first-{number}") in sound
    await api.create(objects.pod("next", gpus=8, annotations=STRICT))
    await waiting.refused(api, "next")
    await waiting.stays_pending(api, "next", for_s=WAITS_S / 2)
    assert await waiting.bound(api, "next") in wrong
    verdicts = await scores(fettle, "next")
    assert not verdicts[lost]["fits"]
