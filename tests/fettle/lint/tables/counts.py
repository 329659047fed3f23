"""Claims: counts, quotas, constraints and capacities."""

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.fleets import GPU, NIC
from tests.fettle.lint.tables.case import FLEET, Case, claim, exactly, first, option, template

MANY = "many.example.com"
PCIE = "resource.kubernetes.io/pcieRoot"
BUSY = api.claim("busy")
BUSY["status"] = {
    "allocation": {
        "devices": {
            "results": [
                {"request": "gpu", "driver": GPU, "pool": pool, "device": "gpu-0"}
                for pool in ("gpu-a", "gpu-b")
            ]
        }
    }
}


def sharing(capacity: Object) -> tuple[Object, ...]:
    """A cluster with one device to share, that has so much memory."""
    device = {
        **api.device("nvl-0", {"type": "gpu"}),
        "allowMultipleAllocations": True,
        "capacity": {"memory": capacity},
    }
    return (
        *FLEET,
        api.node("shared"),
        api.resource_slice("shared", [device], driver="shared.example.com"),
        api.device_class("shared.example.com", driver="shared.example.com"),
    )


def stepped(value: str, **limits: str) -> tuple[Object, ...]:
    policy = {"default": limits["min"], "validRange": limits}
    return sharing({"value": value, "requestPolicy": policy})


SHARING = stepped("80Gi", min="10Gi", max="40Gi", step="10Gi")
UNEVEN = stepped("80Gi", min="10Gi", step="30Gi")
WHOLE = stepped("1", min="500m", step="1")
CROWDED = (
    *FLEET,
    api.node("many"),
    api.resource_slice("many", 40, driver=MANY),
    api.device_class(MANY, driver=MANY),
)


def shared(amount: str, name: str = "memory") -> Object:
    asked = {"requests": {name: amount}}
    return claim(exactly(device_class="shared.example.com", capacity=asked))


def quota(most: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "devices", "namespace": "default"},
        "spec": {"hard": {"limited.example.com.deviceclass.resource.k8s.io/devices": str(most)}},
    }


LIMITED = (*FLEET, api.device_class("limited.example.com", driver=GPU), quota(2))


def limited(*requests: Object) -> Object:
    return template(*requests, name="limited")


