"""A small fleet as manifests."""

from typing import Any

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object

GPU, MIG, NIC = "gpu.nvidia.com", "mig.nvidia.com", "net.example.com"
HOT = {"key": "gpu.nvidia.com/hot", "value": "yes", "effect": "NoSchedule"}


def gpu(index: int, model: str = "H100", memory: str = "80Gi", **more: Any) -> Object:
    made = api.device(
        f"gpu-{index}",
        {
            "type": "gpu",
            "uuid": f"GPU-{model}-{index}",
            "index": index,
            "productName": f"NVIDIA {model}",
            "resource.kubernetes.io/pcieRoot": f"pci{index // 2}",
        },
        {"memory": memory},
    )
    made["attributes"]["driverVersion"] = {"version": "550.54.15"}
    return {**made, **more}


def fleet() -> list[Object]:
    """Four H100 on gpu-a, two A100 on gpu-b, a network card on net-c; a class for each driver."""
    return [
        api.node("gpu-a", labels={"zone": "a"}),
        api.node("gpu-b", labels={"zone": "b"}),
        api.node("net-c", labels={"zone": "c"}),
        api.resource_slice("gpu-a", [gpu(i) for i in range(4)], driver=GPU),
        api.resource_slice("gpu-b", [gpu(i, "A100", "40Gi") for i in range(2)], driver=GPU),
        api.resource_slice("net-c", [api.device("eth1")], driver=NIC),
        api.device_class(GPU, driver=GPU),
        api.device_class(
            MIG, selectors=[f'device.driver == "{GPU}" && device.attributes["{GPU}"].type == "mig"']
        ),
        api.device_class(NIC, driver=NIC),
    ]
