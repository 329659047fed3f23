"""What monitors really write into node conditions decides where pods land: several findings in one
condition, conclusions, trouble of their own, and what a reboot has ended."""

from __future__ import annotations

import time

from fettle.api.meta import rfc3339_at
from tests.controlplane import objects, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender, scores
from tests.controlplane.kubelet import Kubelet

STRICT = {"fettle.dev/policy": "training"}
UUID = "GPU-1a2b3c4d-0000-1111-2222-333344445555"
DETECTED = "detected XID-{} on the instance, review kernel logs for additional information."
REPEATED = f"ErrorCode:13 GPU_UUID:{UUID} again and again Recommended Action=CONTACT_SUPPORT;"
UNREACHABLE = "ErrorCode:DCGM_CONNECTIVITY_ERROR x Recommended Action=CONTACT_SUPPORT;"
LOST = {
    "joined": (
        "AcceleratedHardwareReady",
        "False",
        "NvidiaXID63Error",
        "; ".join(DETECTED.format(code) for code in (79, 63)),
    ),
    "quoted": ("GPUXIDErrors", "True", "XIDErrors", "NVRM: Xid (PCI:0000:c1:00): 79, pid=1, x"),
    "repeated": (
        "RepeatedXIDErrorOnSameGPU",
        "True",
        "RepeatedXIDErrorOnSameGPUIsNotHealthy",
        REPEATED,
    ),
    "of-ours": ("OurGpuWatch", "True", "Found", "NVRM: Xid (PCI:0000:c1:00): 79, pid=1, x"),
}
"""Each is the only GPU of its node."""
MILD = {
    "unknown": ("AcceleratedHardwareReady", "False", "NvidiaXID777Error", DETECTED.format(777)),
    "unlisted": ("NetworkingReady", "False", "Invented", "?"),
    "unreachable": ("GpuDcgmUnresponsive", "True", "GpuDcgmUnresponsiveIsNotHealthy", UNREACHABLE),
}


async def test_pods_avoid_what_monitors_tell_in_whatever_form(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    for name, condition in (LOST | MILD).items():
        await create_node(api, objects.node(name, 1, cpu="512" if name in LOST else "64"))
        await kubelet.set_node_condition(name, *condition)
    await create_node(api, objects.node("silent", 1, cpu="64"))
    last = rfc3339_at(time.time() - 3600)
    await kubelet.set_node_condition("silent", "KernelReady", "True", since=last)
    await create_node(api, objects.node("good", 1, cpu="16"))
    await api.patch("nodes", "good", {"metadata": {"labels": {"nvidia.com/gpu.health": "fine"}}})
    await control_plane.start_scheduler()
    await api.create(objects.pod("before", gpus=1, cpu="4"))
    assert await waiting.bound(api, "before") in LOST
    await api.delete("pods", "before", grace_s=0)

    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("after", gpus=1, cpu="4", annotations=STRICT))
    assert await waiting.bound(api, "after") == "good"
    verdicts = await scores(fettle, "after")
    assert not any(verdicts[name]["fits"] for name in LOST)
    assert all(verdicts[name]["fits"] for name in (*MILD, "silent"))
    assert all(0 < verdicts[name]["score"] < 10 for name in (*MILD, "silent"))
    assert "the reporter of KernelReady has been silent since" in str(verdicts["silent"])

    _, answer = await fettle.browse("/devices")
    assert {one["condition"] for one in answer["unknownSignals"]} >= {
        "AcceleratedHardwareReady: XID 777",
        "NetworkingReady (Invented)",
        "OurGpuWatch",
        "label nvidia.com/gpu.health",
    }


async def test_a_warning_that_is_an_event_sends_pods_elsewhere_and_refuses_nothing(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await create_node(api, objects.node("hot", 1, cpu="512"))
    await create_node(api, objects.node("good", 1, cpu="16"))
    warning = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "hot.1", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "hot"},
        "reason": "AcceleratedHardwareReady",
        "message": "NvidiaThermalError: detected GPU thermals outside of thresholds with severity "
        "code 101",
        "type": "Warning",
        "source": {"component": "eks-node-monitoring-agent"},
    }
    await api.create(warning)
    await control_plane.start_scheduler()
    await api.create(objects.pod("before", gpus=1, cpu="4"))
    assert await waiting.bound(api, "before") == "hot"
    await api.delete("pods", "before", grace_s=0)

    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    for name, expected in (("first", "good"), ("second", "hot")):
        await api.create(objects.pod(name, gpus=1, cpu="4", annotations=STRICT))
        assert await waiting.bound(api, name) == expected


async def test_what_gkes_plugin_said_before_a_reboot_is_over_though_it_still_stands_there(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> None:
    def booted(boot: str) -> Object:
        return {"nodeInfo": {"bootID": boot}}

    first, second = (f"6e43a052-e544-467b-a972-63d7cd2ce80{n}" for n in "ab")
    await create_node(api, objects.node("g1", 1))
    await api.patch_status("nodes", "g1", booted(first))
    await kubelet.set_node_condition(
        "g1", "XidCriticalError", "True", '{"63":true,"79":true}', first
    )
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("trains", gpus=1, annotations=STRICT))
    await waiting.wait_until(
        lambda: scores(fettle, "trains"),
        lambda verdicts: "g1" in verdicts and not verdicts["g1"]["fits"],
        what="Fettle refuses g1",
    )
    assert not (await api.get("pods", "trains"))["spec"].get("nodeName")

    await api.patch_status("nodes", "g1", booted(second))
    assert await waiting.bound(api, "trains") == "g1"