CASES = [
    Case(
        "FTL055",
        "three of two",
        limited(exactly(device_class="limited.example.com", count=3)),
        "counts for 3 devices of limited.example.com, but a ResourceQuota in namespace default "
        "allows 2",
        known=LIMITED,
    ),
    Case(
        "FTL055",
        "the larger alternative counts",
        limited(
            first(
                "gpu",
                option("a", "limited.example.com", count=1),
                option("b", "limited.example.com", count=4),
            )
        ),
        "counts for 4 devices",
        known=LIMITED,
    ),
    Case(
        "FTL055",
        "all of them",
        limited(exactly(device_class="limited.example.com", allocationMode="All")),
        "counts for 32 devices",
        known=LIMITED,
    ),
    Case(
        "FTL055",
        "two of two",
        limited(exactly(device_class="limited.example.com", count=2)),
        known=LIMITED,
    ),
    Case("FTL055", "another class", limited(exactly(count=3)), known=LIMITED),
    Case("FTL009", "five of four", claim(exactly(count=5)), "one node has at most 4 that match"),
    Case("FTL009", "four of four", claim(exactly(count=4))),
    Case("FTL009", "an alternative fits", claim(first("gpu", option("a", count=9), option("b")))),
    Case("FTL010", "33 devices", claim(exactly(count=33)), "at least 33 devices"),
    Case(
        "FTL010",
        "two requests",
        template(exactly("a", count=16), exactly("b", count=17)),
        "at least 33 (16 + 17)",
    ),
    Case("FTL010", "32 devices", claim(exactly(count=32))),
    Case(
        "FTL010",
        "a smaller alternative",
        claim(first("gpu", option("a", count=33), option("b", count=2))),
    ),
    Case(
        "FTL011",
        "40 on the only node",
        claim(exactly(device_class=MANY, allocationMode="All")),
        "more than 32 matches",
        known=CROWDED,
    ),
    Case(
        "FTL011",
        "one is taken on each node",
        claim(exactly(allocationMode="All")),
        "has some allocated already",
        known=(*FLEET, BUSY),
        possible=True,
    ),
    Case("FTL011", "all are free", claim(exactly(allocationMode="All"))),
    Case(
        "FTL012",
        "a GPU and a network card",
        claim(exactly("gpu"), exactly("net", NIC)),
        "none has devices for the requests before it as well",
    ),
    Case(
        "FTL012",
        "two models on one node each are asked for separately",
        claim(exactly("a", count=2), exactly("b", count=2)),
    ),
    Case(
        "FTL013",
        "an attribute with a typo",
        claim(exactly(count=2), constraints=[{"matchAttribute": f"{GPU}/productname"}]),
        "has the attribute gpu.nvidia.com/productname",
        f"did you mean {GPU}/productName?",
        severity="Deny",
    ),
    Case(
        "FTL013",
        "an attribute that is there",
        claim(exactly(count=2), constraints=[{"matchAttribute": f"{GPU}/productName"}]),
    ),
    Case(
        "FTL014",
        "three on one root",
        claim(exactly(count=3), constraints=[{"matchAttribute": PCIE}]),
        "no node has 3 matching devices that share one value",
    ),
    Case(
        "FTL014", "two on one root", claim(exactly(count=2), constraints=[{"matchAttribute": PCIE}])
    ),
    Case(
        "FTL014",
        "two requests on one root",
        claim(exactly("a"), exactly("b"), constraints=[{"matchAttribute": PCIE}]),
    ),
    Case(
        "FTL015",
        "three on different roots",
        claim(exactly(count=3), constraints=[{"distinctAttribute": PCIE}]),
        "one node has at most 2",
    ),
    Case(
        "FTL015",
        "two on different roots",
        claim(exactly(count=2), constraints=[{"distinctAttribute": PCIE}]),
    ),
    Case(
        "FTL058",
        "the same and different",
        claim(
            exactly(count=2),
            constraints=[{"matchAttribute": PCIE}, {"distinctAttribute": PCIE}],
        ),
        "wants resource.kubernetes.io/pcieRoot to differ",
    ),
    Case(
        "FTL058",
        "the same for two requests, different from a third",
        claim(
            exactly("a"),
            exactly("b"),
            exactly("c"),
            constraints=[
                {"requests": ["a", "b"], "matchAttribute": PCIE},
                {"requests": ["b", "c"], "distinctAttribute": PCIE},
            ],
        ),
    ),
    Case(
        "FTL016",
        "with its domain, where the slice has none",
        shared("10Gi", "shared.example.com/memory"),
        "none of the 1 matching devices",
        "did you mean memory?",
        known=SHARING,
        severity="Deny",
    ),
    Case(
        "FTL016",
        "a capacity that the driver may be set to publish",
        shared("1", "shares"),
        "they publish: memory",
        known=SHARING,
    ),
    Case("FTL016", "spelled as in the slice", shared("10Gi"), known=SHARING),
    Case(
        "FTL017",
        "more than the policy allows",
        shared("50Gi"),
        "can give 50Gi of memory: the largest amount available is 40Gi",
        "ask for at most 40Gi",
        known=SHARING,
    ),
    Case(
        "FTL017",
        "more than a device has",
        claim(exactly(capacity={"requests": {"memory": "81Gi"}})),
        "the largest amount available is 80Gi",
    ),
    Case(
        "FTL017",
        "more than a device has, rounded up by the policy",
        shared("75Gi"),
        "no matching device can give 75Gi of memory",
        "ask for less",
        known=UNEVEN,
    ),
    Case("FTL017", "rounded up by the policy", shared("33Gi"), known=SHARING),
    Case("FTL017", "rounded up in whole units", shared("700m"), known=WHOLE),
    Case("FTL033", "an empty claim", claim(), "asks for no device"),
    Case("FTL033", "one request", claim(exactly())),
]
