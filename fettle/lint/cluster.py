"""What rules may ask about the cluster, as one view has it: objects, nodes, surveys of devices.

None means that an object does not exist or is not known; `knows` tells the two apart.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fettle.api import core, resource
from fettle.api.raw import text
from fettle.cel import AttributeRead, Equation
from fettle.cluster import EMPTY, NodeView, View
from fettle.lint.drivers import NO_DRIVERS, Drivers
from fettle.lint.manifests import (
    Field,
    Manifest,
    ManifestClaim,
    ManifestOption,
    ManifestPod,
    expressions,
)
from fettle.lint.names import misspelt, nearest
from fettle.lint.survey.fleet import Catalogue, Fleet
from fettle.lint.survey.matching import Selection
from fettle.lint.survey.totals import Survey, value_at
from fettle.pacing import pause

_OF_ALL_DRIVERS = "resource.kubernetes.io"
"""The domain of the attributes that Kubernetes defines; drivers adopt them one by one."""


class Cluster:
    """A view, surveys of its devices, and the configured drivers and feature gates."""

    def __init__(
        self,
        view: View = EMPTY,
        fleet: Fleet | None = None,
        *,
        complete: bool = True,
        unknown: frozenset[str] = frozenset(),
        drivers: Drivers = NO_DRIVERS,
        disabled: frozenset[str] = frozenset(),
    ) -> None:
        """`disabled` are feature gates of Kubernetes that are known to be off.

        `complete` false: the view holds some objects of the cluster, so an object that is not in
        it may exist. The same holds for the kinds in `unknown`, and for every kind that has an
        object which cannot be read. Nothing is known of a view that is not synced.
        """
        self.view = view if view.synced else EMPTY
        self.complete = complete and view.synced
        self.drivers = drivers
        self.disabled = disabled
        self._fleet = fleet
        self.unknown = unknown.union(key.partition(" ")[0] for key in self.view.quarantined)
        self._specs: dict[str, ManifestClaim] = {}

    def knows(self, kind: str) -> bool:
        """Whether all objects of this kind are in the view."""
        return self.complete and kind not in self.unknown

    # -- objects by name

    def device_class(self, name: str) -> resource.DeviceClass | None:
        return self.view.classes.get(name)

    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None:
        return self.view.claims.get(f"{namespace}/{name}")

    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None:
        return self.view.templates.get(f"{namespace}/{name}")

    def claim_of(self, entry: Field, namespace: str) -> tuple[str, ManifestClaim | None]:
        """The object that an entry of a pod's `resourceClaims` names, and its spec if known."""
        if name := entry.text("resourceClaimName"):
            claim, where = self.claim(namespace, name), f"ResourceClaim {namespace}/{name}"
            return where, self._spec(where, claim.spec) if claim else None
        if name := entry.text("resourceClaimTemplateName"):
            found = self.template(namespace, name)
            where = f"ResourceClaimTemplate {namespace}/{name}"
            return where, self._spec(where, found.spec.spec) if found else None
        return "", None

    def _spec(self, where: str, spec: resource.ResourceClaimSpec) -> ManifestClaim:
        # Cached because thousands of pods may name the same claim.
        if (known := self._specs.get(where)) is None:
            known = self._specs[where] = _claim(spec)
        return known

    # -- known only if `lint.watch` in the settings names the kind

    def quotas(self, namespace: str) -> tuple[core.ResourceQuota, ...]:
        return (self.view.quotas or {}).get(namespace, ())

    @property
    def compute_domains(self) -> Mapping[str, resource.ComputeDomain] | None:
        """By UID; None if they are not watched."""
        return self.view.compute_domains

    # -- nodes

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        return self.view.nodes

    @property
    def node_taints(self) -> frozenset[str]:
        """The keys of all taints on nodes."""
        return self._fleet.catalogue.node_taints if self._fleet is not None else frozenset()

    @property
    def offered(self) -> Mapping[str, int] | None:
        """The extended resources that nodes offer, and the most units that one has; None if not all
        nodes are known, or there are none."""
        if self._fleet is None or not self.knows("Node") or not self._fleet.catalogue.kubelets:
            return None
        return self._fleet.catalogue.offered

    @property
    def kubelets(self) -> Mapping[str, int]:
        """How many nodes run each kubelet version."""
        return self._fleet.catalogue.kubelets if self._fleet is not None else {}

    # -- devices

    @property
    def catalogue(self) -> Catalogue | None:
        """What drivers publish; None if it is not known."""
        if self._fleet is None or not (self.knows("Node") and self.knows("ResourceSlice")):
            return None
        if not self._fleet.catalogue.fingerprints:
            return None
        return self._fleet.catalogue

    def survey(self, option: ManifestOption) -> Survey | None:
        """What the selectors of an option and of its class match; None if it is not known.

        A survey may be some seconds older than the view and name nodes that are gone.
        """
        selection = self.selection(option)
        return self.survey_of(selection) if selection is not None else None

    def reads(self, expression: str) -> tuple[AttributeRead, ...]:
        """What an expression reads of devices, as far as it is known."""
        return self._fleet.reads(expression) if self._fleet is not None else ()

    def equations(self, expression: str) -> tuple[Equation, ...]:
        """Which attributes an expression compares, and with what, as far as it is known."""
        return self._fleet.equations(expression) if self._fleet is not None else ()

    def needed(self, expression: str) -> tuple[AttributeRead, ...]:
        """What a device must have to match an expression, as far as it is known."""
        return self._fleet.needed(expression) if self._fleet is not None else ()

    def may_come(self, driver: str, read: AttributeRead) -> bool:
        """Whether devices of a driver that are yet to come may have what is read, though none has.

        What devices have depends on their kind, their node and the driver's settings; some drivers
        even publish what an administrator names, in any domain. So anything may come but a
        misspelling of what there is. Of a driver whose attributes are all known, only these and
        what Kubernetes defines may, and capacities of its own.
        """
        published = (self.catalogue or Catalogue()).published(driver, read.field)
        domains = {driver, *(domain for domain, _ in published)}
        names = {name for domain, name in published if domain == read.domain}
        if read.name in names or (not read.name and read.domain in domains):
            return True
        if "/" in read.domain or misspelt(read.name, names):
            return False
        if not (known := self.drivers.attributes(driver)):
            return read.domain in domains or not nearest(read.domain, domains)
        if read.field == "capacity":
            return read.domain == driver
        return read.domain == _OF_ALL_DRIVERS or (read.domain == driver and read.name in known)

    def drivers_asked(self, selection: Selection) -> frozenset[str]:
        """The drivers that expressions of a selection ask for. Two match no device together."""
        if self._fleet is None:
            return frozenset()
        found = map(self._fleet.driver, (*selection.of_class, *selection.of_request))
        return frozenset(filter(None, found))

    def contradictable(self, survey: Survey) -> str:
        """The driver whose published devices can contradict what a selection asks for; "" if none.

        It is the one that the selection asks for, if all of its devices are known and the class
        matches some of them: so growth brings more of what is there (decision 0041).
        """
        asked = self.drivers_asked(survey.selection)
        known = survey.decided and survey.of_class and not survey.fatal
        if len(asked) != 1 or not known or self.catalogue is None:
            return ""
        (driver,) = asked
        return driver if driver in self.catalogue.drivers else ""

    def texts(self, read: AttributeRead) -> frozenset[str]:
        """All texts that devices have for an attribute, whoever publishes them."""
        found: set[str] = set()
        pools = {id(pool): pool for node in self.nodes.values() for pool in node.pools}
        for pool in pools.values():
            pause()
            for device in pool.devices:
                value = value_at(read, device)
                if isinstance(value, resource.DeviceAttribute) and value.string:
                    found.add(value.string)
        return frozenset(found)

    def survey_of(self, selection: Selection) -> Survey | None:
        if self._fleet is None or self.catalogue is None:
            return None
        return self._fleet.known(selection)

    def why_undecided(self, selection: Selection) -> str:
        """Why it is not known whether a selection matches anything; "" if it is known.

        Also "" if devices are not known at all: then rules on inventory are silent.
        """
        if self._fleet is None or not (self.knows("Node") and self.knows("ResourceSlice")):
            return ""
        survey = self._fleet.known(selection)
        if survey is None:
            is_due = self.catalogue is not None
            return "its selectors have not been evaluated on all devices yet" if is_due else ""
        if survey.decided or survey.matched:
            return ""
        more = survey.undecided - len(survey.undecided_reasons)
        reasons = [*survey.undecided_reasons, *([f"and {more} more like these"] if more else [])]
        return "; ".join(reasons)

    def selection(self, option: ManifestOption) -> Selection | None:
        """The selectors that choose an option's devices; None if its class is not known."""
        pause()
        device_class = self.device_class(option.class_name)
        if device_class is None:
            return None
        return Selection(
            tuple(s.cel.expression for s in device_class.selectors if s.cel is not None),
            tuple(text(expression.value) for expression in option.selectors),
        )

    def selection_among_driver(self, spec: Field) -> Selection:
        """The selectors in the spec of a DeviceClass, as if a request asked with them for devices
        of the driver that they ask for; for any devices if they ask for no single one."""
        own = class_selection(spec).of_class
        asked = self.drivers_asked(Selection(own))
        of_class = tuple(f'device.driver == "{driver}"' for driver in asked if len(asked) == 1)
        return Selection(of_class, own)

    def selections(self, manifest: Manifest) -> Iterator[Selection]:
        """Every selection that rules may ask about for this object, to be surveyed beforehand.

        There may be more once these were: the driver that a class asks for is known by then.
        """
        for field in manifest.device_classes:
            yield class_selection(field)
            yield self.selection_among_driver(field)
        claims = list(manifest.claims)
        for pod in manifest.pods:
            claims += self.claims_of(pod, manifest.namespace)
        for claim in claims:
            for option in claim.options:
                if (selection := self.selection(option)) is not None:
                    yield selection
                    yield Selection(selection.of_class)

    def claim_spec(self, claim: resource.ResourceClaim) -> ManifestClaim:
        return _claim(claim.spec)

    def claims_of(self, pod: ManifestPod, namespace: str) -> list[ManifestClaim]:
        """The specs of a pod's claims, those that are known."""
        found = (self.claim_of(entry, namespace)[1] for entry in pod.claims)
        return [claim for claim in found if claim is not None]


NOTHING_KNOWN = Cluster()


def class_selection(spec: Field) -> Selection:
    """The selectors in the spec of a DeviceClass."""
    return Selection(tuple(text(expression.value) for expression in expressions(spec)))


def _claim(spec: resource.ResourceClaimSpec) -> ManifestClaim:
    raw: Any = msgspec.json.decode(msgspec.json.encode(spec))
    return ManifestClaim(Field("spec", raw))
