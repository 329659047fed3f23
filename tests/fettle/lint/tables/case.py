"""One row of a table."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.fleets import GPU, fleet

FLEET: tuple[Object, ...] = tuple(fleet())


class Case(NamedTuple):
    """`says` is part of the message of what is caught, "" for a near miss, which is not.

    `severity` is the default one of what is caught, "" for the rule's own; `possible`: not even
    strict mode denies it. `known` is the cluster; `features` are declared feature gates of drivers,
    `disabled` those of Kubernetes.
    """

    rule: str
    what: str
    object: Object
    says: str = ""
    fix: str = ""
    known: Sequence[Object] = FLEET
    features: Mapping[str, Mapping[str, bool]] = {}
    disabled: frozenset[str] = frozenset()
    severity: str = ""
    possible: bool = False

    @property
    def caught(self) -> bool:
        return bool(self.says)

    def __str__(self) -> str:
        return f"{self.rule}-{'caught' if self.caught else 'passes'}-{self.what}"


def device(cel: str) -> str:
    """The attributes of the GPU driver."""
    return f'device.attributes["{GPU}"].{cel}'


def exactly(name: str = "gpu", device_class: str = GPU, **fields: object) -> Object:
    made: Object = {"deviceClassName": device_class}
    if "selectors" in fields:
        fields["selectors"] = cel(*fields["selectors"])  # type: ignore[misc]
    return {"name": name, "exactly": {**made, **fields}}


def first(name: str = "gpu", *options: Object) -> Object:
    return {"name": name, "firstAvailable": list(options)}


def option(name: str, device_class: str = GPU, **fields: object) -> Object:
    return {"name": name, **exactly(name, device_class, **fields)["exactly"]}


def cel(*expressions: object) -> list[Object]:
    return [{"cel": {"expression": str(expression)}} for expression in expressions]


def claim(*requests: Object, name: str = "c", **devices: object) -> Object:
    return api.claim(name, {"devices": {"requests": list(requests), **devices}})


def template(*requests: Object, name: str = "t", **devices: object) -> Object:
    return api.claim_template(name, {"devices": {"requests": list(requests), **devices}})


def opaque(driver: str, parameters: Object, *requests: str) -> Object:
    config: Object = {"opaque": {"driver": driver, "parameters": parameters}}
    return {"requests": list(requests), **config} if requests else config


def deployment(replicas: int, **pod: object) -> Object:
    made = api.pod_template(restart_policy="Always", **pod)  # type: ignore[arg-type]
    made["metadata"]["labels"] = {"app": "d"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "d"}},
            "template": made,
        },
    }


def job_set(replicas: int = 1, **job: object) -> Object:
    spec = api.job("j", **job)["spec"]  # type: ignore[arg-type]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js", "namespace": "default"},
        "spec": {
            "replicatedJobs": [{"name": "w", "replicas": replicas, "template": {"spec": spec}}]
        },
    }
