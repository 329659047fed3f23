"""Makes `fettle/lint/shapes/kubernetes.json`, what Kubernetes' objects may hold, from OpenAPI, and
`wholes.json`, which fields they have once they are in a cluster.

`python -m tests.controlplane.kubernetes_shapes` starts the API server of this suite for the newest
version. Of older ones it reads the files beside their source, which Go fetches as modules; these
have no lists of allowed values, which so are those of the newest version.

A type is an object of fields, each a text: `[]` or `{}` (a list or an object of), then the name of
a type, a scalar, or `=A|B` for one of these values; `!` if it is required; ` since 1.36` or
` until 1.35` if not all versions have it.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fettle.lint.shapes.customs import Customs, customs_of, schemas_of
from tests.controlplane import building, shipped
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import (
    MODULES,
    feature_definitions,
    queued_definitions,
    workload_definitions,
)

TARGET = Path(__file__).parents[2] / "fettle" / "lint" / "shapes" / "kubernetes.json"
CUSTOMS = TARGET.with_name("customs.json")
WHOLES = TARGET.with_name("wholes.json")
_JOB_SET = "jobset.x-k8s.io"
OLDER = ("v1.34.4", "v1.35.4", "v1.36.3")
READ: Mapping[str, tuple[str, ...]] = {
    "v1": ("Pod", "PodTemplate", "ReplicationController"),
    "apps/v1": ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"),
    "batch/v1": ("Job", "CronJob"),
    "resource.k8s.io/v1": (
        *("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"),
        "DeviceTaintRule",
    ),
}
"""Kinds of which all fields are kept, by the newest version of their group; of others the name."""
_OF_ROWS = frozenset(
    (
        *("v1", "apps", "autoscaling", "batch", "coordination.k8s.io", "events.k8s.io"),
        *("networking.k8s.io", "node.k8s.io", "policy", "resource.k8s.io", "scheduling.k8s.io"),
        "storage.k8s.io",
    )
)
"""Groups, of whose objects rows of a rules file may read what others have written, too."""
_DRA_VERSIONS = ("v1", "v1beta1", "v1beta2")
_ALSO_ALLOWED: Mapping[tuple[str, str], str] = {
    ("batch.v1.PodFailurePolicyOnPodConditionsPattern", "status"): "=False|True|Unknown",
    ("core.v1.Container", "restartPolicy"): "=Always|Never|OnFailure",
    ("core.v1.ContainerResizePolicy", "restartPolicy"): "=NotRequired|RestartContainer",
    ("core.v1.ContainerRestartRule", "action"): "=Restart|RestartAllContainers",
    ("core.v1.ContainerRestartRuleOnExitCodes", "operator"): "=In|NotIn",
    ("core.v1.PodOS", "name"): "=linux|windows",
    ("meta.v1.LabelSelectorRequirement", "operator"): "=DoesNotExist|Exists|In|NotIn",
}
"""What validation allows and OpenAPI does not list."""
_ZERO_WILL_DO = {
    ("batch.v1.PodFailurePolicy", "rules"),
    ("core.v1.EvictionResponder", "priority"),
    ("core.v1.HTTPHeader", "value"),
    ("core.v1.ISCSIVolumeSource", "lun"),
    ("core.v1.PreferredSchedulingTerm", "preference"),
    ("core.v1.ScaleIOVolumeSource", "secretRef"),
    ("core.v1.SleepAction", "seconds"),
    ("core.v1.Sysctl", "value"),
    *((f"resource.{v}.ResourcePool", "generation") for v in _DRA_VERSIONS),
    *((f"resource.{v}.DeviceCapacity", "value") for v in _DRA_VERSIONS),
    *((f"resource.{v}.Counter", "value") for v in _DRA_VERSIONS),
    *((f"resource.{v}.CapacityRequestPolicyRange", "min") for v in _DRA_VERSIONS),
    # Without the feature gate, which is off, the API server drops them before it validates.
    *(
        (f"resource.{v}.DeviceDerivedAttribute", field)
        for v in _DRA_VERSIONS
        for field in ("expression", "name")
    ),
}
"""What OpenAPI requires though validation takes an absent one for zero, for no text or for
an empty object."""
_ALSO_REQUIRED = {
    ("apps.v1.ReplicaSetSpec", "template"),
    ("batch.v1.JobTemplateSpec", "spec"),
    ("core.v1.ConfigMapVolumeSource", "name"),
    ("core.v1.ExecAction", "command"),
    ("core.v1.PersistentVolumeClaimSpec", "accessModes"),
    ("core.v1.PersistentVolumeClaimSpec", "resources"),
    ("core.v1.PodTemplateSpec", "spec"),
    ("core.v1.ReplicationControllerSpec", "template"),
    ("core.v1.SecretKeySelector", "name"),
    *((f"apps.v1.{kind}", "spec") for kind in ("DaemonSet", "Deployment", "ReplicaSet")),
    ("apps.v1.StatefulSet", "spec"),
    *((f"batch.v1.{kind}", "spec") for kind in ("CronJob", "Job")),
    *((f"core.v1.{kind}", "spec") for kind in ("Pod", "ReplicationController")),
    *((f"resource.{v}.DeviceSelector", "cel") for v in _DRA_VERSIONS),
    *((f"resource.{v}.DeviceClaimConfiguration", "opaque") for v in _DRA_VERSIONS),
    *((f"resource.{v}.DeviceClassConfiguration", "opaque") for v in _DRA_VERSIONS),
}
"""What validation requires and OpenAPI does not."""
_SCALARS = {"string", "boolean", "integer", "number"}
_ANY = "any"
_NO_OBJECTS = {"DeleteOptions", "WatchEvent", "APIResourceList", "APIGroup", "APIVersions"}
_PREFIX = "#/components/schemas/"

Schemas = dict[str, Any]
"""Definitions by their full name."""
Types = dict[str, dict[str, str]]


async def newest() -> dict[str, Schemas]:
    """By group and version, what the API server of the suite tells."""
    binary = building.binary()
    assert binary is not None, building.GO_ABSENT
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(binary, Path(folder))
        try:
            await plane.start_etcd()
            await plane.start_api_server("--runtime-config=api/all=true")
            return await served(plane)
        finally:
            await plane.stop()


async def served(plane: ControlPlane) -> dict[str, Schemas]:
    index = await plane.tester.request("GET", "/openapi/v3")
    found = {}
    for path in index["paths"]:
        if version := _version_of(path):
            document = await plane.tester.request("GET", f"/openapi/v3/{path}")
            found[version] = document["components"]["schemas"]
    return found


def older(version: str) -> dict[str, Schemas]:
    """The same from the files beside the source of this version."""
    module = f"k8s.io/kubernetes@{version}"
    said = subprocess.run(
        ["go", "mod", "download", "-json", module], capture_output=True, check=True, cwd="/"
    )
    folder = Path(json.loads(said.stdout)["Dir"]) / "api" / "openapi-spec" / "v3"
    found = {}
    for file in sorted(folder.glob("*_openapi.json")):
        path = file.name.removesuffix("_openapi.json").replace("__", "/")
        if known := _version_of(path):
            found[known] = json.loads(file.read_bytes())["components"]["schemas"]
    return found


def _version_of(path: str) -> str:
    """`apps/v1` of `apis/apps/v1`, `v1` of `api/v1`; "" of what has no objects."""
    if path == "api/v1":
        return "v1"
    group = path.removeprefix("apis/")
    return group if path.startswith("apis/") and "/" in group else ""


# --- one version


def kinds_of(documents: Mapping[str, Schemas]) -> dict[str, dict[str, str]]:
    """By group and version: kind → the name of its type."""
    found: dict[str, dict[str, str]] = {}
    for schemas in documents.values():
        for name, schema in schemas.items():
            for of in schema.get("x-kubernetes-group-version-kind", ()):
                of_version = f"{of['group']}/{of['version']}" if of["group"] else of["version"]
                kind = of["kind"]
                if kind not in _NO_OBJECTS and not kind.endswith("List"):
                    found.setdefault(of_version, {})[kind] = short(name)
    return found


def short(name: str) -> str:
    """`core.v1.PodSpec` of `io.k8s.api.core.v1.PodSpec`."""
    return name.removeprefix("io.k8s.api.").removeprefix("io.k8s.apimachinery.pkg.apis.")


def types_of(documents: Mapping[str, Schemas]) -> Types:
    """All types that the kinds that are read are made of."""
    groups = {version.partition("/")[0]: kinds for version, kinds in READ.items()}
    types: Types = {}
    for version, kinds in kinds_of(documents).items():
        wanted = groups.get(version.partition("/")[0], ())
        schemas = {short(name): schema for name, schema in documents[version].items()}
        for kind, name in kinds.items():
            if kind in wanted:
                _collect(name, schemas, types)
    return types


def _collect(name: str, schemas: Schemas, types: Types) -> None:
    if name in types:
        return
    schema = schemas[name]
    types[name] = fields = {}
    for field, about in schema.get("properties", {}).items():
        if field == "status" and "x-kubernetes-group-version-kind" in schema:
            fields[field] = _ANY  # others write it, and a new object's is dropped
            continue
        required = field in schema.get("required", ()) and (name, field) not in _ZERO_WILL_DO
        required = required or (name, field) in _ALSO_REQUIRED
        said = _ALSO_ALLOWED.get((name, field)) or _type(about, schemas, types)
        fields[field] = said + ("!" if required else "")


def _type(about: Schemas, schemas: Schemas, types: Types) -> str:
    if "allOf" in about:
        about = {**about, **about["allOf"][0]}
    if "$ref" in about:
        return _referred(short(about["$ref"].removeprefix(_PREFIX)), schemas, types)
    if allowed := about.get("enum"):
        return "=" + "|".join(sorted(allowed))
    if about.get("type") == "array":
        return "[]" + _type(about["items"], schemas, types)
    if about.get("type") == "object":
        if isinstance(more := about.get("additionalProperties"), dict):
            return "{}" + _type(more, schemas, types)
        return _ANY
    return str(about["type"]) if about.get("type") in _SCALARS else _ANY


def _referred(name: str, schemas: Schemas, types: Types) -> str:
    schema = schemas[name]
    if name.endswith(".Quantity"):
        return "quantity"
    if name.endswith(".IntOrString"):
        return "int-or-string"
    if "properties" in schema:
        _collect(name, schemas, types)
        return name
    return _type(schema, schemas, types)


# --- all versions


def merged(by_version: Mapping[str, Types]) -> Types:
    """By version such as `1.34`, the oldest first."""
    names = sorted({name for types in by_version.values() for name in types})
    return {
        name: _merged_type(
            {version: types[name] for version, types in by_version.items() if name in types}
        )
        for name in names
    }


def _merged_type(having: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    fields = sorted({field for types in having.values() for field in types})
    return {field: _merged_field(field, having) for field in fields}


def _merged_field(field: str, having: Mapping[str, Mapping[str, str]]) -> str:
    versions = list(having)
    said = {version: fields[field] for version, fields in having.items() if field in fields}
    *_, latest = said.values()
    text = latest.removesuffix("!")
    text += "!" if all(one.endswith("!") for one in said.values()) else ""
    first, last = next(iter(said)), list(said)[-1]
    text += f" since {first}" if first != versions[0] else ""
    return text + (f" until {last}" if last != versions[-1] else "")


def made(by_version: Mapping[str, Mapping[str, Schemas]]) -> dict[str, Any]:
    types = merged({version: types_of(documents) for version, documents in by_version.items()})
    kinds = {version: kinds_of(documents) for version, documents in by_version.items()}
    served = sorted({group for named in kinds.values() for group in named})
    return {
        "versions": list(by_version),
        "kinds": {
            group: _merged_type(
                {
                    version: {
                        kind: name if name in types else _ANY
                        for kind, name in named.get(group, {}).items()
                    }
                    for version, named in kinds.items()
                }
            )
            for group in served
        },
        "types": types,
    }


def wholes(versions: Iterable[str] = (*OLDER, building.NEWEST)) -> dict[str, Any]:
    """The fields that objects have in any of these versions, their status included, and which
    types they are of; without types whose fields the other file has. From the files alone."""
    versions = tuple(versions)
    kinds: dict[str, dict[str, str]] = {}
    types: Types = {}
    for documents in map(older, versions):
        for group, named in kinds_of(documents).items():
            if group.partition("/")[0] not in _OF_ROWS:
                continue
            schemas = {short(name): schema for name, schema in documents[group].items()}
            for kind, name in named.items():
                if name in schemas and "metadata" in schemas[name].get("properties", ()):
                    kinds.setdefault(group, {})[kind] = name
                    _add_whole(name, schemas, types)
    known = json.loads(TARGET.read_bytes())["types"]
    roots = {name for named in kinds.values() for name in named.values()}
    kept = {
        name: dict(sorted(fields.items()))
        for name, fields in sorted(types.items())
        if name in roots or fields.keys() != known.get(name, {}).keys()
    }
    return {"versions": [minor(version) for version in versions], "kinds": kinds, "types": kept}


def _add_whole(name: str, schemas: Schemas, into: Types) -> None:
    found: Types = {}
    _collect(name, schemas, found)
    if about := schemas[name].get("properties", {}).get("status"):
        found[name]["status"] = _type(about, schemas, found)
    for type, fields in found.items():
        into.setdefault(type, {}).update({f: _only_type(text, found) for f, text in fields.items()})


def _only_type(text: str, types: Types) -> str:
    """What a field holds, without what it may not."""
    bare = text.removesuffix("!")
    name = bare.lstrip("[]{}")
    return bare if name in types else bare.removesuffix(name) + _ANY


def minor(version: str) -> str:
    """`1.34` of `v1.34.4`."""
    return ".".join(version.removeprefix("v").split(".")[:2])


def write(versions: Iterable[str] = OLDER) -> None:
    by_version = {minor(version): older(version) for version in versions}
    by_version[minor(building.NEWEST)] = asyncio.run(newest())
    text = json.dumps(made(by_version), indent=0, sort_keys=False)
    TARGET.write_text(text + "\n", encoding="utf-8")


def customs() -> Customs:
    """The fields of our own custom resources and of those of others."""
    ours = customs_of(shipped.manifests(shipped.DEPLOY / "crds"))
    modules = (MODULES / "go.mod").read_text()
    kinds: dict[str, Mapping[str, str]] = dict(ours.kinds)
    types: dict[str, Mapping[str, str]] = {}
    sources = {}
    others = (*queued_definitions(), *workload_definitions(), *feature_definitions())
    current = [*map(_current, others)]
    theirs = customs_of(current)
    for group, (name, module) in _OTHERS.items():
        version = re.search(rf"{module} v(\S+)", modules)
        assert version is not None
        sources[group] = f"{name} {version[1]}"
    kinds |= {
        version: {k: t for k, t in of.items() if k not in _MADE}
        for version, of in theirs.kinds.items()
    }
    # Webhooks add what a schema requires, such as the names of JobSet's rules.
    for name, fields in theirs.types.items():
        types[name] = {
            field: _ANY if f"{name}.{field}".endswith(_NOT_CHECKED) else text.removesuffix("!")
            for field, text in fields.items()
        }
    for name, more in _BY_HAND.items():
        types[name] = {**types[name], **more}
    rules: dict[str, dict[str, Mapping[str, Any]]] = {}
    for (version_, kind), schema in schemas_of(current).items():
        if (left := _with_rules(schema)) and kind not in _MADE:
            rules.setdefault(version_, {})[kind] = left
    return Customs(kinds, {**ours.types, **_needed(kinds, _shared(types))}, sources, rules)


def _with_rules(schema: Mapping[str, Any], *, below_rule: bool = False) -> dict[str, Any]:
    """What is left of a schema to evaluate its rules about new objects: these, the defaults that
    they may read, and the way there. Empty if nothing is."""
    stated = [
        {key: rule[key] for key in ("rule", "message") if rule.get(key)}
        for rule in schema.get("x-kubernetes-validations", ())
        if "oldSelf" not in rule["rule"]
    ]
    below_rule = below_rule or bool(stated)
    left: dict[str, Any] = {"x-kubernetes-validations": stated} if stated else {}
    if below_rule and "default" in schema:
        left["default"] = schema["default"]
    if below_rule and schema.get("type") == "number":
        left["type"] = "number"
    for name in ("items", "additionalProperties"):
        about = schema.get(name)
        if not isinstance(about, dict):
            continue
        if below := _with_rules(about, below_rule=below_rule):
            left[name] = below
    properties = {
        name: below
        for name, about in schema.get("properties", {}).items()
        if name not in ("status", "template", "submitterPodTemplate")
        if (below := _with_rules(about, below_rule=below_rule))
    }
    return left | ({"properties": properties} if properties else {})


def _current(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Without the versions that are superseded."""
    spec = definition["spec"]
    versions = [one for one in spec["versions"] if one["name"] not in _SUPERSEDED]
    return {**definition, "spec": {**spec, "versions": versions or spec["versions"]}}


