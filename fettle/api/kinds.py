"""The kinds of object that Fettle reads, as a table: where each is served and which struct it
fills."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec

from fettle.api import api_server, core, kueue, own_group, resource
from fettle.api.api_server import api_path
from fettle.api.decoding import (
    decode_lenient,
    describe_error,
    share_equal_values,
    unknown_field_probe,
    without_nulls,
)
from fettle.api.resource import NODE_SELECTOR
from fettle.api.trimming import LONGEST_EVENT, LONGEST_SPEC, LONGEST_TEXT
from fettle.model import BadInput

WireObject = (
    core.PartialObjectMetadata
    | core.WatchedObject
    | core.Node
    | core.Pod
    | core.Namespace
    | resource.ResourceSlice
    | resource.DeviceClass
    | resource.ResourceClaim
    | resource.ResourceClaimTemplate
    | resource.DeviceTaintRule
    | own_group.DevicePolicy
    | own_group.DeviceHealth
    | core.ResourceQuota
    | core.WatchedEvent
    | resource.ComputeDomain
    | api_server.WebhookConfiguration
    | kueue.QueuedWorkload
    | kueue.AdmissionCheck
    | kueue.ResourceFlavor
)


class Kind(NamedTuple):
    """One kind. `group` is "" for the core group; a cluster may lack `optional` kinds.

    `older`: versions with the same fields, newest first, for clusters that do not serve `version`.
    `only`: the name of the one object to read; "" for all. `fields`: a selector of those to read.
    `longest`: characters of a text that are read.
    """

    name: str
    group: str
    version: str
    plural: str
    struct: type[WireObject]
    optional: bool = False
    older: tuple[str, ...] = ()
    only: str = ""
    fields: str = ""
    longest: int = LONGEST_TEXT

    @property
    def api_version(self) -> str:
        return self.api_versions[0]

    @property
    def api_versions(self) -> tuple[str, ...]:
        """All versions that Fettle can read, with their group, the preferred one first."""
        group = f"{self.group}/" if self.group else ""
        return tuple(f"{group}{version}" for version in (self.version, *self.older))

    @property
    def path(self) -> str:
        """The URL path of the list over all namespaces."""
        return self.paths[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """`path` in each of `api_versions`."""
        return tuple(api_path(version, self.plural) for version in self.api_versions)

    def path_of(self, name: str, namespace: str = "", subresource: str = "") -> str:
        """The URL path of one object. Raises BadInput if no object can have this name."""
        return api_path(
            self.api_version, self.plural, namespace=namespace, name=name, subresource=subresource
        )

    @property
    def selection(self) -> dict[str, str]:
        """Further query parameters of a list or watch."""
        fields = f"metadata.name={self.only}" if self.only else self.fields
        return {"fieldSelector": fields} if fields else {}

    @property
    def is_probed(self) -> bool:
        """Whether each object is decoded a second time, to find unknown fields or to be kept."""
        return self.name in _PROBES or self.is_kept_whole

    @property
    def is_kept_whole(self) -> bool:
        """Whether its objects are not read here, but passed on as they are."""
        return self.struct is core.WatchedObject

    def decode(self, raw: bytes | msgspec.Raw, cut: Sequence[str] = ()) -> WireObject:
        """One object from its JSON, of which some was `cut`. Raises BadInput with the field's path
        and what is wrong."""
        if self.struct is own_group.DevicePolicy:
            raw = without_nulls(raw)
        try:
            decoded: WireObject = decode_lenient(_DECODERS[self.name], raw)
        except msgspec.ValidationError as error:
            raise BadInput(describe_error(error, self.struct)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInput(str(error)) from error
        if (probe := _PROBES.get(self.name)) is not None:
            of_spec = [place for place in cut if place.startswith("spec")]
            unread = next((one for one in of_spec if NODE_SELECTOR in one), "".join(of_spec[:1]))
            if unknown := unread or probe(raw):
                decoded = _noting(decoded, unknown)
        if cut and isinstance(decoded, core.Node):
            decoded = msgspec.structs.replace(decoded, cut=tuple(cut))
        if isinstance(decoded, resource.ResourceSlice):
            share_equal_values(decoded)
        return decoded


_DRA = "resource.k8s.io"

NODE = Kind("Node", "", "v1", "nodes", core.Node)
POD = Kind("Pod", "", "v1", "pods", core.Pod)
NAMESPACE = Kind("Namespace", "", "v1", "namespaces", core.Namespace)
SLICE = Kind(
    "ResourceSlice",
    _DRA,
    "v1",
    "resourceslices",
    resource.ResourceSlice,
    True,
    longest=LONGEST_SPEC,
)
CLASS = Kind(
    "DeviceClass", _DRA, "v1", "deviceclasses", resource.DeviceClass, True, longest=LONGEST_SPEC
)
CLAIM = Kind(
    "ResourceClaim",
    _DRA,
    "v1",
    "resourceclaims",
    resource.ResourceClaim,
    True,
    longest=LONGEST_SPEC,
)
TEMPLATE = Kind(
    "ResourceClaimTemplate",
    _DRA,
    "v1",
    "resourceclaimtemplates",
    resource.ResourceClaimTemplate,
    True,
    longest=LONGEST_SPEC,
)
TAINT_RULE = Kind(
    "DeviceTaintRule",
    _DRA,
    "v1",
    "devicetaintrules",
    resource.DeviceTaintRule,
    True,
    ("v1beta2", "v1alpha3"),
)
"""Kubernetes 1.37 serves it in v1, 1.36 in v1beta2, older versions only in v1alpha3."""
POLICY = Kind(
    "DevicePolicy", "fettle.dev", "v1alpha1", "devicepolicies", own_group.DevicePolicy, True
)

DEVICE_HEALTH = Kind(
    "DeviceHealth", "fettle.dev", "v1alpha1", "devicehealths", own_group.DeviceHealth, True
)

KINDS = (DEVICE_HEALTH, NODE, NAMESPACE, POLICY, CLASS, SLICE, TAINT_RULE, TEMPLATE, CLAIM, POD)
"""All kinds that every Fettle reads, in the order of a first load: what is remembered comes before
what is now, so that a start is like a watch that was away for a while."""

QUOTA = Kind("ResourceQuota", "", "v1", "resourcequotas", core.ResourceQuota)
COMPUTE_DOMAIN = Kind(
    "ComputeDomain",
    "resource.nvidia.com",
    "v1beta1",
    "computedomains",
    resource.ComputeDomain,
    True,
)

ON_DEMAND = (QUOTA, COMPUTE_DOMAIN)
"""Kinds that are read only if the settings name them. Single lint rules need them, and each needs a
right of its own. Nothing waits for them to sync."""

PREPARE_FAILED = "FailedPrepareDynamicResources"
"""The reason of a kubelet's Event about a pod whose DRA driver does not prepare its devices."""
EVENT = Kind(
    "Event",
    "",
    "v1",
    "events",
    core.WatchedEvent,
    fields=f"involvedObject.kind=Pod,reason={PREPARE_FAILED}",
    longest=LONGEST_EVENT,
)
"""Heard, but not kept. Nothing waits for it to sync."""
NODE_EVENT = EVENT._replace(name="Event on a Node", fields="involvedObject.kind=Node")
"""Kept as far as a rule names its reason, or it quotes the driver's log. Nothing waits for it to
sync."""
EVENTS = (EVENT, NODE_EVENT)

