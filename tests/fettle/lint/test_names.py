"""Which of several names an author probably meant."""

import pytest

from fettle.lint.names import nearest

TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")


@pytest.mark.parametrize(
    ("name", "candidates", "meant"),
    [
        ("gpu.nvidia.co", ["gpu.nvidia.com", "mig.nvidia.com"], "gpu.nvidia.com"),
        ("gup.nvidia.com", ["gpu.nvidia.com"], "gpu.nvidia.com"),
        ("gpus", ["gpu", "nic"], "gpu"),
        (
            "gpu.nvidia.com/productname",
            ["gpu.nvidia.com/productName"],
            "gpu.nvidia.com/productName",
        ),
        ("product-name", ["productName"], "productName"),
        ("DisruptionTargt", ["DisruptionTarget", "Ready"], "DisruptionTarget"),
        ("node.kubernetes.io/unreachible", TAINTS, TAINTS[0]),
        ("node.kubernetes.io/notready", TAINTS, TAINTS[1]),
    ],
)
def test_a_typing_error_is_recognized(name: str, candidates: list[str], meant: str) -> None:
    assert nearest(name, candidates) == meant


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("mig.nvidia.com", "gpu.nvidia.com"),
        ("vfio.gpu.nvidia.com", "gpu.nvidia.com"),
        ("tpu.example.com", "gpu.example.com"),
        ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/pciBusID"),
        ("gpu-0", "gpu-1"),
        ("h100", "h200"),
        ("team-a", "team-b"),
        ("maxMemory", "minMemory"),
        ("node.kubernetes.io/unschedulable", "node.kubernetes.io/unreachable"),
        ("x" * 1000, "x" * 1001),
        ("", "a"),
    ],
)
def test_another_word_is_no_typing_error(name: str, other: str) -> None:
    assert nearest(name, [other]) == nearest(other, [name]) == ""