def _shared(types: Mapping[str, Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """The types, each once: schemas repeat what they are made of."""
    found = dict(types)
    while True:
        first: dict[tuple[str, str], str] = {}
        same = {}
        for name in sorted(found, key=lambda name: (len(name), name)):
            key = (name.rpartition(".")[2], json.dumps(found[name], sort_keys=True))
            if first.setdefault(key, name) != name and ".spec." in name:
                same[name] = first[key]
        if not same:
            return found
        found = {
            name: {field: _named(text, same) for field, text in fields.items()}
            for name, fields in found.items()
            if name not in same
        }


def _named(text: str, same: Mapping[str, str]) -> str:
    bare = text.removesuffix("!")
    name = bare.lstrip("[]{}")
    return text.replace(name, same[name]) if name in same else text


def _needed(
    kinds: Mapping[str, Mapping[str, str]], types: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """Those that objects are made of: not those of a status of others."""
    found: dict[str, Mapping[str, str]] = {}
    left = [name for of in kinds.values() for name in of.values()]
    while left:
        if (name := left.pop()) in types and name not in found:
            found[name] = types[name]
            left += [text.removesuffix("!").lstrip("[]{}") for text in types[name].values()]
    return found


_SUPERSEDED = frozenset({"v1alpha1"})
_OTHERS = {
    _JOB_SET: ("JobSet", "sigs.k8s.io/jobset"),
    "leaderworkerset.x-k8s.io": ("LeaderWorkerSet", "sigs.k8s.io/lws"),
    "kubeflow.org": ("the training operator", "github.com/kubeflow/training-operator"),
    "trainer.kubeflow.org": ("Trainer", "github.com/kubeflow/trainer/v2"),
    "ray.io": ("KubeRay", "github.com/ray-project/kuberay/ray-operator"),
    "kueue.x-k8s.io": ("Kueue", "sigs.k8s.io/kueue"),
    "nfd.k8s-sigs.io": ("Node Feature Discovery", "sigs.k8s.io/node-feature-discovery"),
}
_MADE = frozenset({"Workload"})
"""Kinds that nobody writes."""
_NOT_CHECKED = (
    ".spec.elasticPolicy.metrics",
    ".headGroupSpec.headService",
    ".trainingRuntimeSpec.template",
)
"""Parts that are large and that few write."""
_BY_HAND = {
    # RestartPolicy in training-operator's pkg/apis/kubeflow.org/v1/common_types.go
    "kubeflow.org/v1.PyTorchJob.spec.pytorchReplicaSpecs": {
        "restartPolicy": "=Always|OnFailure|Never|ExitCode"
    },
    "jobset.x-k8s.io/v1alpha2.JobSet.spec.failurePolicy.rules": {
        # validOnJobFailureReasons in pkg/webhooks/jobset_webhook.go
        "onJobFailureReasons": "[]=BackoffLimitExceeded|DeadlineExceeded|FailedIndexes|"
        "MaxFailedIndexesExceeded|PodFailurePolicy",
        "action": "=FailJobSet|RestartJobSet|RestartJobSetAndIgnoreMaxRestarts|RestartJob|"
        "RestartJobAndIgnoreMaxRestarts",
    },
}
"""What JobSet's webhook allows, and what later releases take too, so that it is no mistake:
kubernetes-sigs/jobset v0.12.0, config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml."""


if __name__ == "__main__":
    write()
    text = json.dumps(msgspec.to_builtins(customs()), indent=0)
    CUSTOMS.write_text(text + "\n", encoding="utf-8")
    WHOLES.write_text(json.dumps(wholes(), indent=0) + "\n", encoding="utf-8")
