"""Tolerations of device taints."""

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.fleets import HOT, gpu
from tests.fettle.lint.tables.case import FLEET, Case, claim, exactly, first, option

TWICE, WARM = "twice.example.com", "warm.example.com"
BOTH = (
    *FLEET,
    api.node("twice"),
    api.resource_slice(
        "twice", [gpu(0, taints=[HOT, {**HOT, "effect": "NoExecute"}])], driver=TWICE
    ),
    api.device_class(TWICE, driver=TWICE),
)
TAINTED = (
    *FLEET,
    api.node("warm"),
    api.resource_slice("warm", [gpu(i, taints=[HOT]) for i in range(2)], driver=WARM),
    api.device_class(WARM, driver=WARM),
)
KEY = {"key": HOT["key"], "operator": "Exists"}


def tolerating(*tolerations: Object, device_class: str = WARM) -> Object:
    return claim(exactly(device_class=device_class, tolerations=list(tolerations)))


CASES = [
    Case(
        "FTL025",
        "a typo",
        tolerating({"key": "gpu.nvidia.com/hott", "operator": "Exists"}),
        "no device has a taint",
        "write gpu.nvidia.com/hot",
        known=TAINTED,
    ),
    Case("FTL025", "a taint in use", tolerating(KEY), known=TAINTED),
    Case(
        "FTL025",
        "a taint that may come",
        tolerating({**KEY, "key": "example.com/noisy"}),
        known=TAINTED,
    ),
    Case(
        "FTL026",
        "Equal without a key",
        tolerating({"operator": "Equal", "value": "x"}),
        "an empty key with operator Equal",
    ),
    Case("FTL026", "nothing at all", tolerating({}), "without a value"),
    Case("FTL026", "Exists without a key", tolerating({"operator": "Exists"})),
    Case(
        "FTL027",
        "seconds of NoSchedule",
        tolerating({**KEY, "effect": "NoSchedule", "tolerationSeconds": 60}),
        "is ignored",
    ),
    Case(
        "FTL027",
        "seconds of NoExecute",
        tolerating({**KEY, "effect": "NoExecute", "tolerationSeconds": 60}),
    ),
    Case("FTL028", "no effect", tolerating(KEY), "does not keep it from being evicted"),
    Case("FTL028", "an effect", tolerating({**KEY, "effect": "NoExecute"})),
    Case(
        "FTL029",
        "one of two effects",
        tolerating({**KEY, "effect": "NoExecute"}, device_class=TWICE),
        "with effect NoSchedule too",
        "effect: NoSchedule",
        known=BOTH,
    ),
    Case(
        "FTL029",
        "both effects",
        tolerating(
            *({**KEY, "effect": e} for e in ("NoExecute", "NoSchedule")), device_class=TWICE
        ),
        known=BOTH,
    ),
    Case(
        "FTL030",
        "all are tainted",
        claim(exactly(device_class=WARM)),
        "gpu.nvidia.com/hot",
        known=TAINTED,
    ),
    Case("FTL030", "tolerated", tolerating({**KEY, "effect": "NoSchedule"}), known=TAINTED),
    Case(
        "FTL030",
        "an alternative tolerates",
        claim(first("gpu", option("a", WARM), option("b", WARM, tolerations=[KEY]))),
        known=TAINTED,
    ),
    Case("FTL030", "no taints", claim(exactly())),
    Case(
        "FTL031",
        "17 of them",
        tolerating(
            *({**KEY, "key": f"example.com/{i}", "effect": "NoSchedule"} for i in range(17))
        ),
        "17 tolerations",
    ),
    Case(
        "FTL031",
        "16 of them",
        tolerating(
            *({**KEY, "key": f"example.com/{i}", "effect": "NoSchedule"} for i in range(16))
        ),
    ),
    Case(
        "FTL032",
        "tolerations, switched off",
        tolerating({**KEY, "effect": "NoSchedule"}),
        "the feature gate DRADeviceTaints is off",
        disabled=frozenset({"DRADeviceTaints"}),
    ),
    Case(
        "FTL032",
        "another feature is off",
        tolerating({**KEY, "effect": "NoSchedule"}),
        disabled=frozenset({"DRAConsumableCapacity"}),
    ),
    Case(
        "FTL034",
        "a beta version",
        {**claim(), "apiVersion": "resource.k8s.io/v1beta1"},
        "no longer served",
    ),
    Case("FTL034", "v1", claim(exactly()), known=FLEET),
]
