"""One object as rules read it: which claims, requests, pods and Jobs it holds, and where.

Raw JSON underneath, as the author wrote it or the API server sent it.
"""

from collections.abc import Iterator
from functools import cached_property

from fettle.api.raw import Raw, mapping, strings, text
from fettle.api.resource import POD_CLAIM_NAME
from fettle.lint import shapes
from fettle.lint.fields import Field

DEFAULT_NAMESPACE = "default"


class ManifestOption:
    """What one request may be satisfied by: its `exactly`, or one of its `firstAvailable`.

    `name` is as constraints and configurations refer to it, `main` or `main/sub`.
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
        """How many devices it takes, of `All` the fewest that satisfy it; None: cannot be told."""
        if self.everything:
            return 1
        if self.mode != "ExactCount":
            return None
        written = self.field.at("count")
        return 1 if written.value is None else max(self.field.integer("count") or 0, 0)

    @property
    def selectors(self) -> tuple[Field, ...]:
        """The CEL expressions of its own selectors, each a text."""
        return tuple(expressions(self.field))

    @property
    def tolerations(self) -> Iterator[Field]:
        return self.field.each("tolerations")


class ManifestRequest:
    """One request of a claim: options in the order in which the allocator tries them."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.name = field.text("name")
        if field.raw("exactly"):
            self.options: tuple[ManifestOption, ...] = (
                ManifestOption(self.name, field.at("exactly")),
            )
            self.alternatives = False
        elif field.text("deviceClassName"):  # as v1beta1 has it
            self.options = (ManifestOption(self.name, field),)
            self.alternatives = False
        else:
            self.options = tuple(
                ManifestOption(f"{self.name}/{entry.text('name')}", entry)
                for entry in field.each("firstAvailable")
            )
            self.alternatives = True


class ManifestClaim:
    """The spec of a ResourceClaim, written as such or in a template."""

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
        """The options that a reference means: `main` all of a request's, `main/sub` one."""
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
    """The spec of a pod, its own or in the template of a workload."""

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
        """Names of resources that containers ask for, and where each first stands."""
        found: dict[str, Field] = {}
        for container in self.containers:
            for part in ("limits", "requests"):
                for name, field in container.members("resources", part):
                    found.setdefault(name, field)
        return found


class Manifest:
    """An object, what it says of itself, and the parts of it that rules are about."""

    def __init__(
        self,
        object: Raw,
        namespace: str = DEFAULT_NAMESPACE,
        written_as: str = "",
        templates: shapes.Table = shapes.POD_TEMPLATES,
    ) -> None:
        """`namespace` is that of an object which does not name its own, `written_as` the
        apiVersion in which its author sent it, where the API server has converted it;
        `templates` say where kinds keep those of their pods."""
        self.object = object
        self.root = Field("", object)
        self.kind = text(object.get("kind"))
        self.api_version = text(object.get("apiVersion"))
        self.written_as = written_as or self.api_version
        group, slash, _ = self.api_version.partition("/")
        self.group = group if slash else ""
        self.pod_specs = shapes.pod_specs(self.group, self.kind, templates)
        metadata = mapping(object, "metadata")
        self.namespace = text(metadata.get("namespace")) or namespace
        self.name = text(metadata.get("name")) or text(metadata.get("generateName"))
        self.annotations = strings(metadata.get("annotations"))

    @property
    def namespaced(self) -> bool:
        """False for the kinds that rules read and that belong to no namespace."""
        return self.kind not in ("DeviceClass", "DevicePolicy", "DeviceTaintRule", "Namespace")

    @cached_property
    def claims(self) -> tuple[ManifestClaim, ...]:
        return tuple(
            ManifestClaim(field) for field in shapes.specs(self.object, shapes.CLAIM_SPECS)
        )

    @cached_property
    def pods(self) -> tuple[ManifestPod, ...]:
        found = (spec for path in self.pod_specs for spec in shapes.walk(self.root, path))
        return tuple(ManifestPod(field) for field in found if field.value)

    @cached_property
    def jobs(self) -> tuple[Field, ...]:
        return tuple(shapes.specs(self.object, shapes.JOB_SPECS))

    @cached_property
    def device_classes(self) -> tuple[Field, ...]:
        return tuple(shapes.specs(self.object, shapes.CLASS_SPECS))

    def paths(self, table: shapes.Table) -> tuple[shapes.Path, ...]:
        """What the table says of objects of this kind."""
        return table.get((self.group, self.kind), ())

    @property
    def options(self) -> Iterator[ManifestOption]:
        return (option for claim in self.claims for option in claim.options)

    @property
    def late(self) -> bool:
        """Made after its workload was accepted: refusing it here would reach no author."""
        return (self.group, self.kind) == ("", "Pod") or POD_CLAIM_NAME in self.annotations


def expressions(field: Field) -> Iterator[Field]:
    """The CEL expressions in the `selectors` of a request or class, each a text."""
    for selector in field.each("selectors"):
        expression = selector.at("cel", "expression")
        if isinstance(expression.value, str):
            yield expression
