"""What a rule may ask about the cluster, about one view of it.

Answers from what is known now: None means that something does not exist *or* is not known, and
only where `complete` is true does it mean the former.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from fettle.api import core, nvidia, resource
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
from fettle.lint.survey.fleet import Fleet
from fettle.lint.survey.surveys import Catalogue, Selection, Survey
from fettle.pacing import pause


class Cluster:
    """Holds a view, surveys of its devices, and what is configured of drivers and features."""

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

        Of a view that is not synced nothing is known. `complete` false: it holds some objects of
        a cluster, and what is not there may exist all the same; so it is with the kinds that are
        `unknown`, in one that is complete otherwise, and with those of which an object cannot be
        read.
        """
        self.view = view if view.synced else EMPTY
        self.complete = complete and view.synced
        self.drivers = drivers
        self.disabled = disabled
        self._fleet = fleet
        self.unknown = unknown.union(key.partition(" ")[0] for key in self.view.quarantined)
        self._specs: dict[str, ManifestClaim] = {}

    def knows(self, kind: str) -> bool:
        """Whether an object of this kind that is not here does not exist."""
        return self.complete and kind not in self.unknown

    # -- objects by name

    def device_class(self, name: str) -> resource.DeviceClass | None:
        return self.view.classes.get(name)

    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None:
        return self.view.claims.get(f"{namespace}/{name}")

    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None:
        return self.view.templates.get(f"{namespace}/{name}")

    def claim_of(self, entry: Field, namespace: str) -> tuple[str, ManifestClaim | None]:
        """What an entry of a pod's `resourceClaims` names, in words, and its spec if known."""
        if name := entry.text("resourceClaimName"):
            claim, where = self.claim(namespace, name), f"ResourceClaim {namespace}/{name}"
            return where, self._spec(where, claim.spec) if claim else None
        if name := entry.text("resourceClaimTemplateName"):
            found = self.template(namespace, name)
            where = f"ResourceClaimTemplate {namespace}/{name}"
            return where, self._spec(where, found.spec.spec) if found else None
        return "", None

    def _spec(self, where: str, spec: resource.ResourceClaimSpec) -> ManifestClaim:
        """Thousands of pods may name the same claim."""
        if (known := self._specs.get(where)) is None:
            known = self._specs[where] = _claim(spec)
        return known

    # -- what is known where the settings ask for it

    def quotas(self, namespace: str) -> tuple[core.ResourceQuota, ...]:
        return (self.view.quotas or {}).get(namespace, ())

    @property
    def compute_domains(self) -> Mapping[str, nvidia.ComputeDomain] | None:
        """By UID; None where none are read."""
        return self.view.compute_domains

    # -- nodes

    @property
    def nodes(self) -> Mapping[str, NodeView]:
        return self.view.nodes

    @property
    def node_taints(self) -> frozenset[str]:
        """The keys of taints of nodes."""
        return self._fleet.catalogue.node_taints if self._fleet is not None else frozenset()

    @property
    def kubelets(self) -> Mapping[str, int]:
        """How many nodes run which version."""
        return self._fleet.catalogue.kubelets if self._fleet is not None else {}

    # -- devices

    @property
    def catalogue(self) -> Catalogue | None:
        """What drivers publish; None where that is not known."""
        if self._fleet is None or not (self.knows("Node") and self.knows("ResourceSlice")):
            return None
        if not self._fleet.catalogue.looks:
            return None
        return self._fleet.catalogue

    def survey(self, option: ManifestOption) -> Survey | None:
        """What a request's selectors match, by class and by itself; None: not known. It may be some
        seconds older than the view, so that nodes in it are gone."""
        selection = self.selection(option)
        return self.survey_of(selection) if selection is not None else None

    def reads(self, expression: str) -> tuple[AttributeRead, ...]:
        """What an expression is known to look at in devices."""
        return self._fleet.reads(expression) if self._fleet is not None else ()

    def equations(self, expression: str) -> tuple[Equation, ...]:
        """Which attributes an expression is known to compare, and with what."""
        return self._fleet.equations(expression) if self._fleet is not None else ()

    def survey_of(self, selection: Selection) -> Survey | None:
        if self._fleet is None or self.catalogue is None:
            return None
        return self._fleet.known(selection)

    def left_open(self, selection: Selection) -> str:
        """Why it is not known whether a selection matches anything, though it should be; "" if it
        is."""
        if self._fleet is None or not (self.knows("Node") and self.knows("ResourceSlice")):
            return ""
        survey = self._fleet.known(selection)
        if survey is None:
            is_due = self.catalogue is not None
            return "its selectors have not been evaluated on all devices yet" if is_due else ""
        if survey.decided or survey.matched:
            return ""
        more = survey.undecided - len(survey.left_open)
        return "; ".join((*survey.left_open, f"and {more} more like these")[: None if more else -1])

    def selection(self, option: ManifestOption) -> Selection | None:
        """The selectors that choose an option's devices; None where its class is not known."""
        pause()
        device_class = self.device_class(option.class_name)
        if device_class is None:
            return None
        return Selection(
            tuple(s.cel.expression for s in device_class.selectors if s.cel is not None),
            tuple(text(expression.value) for expression in option.selectors),
        )

    def selections(self, manifest: Manifest) -> Iterator[Selection]:
        """All that the rules may ask for of this object, and that must be surveyed before."""
        for field in manifest.device_classes:
            yield class_selection(field)
        claims = list(manifest.claims)
        for pod in manifest.pods:
            claims += self.claims_of(pod, manifest.namespace)
        for claim in claims:
            for option in claim.options:
                if (selection := self.selection(option)) is not None:
                    yield selection
                    yield Selection(selection.of_class)

    def spec_of(self, claim: resource.ResourceClaim) -> ManifestClaim:
        return _claim(claim.spec)

    def claims_of(self, pod: ManifestPod, namespace: str) -> list[ManifestClaim]:
        """The specs of a pod's claims, as far as they are known."""
        found = (self.claim_of(entry, namespace)[1] for entry in pod.claims)
        return [claim for claim in found if claim is not None]


NOTHING_KNOWN = Cluster()


def class_selection(spec: Field) -> Selection:
    """The selectors of a DeviceClass's spec."""
    return Selection(tuple(text(expression.value) for expression in expressions(spec)))


def _claim(spec: resource.ResourceClaimSpec) -> ManifestClaim:
    raw: Any = msgspec.json.decode(msgspec.json.encode(spec))
    return ManifestClaim(Field("spec", raw))
