"""One object as rules read it: its claims, requests, pods and Jobs, each with its path.

Rules read raw JSON, as the author wrote it or the API server sent it, because an object may hold
anything. A value that is missing or has a wrong type reads as empty: the API server refuses it.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from fettle.api.annotations import POD_CLAIM_NAME
from fettle.api.raw import Raw, integer, mapping, strings, text
from fettle.lint import workload_kinds
from fettle.pacing import pause

DEFAULT_NAMESPACE = "default"
_MOST_TEMPLATES, _DEEPEST = 64, 24
_KUEUE = (
    *("AdmissionCheck", "ClusterQueue", "Cohort", "MultiKueueCluster", "MultiKueueConfig"),
    *("ResourceFlavor", "Topology", "WorkloadPriorityClass"),
)
_CLUSTER_SCOPED = frozenset(
    (
        *(("", kind) for kind in ("Namespace", "Node", "PersistentVolume")),
        *(("resource.k8s.io", kind) for kind in ("DeviceClass", "DeviceTaintRule")),
        ("resource.k8s.io", "ResourceSlice"),
        *(("fettle.dev", kind) for kind in ("DeviceHealth", "DevicePolicy")),
        *(("kueue.x-k8s.io", kind) for kind in _KUEUE),
        ("nfd.k8s-sigs.io", "NodeFeatureRule"),
        ("scheduling.k8s.io", "PriorityClass"),
    )
)
"""By their definitions: kueue, apis/kueue/v1beta1; node-feature-discovery, api/nfd/v1alpha1."""
_MARKS = frozenset(".[]/ ")


class Field(NamedTuple):
    """A value and the path that leads to it, such as `spec.devices.requests[0]`; `keys` are the
    same path as keys and list positions."""

    path: str
    value: Any
    keys: tuple[str | int, ...] = ()

    def at(self, *keys: str) -> "Field":
        """The field below, by keys; its value is None if there is none.

        >>> Field("", {"spec": {"nodeName": "a"}}).at("spec", "nodeName")
        Field(path='spec.nodeName', value='a', keys=('spec', 'nodeName'))
        """
        pause()  # reading yields to other work, so that no rule has to
        value, path = self.value, self.path
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
            path = below(path, key)
        return Field(path, value, self.keys + keys)

    def each(self, *keys: str, named: bool = False) -> Iterator["Field"]:
        """The entries of a list below that are objects."""
        entries = self.entries(*keys, named=named)
        return (entry for entry in entries if isinstance(entry.value, dict))

    def entries(self, *keys: str, named: bool = False) -> Iterator["Field"]:
        """All entries of a list below. If they are `named`, paths say their `name`, if they have
        one: so they are found again if the list changes."""
        field = self.at(*keys)
        if isinstance(field.value, list):
            for index, entry in enumerate(field.value):
                pause()
                yield field.entry(index, text(mapping(entry).get("name")) if named else "")

    def entry(self, index: int, name: str = "") -> "Field":
        """An entry of this list, by its `name` if that is given; None if it is absent."""
        there = isinstance(self.value, list) and index < len(self.value)
        path, value = f"{self.path}[{name or index}]", self.value[index] if there else None
        return Field(path, value, (*self.keys, index))

    def members(self, *keys: str) -> Iterator[tuple[str, "Field"]]:
        """The members of an object below, by name."""
        field = self.at(*keys)
        for key, value in mapping(field.value).items():
            pause()
            name = str(key)  # in YAML a key may be a number
            yield name, Field(below(field.path, name), value, (*field.keys, key))

    def text(self, *keys: str) -> str:
        return text(self.at(*keys).value)

    def integer(self, *keys: str) -> int | None:
        return integer(self.at(*keys).value)

    def raw(self, *keys: str) -> Raw:
        return mapping(self.at(*keys).value)

    def strings(self, *keys: str) -> Mapping[str, str]:
        return strings(self.at(*keys).value)

    @property
    def exists(self) -> bool:
        return self.value is not None


def below(path: str, key: str) -> str:
    """The path of a key; a key that contains a dot is written in brackets.

    >>> below("metadata.labels", "app"), below("metadata.labels", "example.com/app")
    ('metadata.labels.app', 'metadata.labels[example.com/app]')
    """
    if not key or not _MARKS.isdisjoint(key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def specs(object: Raw, table: workload_kinds.Table) -> Iterator[Field]:
    """The specs that the table locates in an object of its kind; an absent one reads as empty."""
    group, slash, _ = text(object.get("apiVersion")).partition("/")
    for path in table.get((group if slash else "", text(object.get("kind"))), ()):
        yield from objects_at(Field("", object), path)


def objects_at(field: Field, path: workload_kinds.Path) -> Iterator[Field]:
    """The objects at the end of a path; an absent one reads as empty."""
    for there in values_at(field, path):
        if isinstance(there.value, dict | None):
            yield there._replace(value=there.value or {})


def values_at(field: Field, path: workload_kinds.Path, *, named: bool = False) -> Iterator[Field]:
    """Whatever stands at the end of a path; `*` in it is each entry of a list or object. `named` as
    in `Field.entries`."""
    if not path:
        yield field
    elif path[0] != "*":
        yield from values_at(field.at(path[0]), path[1:], named=named)
    elif isinstance(field.value, dict):
        for _, member in field.members():
            yield from values_at(member, path[1:], named=named)
    else:
        for entry in field.entries(named=named):
            yield from values_at(entry, path[1:], named=named)


def pod_specs_by_form(root: Field) -> Iterator[Field]:
    """The specs of what has the name and the form of a pod template, wherever it stands."""
    waiting, found = [root], 0
    while waiting and found < _MOST_TEMPLATES:
        field = waiting.pop(0)
        below = (
            field.entries()
            if isinstance(field.value, list)
            else (one for _, one in field.members())
        )
        for member in below:
            if len(member.keys) > _DEEPEST or not isinstance(member.value, dict | list):
                continue
            containers = member.at("spec", "containers").value
            is_named = str(member.keys[-1]).lower().endswith("template")
            if is_named and isinstance(containers, list) and mapping(next(iter(containers), None)):
                yield member.at("spec")
                found += 1
            else:
                waiting.append(member)


class ManifestOption:
    """One way to satisfy a request: its `exactly`, or one entry of its `firstAvailable`.

    `name` is how constraints and configurations refer to it: `main` or `main/sub`.
    """

    def __init__(self, name: str, field: Field) -> None:
        self.name = name
        self.field = field
        self.class_name = field.text("deviceClassName")
        self.mode = field.text("allocationMode") or "ExactCount"

    @property
    def everything(self) -> bool:
        return self.mode == "All"

    @property
    def count(self) -> int | None:
        """How many devices it takes; of `All`, the fewest that satisfy it. None if unknown."""
        if self.everything:
            return 1
        if self.mode != "ExactCount":
            return None
        written = self.field.at("count")
        return 1 if written.value is None else max(self.field.integer("count") or 0, 0)

    @property
    def selectors(self) -> tuple[Field, ...]:
        """The CEL expressions of its own selectors, each a string."""
        return tuple(expressions(self.field))

    @property
    def tolerations(self) -> Iterator[Field]:
        return self.field.each("tolerations")


class ManifestRequest:
    """One request of a claim, with its options in the order in which the allocator tries them."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.text("name")
        if field.raw("exactly"):
            self.options: tuple[ManifestOption, ...] = (
                ManifestOption(self.name, field.at("exactly")),
            )
            self.alternatives = False
        elif field.text("deviceClassName"):  # v1beta1 has no `exactly`
            self.options = (ManifestOption(self.name, field),)
            self.alternatives = False
        else:
            self.options = tuple(
                ManifestOption(f"{self.name}/{entry.text('name')}", entry)
                for entry in field.each("firstAvailable")
            )
            self.alternatives = True


