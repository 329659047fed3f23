"""Claims: classes, selectors, counts, constraints, capacities."""

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.fleets import GPU, MIG, NIC
from tests.fettle.lint.tables.case import (
    FLEET,
    Case,
    claim,
    device,
    exactly,
    first,
    option,
    template,
)

MANY = "many.example.com"
PCIE = "resource.kubernetes.io/pcieRoot"
UNGUARDED = api.device_class("unguarded", selectors=[device('productName == "NVIDIA H100"')])
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
SHARED = {
    **api.device("nvl-0", {"type": "gpu"}),
    "allowMultipleAllocations": True,
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {
                "default": "10Gi",
                "validRange": {"min": "10Gi", "max": "40Gi", "step": "10Gi"},
            },
        }
    },
}
SHARING = (
    *FLEET,
    api.node("shared"),
    api.resource_slice("shared", [SHARED], driver="shared.example.com"),
    api.device_class("shared.example.com", driver="shared.example.com"),
)
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
        "counts for 3 devices of limited.example.com, and a ResourceQuota of namespace default "
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
    Case(
        "FTL001",
        "a typo",
        claim(exactly(device_class="gpu.nvidia.co")),
        "no DeviceClass",
        f"write {GPU}",
    ),
    Case("FTL001", "in a template", template(exactly(device_class="tpu")), "there are: gpu.nvidia"),
    Case(
        "FTL001",
        "another kind of device is no typo",
        claim(exactly(device_class="vfio.gpu.nvidia.com")),
        "no DeviceClass",
        "name one that exists",
    ),
    Case("FTL001", "a class that exists", claim(exactly())),
    Case(
        "FTL001",
        "an alternative is another rule's",
        claim(first("gpu", option("a", "nosuch"), option("b"))),
    ),
    Case(
        "FTL002",
        "one of two",
        claim(first("gpu", option("a"), option("b", "nosuch"))),
        "blocks the other alternatives",
    ),
    Case("FTL002", "both exist", claim(first("gpu", option("a"), option("b", MIG)))),
    Case(
        "FTL003",
        "a claim of a class without devices",
        claim(exactly(device_class=MIG)),
        "matches none of the 7 devices",
    ),
    Case(
        "FTL003",
        "a class of a driver that is not there",
        api.device_class("tpu", driver="tpu.example.com"),
        "matches none",
    ),
    Case("FTL003", "a class with one device", api.device_class("other", driver=NIC)),
    Case(
        "FTL004",
        "a model that is not there",
        claim(exactly(selectors=[device('productName == "NVIDIA B200"')])),
        "0 of 6 devices in 2 pools of gpu.nvidia.com match",
    ),
    Case(
        "FTL004",
        "too much memory",
        claim(
            exactly(selectors=[f'device.capacity["{GPU}"].memory.compareTo(quantity("96Gi")) >= 0'])
        ),
        "nearest: memory 80Gi < 96Gi",
    ),
    Case(
        "FTL004",
        "in every alternative",
        claim(
            first("gpu", *(option(n, selectors=[device(f'productName == "{n}"')]) for n in "ab"))
        ),
        "0 of 6",
    ),
    Case(
        "FTL004",
        "one alternative is there",
        claim(first("gpu", option("a", selectors=[device('productName == "B200"')]), option("b"))),
    ),
    Case(
        "FTL004",
        "a model that is there",
        claim(exactly(selectors=[device('productName == "NVIDIA A100"')])),
    ),
    Case(
        "FTL004",
        "a class without devices is another rule's",
        claim(exactly(device_class=MIG, selectors=[device("index > 9")])),
    ),
    Case(
        "FTL005",
        "an attribute that no device has",
        claim(exactly(selectors=[device('model == "H100"')])),
        "fails on 6 of 6",
    ),
    Case(
        "FTL005",
        "guarded by has()",
        claim(exactly(selectors=[f"has({device('productName')}) && {device('index')} >= 0"])),
    ),
    Case(
        "FTL006",
        "a version compared as text",
        claim(exactly(selectors=[device('driverVersion > "550.1.2"')])),
        "no such overload",
    ),
    Case(
        "FTL006",
        "a version compared as a version",
        claim(exactly(selectors=[device('driverVersion.compareTo(semver("550.1.2")) >= 0')])),
    ),
    Case(
        "FTL007",
        "a domain with a typo",
        claim(exactly(selectors=['device.attributes["gpu.nvidia.co"].index == 1'])),
        "no device has attributes of the domain",
        f"write {GPU}",
    ),
    Case(
        "FTL007",
        "a name with a typo",
        claim(exactly(selectors=[device('productname == "x"')])),
        "productname",
        "write productName",
    ),
    Case(
        "FTL007",
        "a name that newer drivers may have",
        claim(exactly(selectors=[f'has({device("fabric")}) && {device("fabric")} == "x"'])),
    ),
    Case(
        "FTL007",
        "a domain that is there",
        claim(
            exactly(selectors=['device.attributes["resource.kubernetes.io"].pcieRoot == "pci0"'])
        ),
    ),
    Case(
        "FTL008",
        "reads before it knows the driver",
        UNGUARDED,
        "fails on 1 of 7",
        "begin with device.driver",
    ),
    Case(
        "FTL008",
        "asks for the driver first",
        api.device_class(
            "h100",
            selectors=[f'device.driver == "{GPU}" && {device("productName")} == "NVIDIA H100"'],
        ),
    ),
    Case(
        "FTL009", "five of four", claim(exactly(count=5)), "the most that match on one node are 4"
    ),
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
        "some are allocated now",
        known=(*FLEET, BUSY),
    ),
    Case("FTL011", "all are free", claim(exactly(allocationMode="All"))),
    Case(
        "FTL012",
        "a GPU and a network card",
        claim(exactly("gpu"), exactly("net", NIC)),
        "none of them has devices for the requests before it",
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
        f"write {GPU}/productName",
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
        "the most on one node are 2",
    ),
    Case(
        "FTL015",
        "two on different roots",
        claim(exactly(count=2), constraints=[{"distinctAttribute": PCIE}]),
    ),
    Case(
        "FTL016",
        "with its domain, where the slice has none",
        shared("10Gi", "shared.example.com/memory"),
        "none of the 1 matching devices",
        "write memory",
        known=SHARING,
    ),
    Case("FTL016", "spelled as in the slice", shared("10Gi"), known=SHARING),
    Case(
        "FTL017",
        "more than the policy allows",
        shared("50Gi"),
        "can give 50Gi of memory: the most that one gives is 40Gi",
        "ask for at most 40Gi",
        known=SHARING,
    ),
    Case(
        "FTL017",
        "more than a device has",
        claim(exactly(capacity={"requests": {"memory": "81Gi"}})),
        "the most that one gives is 80Gi",
    ),
    Case("FTL017", "rounded up by the policy", shared("33Gi"), known=SHARING),
    Case("FTL033", "an empty claim", claim(), "asks for no device"),
    Case("FTL033", "one request", claim(exactly())),
    Case(
        "FTL041",
        "by name and by claim",
        api.pod(
            "p",
            templates={"gpu": "t"},
            gpus=1,
            resource=f"deviceclass.resource.kubernetes.io/{GPU}",
        ),
        "whose devices a claim of this pod asks for too",
        known=(*FLEET, template(exactly())),
    ),
    Case(
        "FTL041",
        "another class",
        api.pod(
            "p",
            templates={"gpu": "t"},
            gpus=1,
            resource=f"deviceclass.resource.kubernetes.io/{NIC}",
        ),
        known=(*FLEET, template(exactly())),
    ),
    Case(
        "FTL042",
        "a name that is taken",
        api.device_class("b", extended_resource="example.com/gpu"),
        "DeviceClass a has the same",
        known=(api.device_class("a", extended_resource="example.com/gpu"),),
    ),
    Case(
        "FTL042",
        "a name of its own",
        api.device_class("b", extended_resource="example.com/b"),
        known=(api.device_class("a", extended_resource="example.com/gpu"),),
    ),
    Case(
        "FTL043",
        "evicts, where a class has an extended resource",
        api.device_taint_rule("r", "example.com/bad", "NoExecute"),
        "are not evicted",
        known=(api.device_class("a", extended_resource="example.com/gpu"),),
    ),
    Case(
        "FTL043",
        "only keeps off",
        api.device_taint_rule("r", "example.com/bad", "NoSchedule"),
        known=(api.device_class("a", extended_resource="example.com/gpu"),),
    ),
]
