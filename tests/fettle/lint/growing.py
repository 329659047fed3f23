"""Clusters that grow in every way that decision 0041 allows, and what Kubernetes' allocator then
takes for a claim. What is denied must stay impossible in all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice, product
from typing import Any, NamedTuple

import msgspec

from fettle.api.resource import DeviceClass, ResourceClaimSpec
from fettle.cel import AttributeRead, Outcome
from fettle.dra import AllocationStatus, DeviceView, allocate, claim_of_spec
from fettle.lint.drivers import Drivers, shipped
from fettle.lint.manifests import Manifest
from fettle.lint.names import misspelt
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import InProcess, view_of

REAL: Mapping[str, Sequence[str]] = {
    "type": ("gpu", "mig", "vfio", "vgpu"),
    "productName": ("NVIDIA H200 141GB HBM3e", "NVIDIA B200", "NVIDIA A100-SXM4-40GB", "Tesla T4"),
    "architecture": ("Hopper", "Blackwell", "Ampere"),
    "profile": ("1g.5gb", "1g.10gb", "3g.40gb", "7g.80gb"),
}
NUMBERS = (0, 1, 2, 3, 42, 10**6)
VERSIONS = ("0.0.1", "12.4.0", "550.54.15", "999.0.0")
MOST_KINDS = 80
"""How many kinds of devices are added for one object."""
ALIKE = 4
"""How many devices of each kind: claims may ask for several on one node."""


class Grown(NamedTuple):
    """The objects of a cluster that grew for one object, and what its drivers are set to."""

    objects: Sequence[Object]
    features: Mapping[str, Mapping[str, bool]]

    @property
    def drivers(self) -> Drivers:
        return Drivers(features=self.features)


Growth = Callable[[Object, Sequence[Object]], list[Object]]
"""(what was denied, the cluster) → what is added to the cluster."""


def more_nodes(denied: Object, known: Sequence[Object]) -> list[Object]:
    """Each slice again, on three more nodes."""
    return [
        made
        for number in range(3)
        for index, old in enumerate(_slices(known))
        for made in _on_node(
            f"more-{number}-{index}", old["spec"]["driver"], old["spec"]["devices"]
        )
    ]


def larger_nodes(denied: Object, known: Sequence[Object]) -> list[Object]:
    """Nodes with 64 of each kind of device, on one switch."""
    added: list[Object] = []
    for index, (driver, one) in enumerate(_kinds(known)):
        many = [{**deepcopy(one), "name": f"large-{i}"} for i in range(64)]
        added += _on_node(f"large-{index}", driver, many)
    return added


def larger_devices(denied: Object, known: Sequence[Object]) -> list[Object]:
    """A terabyte for each gigabyte."""
    added: list[Object] = []
    for index, (driver, one) in enumerate(_kinds(known)):
        more = {name: {"value": "1Pi"} for name in one.get("capacity", ())}
        added += _on_node(f"roomy-{index}", driver, _alike({**one, "capacity": more}))
    return added


def other_values(denied: Object, known: Sequence[Object]) -> list[Object]:
    """Each kind of device with other values of the attributes that its driver's devices have: all
    combinations of what is asked for and of what real devices show."""
    added: list[Object] = []
    for index, (driver, attributes) in enumerate(_varied(denied, known)):
        _, one = next((d, k) for d, k in _kinds(known) if d == driver)
        added += _on_node(f"other-{index}", driver, _alike({**one, "attributes": attributes}))
    return added


def other_kinds(denied: Object, known: Sequence[Object]) -> list[Object]:
    """Devices with all attributes that the driver is known to publish for one kind or another, and
    those that Kubernetes defines. If its attributes are not known, with all that are asked for."""
    added: list[Object] = []
    for index, (driver, attributes) in enumerate(_varied(denied, known)):
        named = shipped()[driver].attributes if driver in shipped() else ()
        more: dict[str, Any] = dict.fromkeys(named or _unheard_of(denied, known), "x")
        more |= {"resource.kubernetes.io/pcieRoot": "pci0", "resource.kubernetes.io/numaNode": 0}
        more |= {"profile": "1g.10gb", "parentUUID": "GPU-0"} if "profile" in named else {}
        typed = api.device("x", more)["attributes"]
        one = {"name": "x", "attributes": {**typed, **attributes}, "capacity": _memory(known)}
        added += _on_node(f"kind-{index}", driver, _alike(one))
    return added


def other_settings(denied: Object, known: Sequence[Object]) -> list[Object]:
    """Devices that can be shared, with every capacity that is asked for."""
    asked = {
        name
        for option in Manifest(denied, "default").options
        for name, _ in option.field.members("capacity", "requests")
    }
    added: list[Object] = []
    for index, (driver, one) in enumerate(_kinds(known)):
        published = set(one.get("capacity", ()))
        new = {n for n in {*asked, "shares"} if not _respelt(n, driver, published)}
        capacity = {**one.get("capacity", {}), **{name: {"value": "1Pi"} for name in new}}
        shared = {**one, "allowMultipleAllocations": True, "capacity": capacity}
        added += _on_node(f"shared-{index}", driver, _alike(shared))
    return added


def more_classes(denied: Object, known: Sequence[Object]) -> list[Object]:
    """Each class that is named and not there: any device will do."""
    there = {one["metadata"]["name"] for one in known if one["kind"] == "DeviceClass"}
    named = {option.class_name for option in Manifest(denied, "default").options}
    return [api.device_class(name, selectors=["true"]) for name in sorted(named - there - {""})]


GROWTHS: tuple[Growth, ...] = (
    more_nodes,
    larger_nodes,
    larger_devices,
    other_values,
    other_kinds,
    other_settings,
    more_classes,
)


def grown(
    denied: Object,
    known: Sequence[Object],
    growths: Iterable[Growth],
    features: Mapping[str, Mapping[str, bool]],
) -> Grown:
    """The cluster after it grew. A driver has all features on that nobody declared to be off."""
    added = [made for growth in growths for made in growth(denied, known)]
    on = {
        driver: {**dict.fromkeys(known_driver.features, True), **features.get(driver, {})}
        for driver, known_driver in shipped().items()
    }
    return Grown([*known, *added], on)


def allocatable(denied: Object, objects: Sequence[Object]) -> bool:
    """Whether the allocator finds devices for a claim, or for one device of a class, on any node.

    An error on one node is not held against another, since a pod may be kept off that node. What is
    undecided may be possible.
    """
    view = view_of(objects)
    manifest, classes = Manifest(denied, "default"), dict(view.classes)
    asked = [claim.field.value for claim in manifest.claims]
    if manifest.kind == "DeviceClass":
        made = msgspec.convert(denied, DeviceClass)
        classes[made.metadata.name] = made
        exactly = {"deviceClassName": made.metadata.name}
        asked = [{"devices": {"requests": [{"name": "r", "exactly": exactly}]}}]
    claims = [claim_of_spec("c", msgspec.convert(s, ResourceClaimSpec), classes) for s in asked]
    evaluator = InProcess()

    def match(expression: str, device: DeviceView) -> Outcome:
        outcome = evaluator.outcome(expression, device.id.driver, device.device)
        assert outcome is not None
        return outcome

    impossible = (AllocationStatus.NONE, AllocationStatus.ERROR)
    return any(
        allocate(claims, node.pools, match).found not in impossible for node in view.nodes.values()
    )


# --- devices


def _slices(known: Sequence[Object]) -> Iterator[Object]:
    return (one for one in known if one["kind"] == "ResourceSlice")


def _kinds(known: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """One device of each set of attribute names and capacities."""
    seen = set()
    for old in _slices(known):
        for one in old["spec"]["devices"]:
            of_kind = (old["spec"]["driver"], *sorted(one.get("attributes", ())))
            if of_kind not in seen:
                seen.add(of_kind)
                sound = {key: value for key, value in one.items() if key != "taints"}
                yield old["spec"]["driver"], sound


def _varied(denied: Object, known: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """The driver and the attributes of other devices of each kind."""
    for driver, one in _kinds(known):
        attributes: Object = one.get("attributes", {})
        wanted = _values_asked_for(denied, driver, known)
        varied = sorted(name for name in attributes if name in wanted)
        choices = [wanted[name] for name in varied]
        for combination in islice(product(*choices), MOST_KINDS):
            yield driver, {**attributes, **dict(zip(varied, combination, strict=True))}
        for name in REAL.keys() & attributes.keys() - wanted.keys():
            yield from ((driver, {**attributes, name: {"string": text}}) for text in REAL[name])


def _values_asked_for(
    denied: Object, driver: str, known: Sequence[Object]
) -> dict[str, list[Object]]:
    """Values of each attribute that expressions read, each of the type that devices publish."""
    evaluator = InProcess()
    found: dict[str, list[Object]] = {}
    for expression in _expressions(denied, known):
        for read in evaluator.reads(expression) or ():
            name = read.name if read.domain == driver else f"{read.domain}/{read.name}"
            if read.field == "attributes" and read.name:
                found[name] = list(_values(read, name, _expressions(denied, known), known))
    return found


def _values(
    read: AttributeRead, name: str, expressions: Iterable[str], known: Sequence[Object]
) -> Iterator[Object]:
    shown = [
        one["attributes"][name]
        for old in _slices(known)
        for one in old["spec"]["devices"]
        if name in one.get("attributes", {})
    ]
    equations = [e for one in expressions for e in InProcess().equations(one) if e.read == read]
    for kind in sorted({kind for value in shown for kind in value}):
        if kind == "string":
            texts = {value["string"] for value in shown if "string" in value}
            asked = [e.value for e in equations if e.type == "string" and e.value]
            asked = [text for text in asked if not misspelt(text, texts)]
            yield from ({"string": text} for text in [*asked, *sorted(texts), *REAL.get(name, ())])
        elif kind == "int":
            numbers = [int(e.value) for e in equations if e.type in ("int", "uint") and e.value]
            yield from ({"int": number} for number in [*numbers, *NUMBERS])
        elif kind == "version":
            yield from ({"version": version} for version in VERSIONS)
        elif kind == "bool":
            yield from ({"bool": value} for value in (True, False))


def _expressions(denied: Object, known: Sequence[Object]) -> list[str]:
    manifest = Manifest(denied, "default")
    classes = {one["metadata"]["name"]: one for one in known if one["kind"] == "DeviceClass"}
    named = [classes[o.class_name] for o in manifest.options if o.class_name in classes]
    written = [*manifest.device_classes, *(o.field for o in manifest.options)]
    written += [field for one in named for field in Manifest(one, "default").device_classes]
    return [
        expression
        for field in written
        for selector in field.each("selectors")
        if (expression := selector.text("cel", "expression"))
    ]


def _unheard_of(denied: Object, known: Sequence[Object]) -> set[str]:
    """Attributes that are asked for and that no device has, nor another spelling of them."""
    names = {name for _, one in _kinds(known) for name in one.get("attributes", ())}
    asked = {
        f"{read.domain}/{read.name}"
        for expression in _expressions(denied, known)
        for read in InProcess().reads(expression) or ()
        if read.field == "attributes" and read.name and "/" not in read.domain
    }
    bare = {name.rpartition("/")[2] for name in names}
    return {name for name in asked - names if not misspelt(name.rpartition("/")[2], bare)}


def _respelt(name: str, driver: str, published: set[str]) -> bool:
    """Another spelling of a capacity that there is: no setting brings that."""
    bare = name.removeprefix(f"{driver}/")
    return name not in published and (bare in published or bool(misspelt(name, published)))


def _memory(known: Sequence[Object]) -> Object:
    named = {name for _, one in _kinds(known) for name in one.get("capacity", ())}
    return {name: {"value": "1Pi"} for name in sorted(named)}


def _alike(one: Object) -> list[Object]:
    return [{**deepcopy(one), "name": f"d-{i}"} for i in range(ALIKE)]


def _on_node(node: str, driver: str, devices: Sequence[Object]) -> list[Object]:
    return [api.node(node), api.resource_slice(node, devices, driver=driver)]