class ManifestClaim:
    """The spec of a ResourceClaim, or of the claims that a template makes."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.requests = tuple(ManifestRequest(entry) for entry in field.each("devices", "requests"))

    @property
    def options(self) -> Iterator[ManifestOption]:
        return (option for request in self.requests for option in request.options)

    @property
    def constraints(self) -> Iterator[Field]:
        return self.field.each("devices", "constraints")

    @property
    def configs(self) -> Iterator[Field]:
        return self.field.each("devices", "config")

    def named(self, name: str) -> tuple[ManifestOption, ...]:
        """The options that a reference means: `main` is all of a request, `main/sub` is one."""
        return self._by_name.get(name, ())

    @cached_property
    def _by_name(self) -> dict[str, tuple[ManifestOption, ...]]:
        found: dict[str, list[ManifestOption]] = {}
        for request in self.requests:
            for option in request.options:
                for name in {request.name, option.name}:
                    found.setdefault(name, []).append(option)
        return {name: tuple(options) for name, options in found.items()}

    def meant(self, references: Field) -> tuple[ManifestOption, ...]:
        """The options that a list of references means; an empty one means all."""
        names = [text(entry.value) for entry in references.entries()]
        if not names:
            return tuple(self.options)
        return tuple(option for name in names for option in self.named(name))


class ManifestPod:
    """The spec of a pod, or of the pods that a workload makes."""

    def __init__(self, field: Field) -> None:
        self.field = field

    @property
    def claims(self) -> Iterator[Field]:
        """The entries of `resourceClaims`."""
        return self.field.each("resourceClaims")

    @cached_property
    def containers(self) -> tuple[Field, ...]:
        groups = ("initContainers", "containers")
        return tuple(entry for group in groups for entry in self.field.each(group))

    @cached_property
    def resources(self) -> dict[str, Field]:
        """The resources that containers request, each with its first field."""
        found: dict[str, Field] = {}
        for container in self.containers:
            for part in ("limits", "requests"):
                for name, field in container.members("resources", part):
                    found.setdefault(name, field)
        return found


class Manifest:
    """An object: its names and annotations, and the parts that rules are about."""

    def __init__(
        self,
        object: Raw,
        namespace: str = DEFAULT_NAMESPACE,
        written_as: str = "",
        templates: workload_kinds.Table = workload_kinds.POD_TEMPLATES,
    ) -> None:
        """`namespace` is for an object that names none.

        `written_as` is the apiVersion that the author sent, if the API server converted the object.
        `templates` say where each kind has its pod templates.
        """
        self.object = object
        self.root = Field("", object)
        self.kind = text(object.get("kind"))
        self.api_version = text(object.get("apiVersion"))
        self.written_as = written_as or self.api_version
        group, slash, _ = self.api_version.partition("/")
        self.group = group if slash else ""
        self.pod_specs = workload_kinds.pod_specs(self.group, self.kind, templates)
        metadata = mapping(object, "metadata")
        self.namespace = text(metadata.get("namespace")) or namespace
        self.name = text(metadata.get("name")) or text(metadata.get("generateName"))
        self.annotations = strings(metadata.get("annotations"))

    @property
    def namespaced(self) -> bool:
        """False for cluster-scoped kinds that lint knows."""
        return (self.group, self.kind) not in _CLUSTER_SCOPED

    @cached_property
    def claims(self) -> tuple[ManifestClaim, ...]:
        return tuple(
            ManifestClaim(field) for field in specs(self.object, workload_kinds.CLAIM_SPECS)
        )

    @cached_property
    def pods(self) -> tuple[ManifestPod, ...]:
        found = (spec for path in self.pod_specs for spec in objects_at(self.root, path))
        return tuple(ManifestPod(field) for field in (*found, *self.specs_by_form) if field.value)

    @cached_property
    def specs_by_form(self) -> tuple[Field, ...]:
        """The specs of pods in an object of another project whose templates no table locates."""
        foreign = "." in self.group and self.group not in ("apiextensions.k8s.io", "fettle.dev")
        known = self.pod_specs or self.paths(workload_kinds.CLAIM_SPECS)
        return tuple(pod_specs_by_form(self.root)) if foreign and not known else ()

    @cached_property
    def jobs(self) -> tuple[Field, ...]:
        return tuple(specs(self.object, workload_kinds.JOB_SPECS))

    @cached_property
    def device_classes(self) -> tuple[Field, ...]:
        return tuple(specs(self.object, workload_kinds.CLASS_SPECS))

    def paths(self, table: workload_kinds.Table) -> tuple[workload_kinds.Path, ...]:
        """The paths that the table has for objects of this kind."""
        return table.get((self.group, self.kind), ())

    @property
    def requests(self) -> Iterator[ManifestRequest]:
        return (request for claim in self.claims for request in claim.requests)

    @property
    def options(self) -> Iterator[ManifestOption]:
        return (option for request in self.requests for option in request.options)

    @property
    def late(self) -> bool:
        """Made by a controller from an accepted workload: no author would see a refusal."""
        return (self.group, self.kind) == ("", "Pod") or POD_CLAIM_NAME in self.annotations


def expressions(field: Field) -> Iterator[Field]:
    """The CEL expressions in the `selectors` of a request or class, each a string."""
    for selector in field.each("selectors"):
        expression = selector.at("cel", "expression")
        if isinstance(expression.value, str):
            yield expression