_ADMISSION = "admissionregistration.k8s.io"
WEBHOOK_CONFIGURATIONS = tuple(
    Kind(name, _ADMISSION, "v1", f"{name.lower()}s", api_server.WebhookConfiguration)
    for name in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)
"""Fettle keeps its own webhook configurations up to date. They are not part of a view."""

_KUEUE = "kueue.x-k8s.io"
KUEUE_WORKLOAD = Kind(
    "Workload",
    _KUEUE,
    "v1beta2",
    "workloads",
    kueue.QueuedWorkload,
    True,
    longest=LONGEST_SPEC,
)
ADMISSION_CHECK = Kind(
    "AdmissionCheck", _KUEUE, "v1beta2", "admissionchecks", kueue.AdmissionCheck, True
)
RESOURCE_FLAVOR = Kind(
    "ResourceFlavor", _KUEUE, "v1beta2", "resourceflavors", kueue.ResourceFlavor, True
)
KUEUE_KINDS = (ADMISSION_CHECK, RESOURCE_FLAVOR, KUEUE_WORKLOAD)
"""Followed by a leader that answers Kueue. They are not part of a view."""

PARTIAL = Kind("PartialObjectMetadata", "meta.k8s.io", "v1", "", core.PartialObjectMetadata)
"""Any object, if only its metadata was asked for."""

LONGEST_WHOLE = 64 * 1024
"""Bytes of an object of any kind that is kept whole, without what field managers own."""


def any_kind(group: str, version: str, kind: str, plural: str) -> Kind:
    """A kind whose objects are passed on as they are."""
    name = f"{kind}.{group}" if group else kind
    return Kind(name, group, version, plural, core.WatchedObject, optional=True)


BY_NAME = {kind.name: kind for kind in (*KINDS, *ON_DEMAND, EVENT)}

_DECODERS: dict[str, Any] = {
    kind.name: msgspec.json.Decoder(kind.struct, strict=False)
    for kind in (*BY_NAME.values(), NODE_EVENT, PARTIAL, *WEBHOOK_CONFIGURATIONS, *KUEUE_KINDS)
}


def read_with(asked_for: Collection[str]) -> tuple[Kind, ...]:
    """All of KINDS, and those of ON_DEMAND whose names are in `asked_for`."""
    return (*KINDS, *(kind for kind in ON_DEMAND if kind.name in asked_for))


_PROBES = {
    SLICE.name: unknown_field_probe("spec", struct=resource.ResourceSliceSpec),
    CLASS.name: unknown_field_probe("spec", struct=resource.DeviceClassSpec),
    CLAIM.name: unknown_field_probe("spec", struct=resource.ResourceClaimSpec),
    TEMPLATE.name: unknown_field_probe("spec", "spec", struct=resource.ResourceClaimSpec),
}
"""Kinds of which every field of the spec matters: Fettle must notice an unknown one."""


def _noting(decoded: Any, unknown: str) -> Any:
    """The object, with the unknown field recorded in its spec."""
    spec = decoded.spec
    if isinstance(spec, resource.ResourceClaimTemplateSpec):
        inner = msgspec.structs.replace(spec.spec, unknown=unknown)
        spec = msgspec.structs.replace(spec, spec=inner)
    else:
        spec = msgspec.structs.replace(spec, unknown=unknown)
    return msgspec.structs.replace(decoded, spec=spec)
