"""Opaque configurations of drivers."""

from typing import Any

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
    opaque,
    option,
)

VERSION = "resource.nvidia.com/v1beta1"
SLICING: Object = {
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
}
ON = {GPU: {"TimeSlicingSettings": True, "MPSSupport": True, "PassthroughSupport": True}}
OFF = {GPU: {"TimeSlicingSettings": False}}


def nvidia(kind: str = "GpuConfig", /, **parameters: Any) -> Object:
    return {"apiVersion": VERSION, "kind": kind, **parameters}


def configured(*configs: Object, requests: tuple[Object, ...] = (exactly(),)) -> Object:
    return claim(*requests, config=list(configs))


DOMAIN = "compute-domain.nvidia.com"
DOMAINS: tuple[Object, ...] = (
    *FLEET,
    *(
        {
            "apiVersion": VERSION,
            "kind": "ComputeDomain",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "spec": {
                "numNodes": 0,
                "channel": {"resourceClaimTemplate": {"name": f"{name}-channel"}},
            },
        }
        for name, namespace, uid in (("here", "default", "uid-1"), ("there", "other", "uid-2"))
    ),
)


def in_domain(uid: str, kind: str = "ComputeDomainChannelConfig", **more: str) -> Object:
    return configured(opaque(DOMAIN, nvidia(kind, domainID=uid, **more), "gpu"))


WHOLE = api.device_class("whole", selectors=[f'device.driver == "{GPU}"', device('type == "gpu"')])
ALTERNATIVES = (first("gpu", option("a"), option("b")),)
CASES = [
    Case(
        "FTL018",
        "another driver",
        configured(opaque(NIC, {"kind": "NetConfig"}, "gpu")),
        "is ignored",
    ),
    Case(
        "FTL018", "its own driver", configured(opaque(GPU, nvidia(**SLICING), "gpu")), features=ON
    ),
    Case(
        "FTL019",
        "an unknown field",
        configured(opaque(GPU, nvidia(sharin={}))),
        "unknown field",
        severity="Warn",
    ),
    Case(
        "FTL019",
        "an unknown kind",
        configured(opaque(GPU, nvidia("GpuConfigg"))),
        "does not know resource.nvidia.com/v1beta1 GpuConfigg",
    ),
    Case(
        "FTL019",
        "nothing at all",
        configured(opaque(GPU, {})),
        "must have apiVersion and kind: gpu.nvidia.com knows resource.nvidia.com/v1beta1 GpuConfig",
    ),
    Case(
        "FTL019",
        "no version",
        configured(opaque(GPU, {"kind": "GpuConfig"})),
        "must have apiVersion: gpu.nvidia.com knows",
    ),
    Case(
        "FTL019",
        "a mode that does not exist",
        in_domain("uid-1", allocationMode="Some"),
        "must be one of Single, All, not 'Some'",
        severity="Warn",
    ),
    Case(
        "FTL019",
        "settings of another strategy",
        configured(
            opaque(
                GPU,
                nvidia(
                    sharing={
                        "strategy": "MPS",
                        "mpsConfig": {},
                        "timeSlicingConfig": {"interval": "Long"},
                    }
                ),
            )
        ),
        "cannot be used with strategy MPS",
        features=ON,
    ),
    Case(
        "FTL019",
        "in a class",
        {**api.device_class("c"), "spec": {"config": [opaque(GPU, nvidia(sharin={}))]}},
        "unknown field",
        severity="Warn",
    ),
    Case("FTL019", "a good one", configured(opaque(GPU, nvidia(**SLICING))), features=ON),
    Case("FTL019", "of a driver nobody knows", configured(opaque("x.example.com", {"a": 1}))),
    Case(
        "FTL020",
        "declared off",
        configured(opaque(GPU, nvidia(**SLICING))),
        "needs the feature TimeSlicingSettings",
        features=OFF,
        severity="Deny",
    ),
    Case(
        "FTL020",
        "off by default",
        configured(opaque(GPU, nvidia(**SLICING))),
        "which is off by default",
    ),
    Case("FTL020", "declared on", configured(opaque(GPU, nvidia(**SLICING))), features=ON),
    Case(
        "FTL021",
        "for a GPU, on MIG devices",
        configured(opaque(GPU, nvidia(), "gpu"), requests=(exactly(device_class=MIG),)),
        "gets type mig",
        "write kind: MigDeviceConfig",
        severity="Deny",
    ),
    Case(
        "FTL021",
        "for MIG devices, on GPUs",
        configured(
            opaque(GPU, nvidia("MigDeviceConfig"), "gpu"), requests=(exactly(device_class="whole"),)
        ),
        "gets type gpu",
        known=(*FLEET, WHOLE),
        severity="Deny",
    ),
    Case(
        "FTL021",
        "for MIG devices, on GPUs of a class that may get MIG devices",
        configured(opaque(GPU, nvidia("MigDeviceConfig"), "gpu")),
        "gets type gpu",
    ),
    Case(
        "FTL021",
        "for MIG devices, on all requests",
        configured(opaque(GPU, nvidia("MigDeviceConfig"))),
    ),
    Case("FTL021", "for a GPU, on GPUs", configured(opaque(GPU, nvidia(), "gpu"))),
    Case(
        "FTL022",
        "the parent",
        configured(opaque(GPU, nvidia(), "gpu"), requests=ALTERNATIVES),
        "has alternatives",
        "write gpu/a, gpu/b",
    ),
    Case(
        "FTL022",
        "each alternative",
        configured(opaque(GPU, nvidia(), "gpu/a", "gpu/b"), requests=ALTERNATIVES),
    ),
    Case(
        "FTL023",
        "twice for one request",
        configured(opaque(GPU, nvidia(), "gpu"), opaque(GPU, nvidia(**SLICING), "gpu")),
        "never applies",
        known=FLEET,
    ),
    Case(
        "FTL023",
        "a default, and one for a request",
        configured(
            opaque(GPU, nvidia()),
            opaque(GPU, nvidia(**SLICING), "a"),
            requests=(exactly("a"), exactly("b")),
        ),
    ),
    Case(
        "FTL024",
        "a UID that none has",
        in_domain("uid-9"),
        "no ComputeDomain has the UID uid-9",
        known=DOMAINS,
    ),
    Case(
        "FTL024",
        "a name for a UID",
        in_domain("here"),
        "must be its UID",
        "that default/here creates",
        known=DOMAINS,
        severity="Deny",
    ),
    Case(
        "FTL024",
        "in another namespace",
        in_domain("uid-2"),
        "is the ComputeDomain other/there",
        "create the claim in namespace other",
        known=DOMAINS,
        severity="Deny",
    ),
    Case("FTL024", "in its namespace", in_domain("uid-1"), known=DOMAINS),
    Case(
        "FTL024",
        "the driver's own daemons are elsewhere",
        in_domain("uid-2", "ComputeDomainDaemonConfig"),
        known=DOMAINS,
    ),
]
