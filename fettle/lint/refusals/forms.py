"""Which form the value of a field must have, how long its list may be, and what may not stand in it
twice: tables by type and field, of Kubernetes' own validation.

Types are named as in `fettle/lint/shapes/kubernetes.json`. The rows are from these files of
Kubernetes 1.37.1: https://github.com/kubernetes/kubernetes/blob/v1.37.1/pkg/apis/ with
core/validation/validation.go, resource/validation/validation.go, batch/validation/validation.go and
apps/validation/validation.go. Each row holds from 1.34 on.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from fettle.api.raw import mapping, text
from fettle.dra import Unreadable, nano
from fettle.lint.manifests import Field
from fettle.lint.names import is_mark
from fettle.lint.refusals.wording import (
    why_no_label,
    why_no_qualified_name,
    why_no_subdomain,
    why_no_value,
)

Form = Callable[[Any], str]
"""What is wrong with a value; "" if nothing is."""
Place = tuple[str, str]
"""A type and a field of it; `*` as the field means the keys of a map: `("T", "labels*")`."""

_PORT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LONGEST_PORT_NAME = 15
_VERSION = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_PERCENT = re.compile(r"[0-9]{1,9}%")
_SUBSCRIPT = re.compile(r"metadata\.(annotations|labels)\['[^']+'\]")
_SYSCTL = re.compile(r"[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*")
_LONGEST_IDENTIFIER, _LONGEST_DRIVER = 32, 63
_MOST_MODE, _MOST_ID = 0o777, 2**31 - 1
_OF_ENV = frozenset(
    (
        *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName"),
        *("spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP"),
        "status.podIPs",
    )
)
_OF_VOLUME = frozenset(
    ("metadata.name", "metadata.namespace", "metadata.uid", "metadata.annotations")
) | {"metadata.labels"}
_OF_CONTAINER = frozenset(
    f"{part}.{name}"
    for part in ("limits", "requests")
    for name in ("cpu", "memory", "ephemeral-storage")
)
_HUGE = ("limits.hugepages-", "requests.hugepages-")


# --- forms


def _whole(form: Callable[[str], str]) -> Form:
    """The form of a text; other values, empty texts and marks pass."""

    def why(value: Any) -> str:
        return form(value) if isinstance(value, str) and value and not is_mark(value) else ""

    return why


def _port_name(value: str) -> str:
    if len(value) > _LONGEST_PORT_NAME:
        return f"is longer than {_LONGEST_PORT_NAME} characters"
    if not _PORT_NAME.fullmatch(value) or "--" in value:
        return "may have small letters, digits and single inner hyphens only"
    return "" if any(letter.isalpha() for letter in value) else "needs a letter"


def _address(value: str) -> str:
    try:
        ip_address(value)
    except ValueError:
        return "is no IP address"
    return ""


def _below(value: str) -> str:
    if value.startswith("/"):
        return "must be a relative path"
    return _without_dots(value)


def _without_dots(value: str) -> str:
    return "must not contain '..'" if ".." in value.split("/") else ""


def _absolute(value: str) -> str:
    return "" if value.startswith("/") else "must be an absolute path"


def _trimmed(value: str) -> str:
    return "" if value == value.strip() else "must not begin or end with blanks"


def _variable(value: str) -> str:
    sound = all(" " <= letter <= "~" and letter != "=" for letter in value)
    return "" if sound else "may have printable ASCII characters but '=' only"


def _data_key(value: str) -> str:
    if value in (".", "..") or value.startswith(".."):
        return "must not begin with '..'"
    return "" if _DATA_KEY.fullmatch(value) else "may have letters, digits, '-', '_' and '.' only"


def _driver(value: str) -> str:
    if len(value) > _LONGEST_DRIVER:
        return f"is longer than {_LONGEST_DRIVER} characters"
    return why_no_subdomain(value.lower())


def _pool(value: str) -> str:
    return next(filter(None, map(why_no_subdomain, value.split("/"))), "")


def _identifier(value: str) -> str:
    if len(value) > _LONGEST_IDENTIFIER:
        return f"has a name that is longer than {_LONGEST_IDENTIFIER} characters"
    if _IDENTIFIER.fullmatch(value):
        return ""
    return "has a name with other characters than letters, digits and underscores"


def _attribute(value: str) -> str:
    """The name of an attribute or capacity. Kubernetes does not look at one with two slashes."""
    domain, slash, name = value.partition("/")
    if not slash:
        return _identifier(domain)
    if "/" in name:
        return ""
    if not domain or not name:
        return "needs a domain and a name beside its slash"
    why = _driver(domain)
    return f"has a domain that {why}" if why else _identifier(name)


def _version(value: str) -> str:
    return "" if _VERSION.fullmatch(value) else "is no version such as 1.2.3"


def _short(value: str) -> str:
    return "is longer than 64 characters" if len(value.encode()) > 64 else ""


def _prefixed(value: str) -> str:
    domain, slash, path = value.partition("/")
    if not slash or not path or why_no_subdomain(domain):
        return "must be a domain and a path, such as example.com/controller"
    return ""


def _sysctl(value: str) -> str:
    return "" if _SYSCTL.fullmatch(value) and len(value) <= 253 else "is no name of a sysctl"


def _extended(value: str) -> str:
    if "/" not in value or "kubernetes.io/" in value or value.startswith("requests."):
        return "is no name of an extended resource, such as example.com/gpu"
    return why_no_qualified_name(value)


def _surge(value: Any) -> str:
    if isinstance(value, str):
        is_sound = is_mark(value.removesuffix("%")) or _PERCENT.fullmatch(value)
        return "" if is_sound else "is no percentage"
    return "must be at least 0" if isinstance(value, int) and value < 0 else ""


def _unavailable(value: Any) -> str:
    is_percent = isinstance(value, str) and _PERCENT.fullmatch(value)
    return "is more than 100%" if is_percent and int(value[:-1]) > 100 else _surge(value)


def _between(least: int, most: int) -> Form:
    def why(value: Any) -> str:
        number = isinstance(value, int) and not isinstance(value, bool)
        return "" if not number or least <= value <= most else f"must be {least} to {most}"

    return why


def _mode(value: Any) -> str:
    number = isinstance(value, int) and not isinstance(value, bool)
    wrong = number and not 0 <= value <= _MOST_MODE
    return "must be 0 to 0777 as an octal number" if wrong else ""


def _amount(value: Any) -> str:
    try:
        return "must not be less than 0" if nano(str(value)) < 0 else ""
    except Unreadable:
        return ""


def _own_field(known: frozenset[str], subscripts: bool = True) -> Form:
    def why(value: Any) -> str:
        said = text(mapping(value).get("fieldPath"))
        if not said or said in known or (subscripts and _SUBSCRIPT.fullmatch(said)):
            return ""
        return "" if is_mark(said) else f"{said} is no field that a container may read"

    return why


def _own_resource(value: str) -> str:
    sound = value in _OF_CONTAINER or value.startswith(_HUGE)
    return "" if sound else f"must be one of {', '.join(sorted(_OF_CONTAINER))}"


def _an_object(value: Any) -> str:
    return "" if value is None or isinstance(value, dict) else "must be an object"


def _resource_types(rows: Mapping[Place, Form]) -> dict[Place, Form]:
    """Rows about a type of resource.k8s.io, for all its versions."""
    versions = ("v1", "v1alpha3", "v1beta1", "v1beta2")
    return {(f"resource.{v}.{t}", f): form for (t, f), form in rows.items() for v in versions}


_LABEL, _NAME, _KEY = _whole(why_no_label), _whole(why_no_subdomain), _whole(why_no_qualified_name)
_DRIVER, _ATTRIBUTE, _ADDRESS = _whole(_driver), _whole(_attribute), _whole(_address)
_ID, _PORT = _between(0, _MOST_ID), _whole(_port_name)
_KEEP = ("Delete", "Retain")
_MAP_KEYS = {"matchLabels*": _KEY, "matchLabels": _whole(why_no_value)}

FORMS: Mapping[Place, Form] = {
    ("core.v1.PodSpec", "hostname"): _LABEL,
    ("core.v1.PodSpec", "subdomain"): _LABEL,
    ("core.v1.PodSpec", "serviceAccountName"): _NAME,
    ("core.v1.PodSpec", "nodeName"): _NAME,
    ("core.v1.PodSpec", "priorityClassName"): _NAME,
    ("core.v1.PodSpec", "runtimeClassName"): _NAME,
    ("core.v1.PodSpec", "activeDeadlineSeconds"): _between(1, _MOST_ID),
    ("core.v1.PodSchedulingGate", "name"): _KEY,
    ("core.v1.PodReadinessGate", "conditionType"): _KEY,
    ("core.v1.Toleration", "key"): _KEY,
    ("core.v1.NodeSelectorRequirement", "key"): _KEY,
    ("core.v1.TopologySpreadConstraint", "minDomains"): _between(1, _MOST_ID),
    ("core.v1.PodAffinityTerm", "topologyKey"): _KEY,
    ("core.v1.PodAffinityTerm", "namespaces"): _LABEL,
    ("core.v1.ContainerPort", "name"): _PORT,
    ("core.v1.HTTPGetAction", "port"): _PORT,
    ("core.v1.TCPSocketAction", "port"): _PORT,
    ("core.v1.Container", "image"): _whole(_trimmed),
    ("core.v1.VolumeMount", "subPath"): _whole(_below),
    ("core.v1.VolumeMount", "subPathExpr"): _whole(_below),
    ("core.v1.HostPathVolumeSource", "path"): _whole(_without_dots),
    ("core.v1.NFSVolumeSource", "path"): _whole(_absolute),
    ("core.v1.EmptyDirVolumeSource", "sizeLimit"): _amount,
    ("core.v1.KeyToPath", "path"): _whole(_below),
    ("core.v1.KeyToPath", "mode"): _mode,
    ("core.v1.ConfigMapVolumeSource", "defaultMode"): _mode,
    ("core.v1.SecretVolumeSource", "defaultMode"): _mode,
    ("core.v1.ProjectedVolumeSource", "defaultMode"): _mode,
    ("core.v1.DownwardAPIVolumeSource", "defaultMode"): _mode,
    ("core.v1.DownwardAPIVolumeFile", "fieldRef"): _own_field(_OF_VOLUME),
    ("core.v1.DownwardAPIVolumeFile", "path"): _whole(_below),
    ("core.v1.EnvVar", "name"): _whole(_variable),
    ("core.v1.EnvVarSource", "fieldRef"): _own_field(_OF_ENV),
    ("core.v1.ResourceFieldSelector", "resource"): _whole(_own_resource),
    ("core.v1.ConfigMapKeySelector", "key"): _whole(_data_key),
    ("core.v1.SecretKeySelector", "key"): _whole(_data_key),
    ("core.v1.Sysctl", "name"): _whole(_sysctl),
    ("core.v1.SecurityContext", "runAsUser"): _ID,
    ("core.v1.SecurityContext", "runAsGroup"): _ID,
    ("core.v1.PodSecurityContext", "runAsUser"): _ID,
    ("core.v1.PodSecurityContext", "runAsGroup"): _ID,
    ("core.v1.PodSecurityContext", "fsGroup"): _ID,
    ("core.v1.ResourceClaim", "request"): _LABEL,
    ("core.v1.Probe", "terminationGracePeriodSeconds"): _between(1, 2**63 - 1),
    ("core.v1.PodDNSConfig", "nameservers"): _ADDRESS,
    ("core.v1.HostAlias", "ip"): _ADDRESS,
    ("core.v1.HostAlias", "hostnames"): _NAME,
    **{("meta.v1.LabelSelector", name): form for name, form in _MAP_KEYS.items()},
    ("meta.v1.LabelSelectorRequirement", "key"): _KEY,
    ("meta.v1.LabelSelectorRequirement", "values"): _whole(why_no_value),
    ("batch.v1.JobSpec", "managedBy"): _whole(_prefixed),
    ("batch.v1.PodFailurePolicyOnPodConditionsPattern", "type"): _KEY,
    ("batch.v1.SuccessPolicyRule", "succeededCount"): _between(0, _MOST_ID),
    ("apps.v1.RollingUpdateDeployment", "maxSurge"): _surge,
    ("apps.v1.RollingUpdateDeployment", "maxUnavailable"): _unavailable,
    ("apps.v1.RollingUpdateDaemonSet", "maxSurge"): _unavailable,
    ("apps.v1.RollingUpdateDaemonSet", "maxUnavailable"): _unavailable,
    ("apps.v1.RollingUpdateStatefulSetStrategy", "partition"): _between(0, _MOST_ID),
    ("apps.v1.StatefulSetSpec", "serviceName"): _LABEL,
    ("apps.v1.StatefulSetOrdinals", "start"): _between(0, _MOST_ID),
    **_resource_types(
        {
            ("DeviceTaint", "key"): _KEY,
            ("DeviceTaint", "value"): _whole(why_no_value),
            ("DeviceToleration", "key"): _KEY,
            ("DeviceToleration", "value"): _whole(why_no_value),
            ("DeviceTaintSelector", "driver"): _DRIVER,
            ("DeviceTaintSelector", "pool"): _whole(_pool),
            ("DeviceTaintSelector", "device"): _LABEL,
            ("DeviceConstraint", "matchAttribute"): _ATTRIBUTE,
            ("DeviceConstraint", "distinctAttribute"): _ATTRIBUTE,
            ("OpaqueDeviceConfiguration", "driver"): _DRIVER,
            ("OpaqueDeviceConfiguration", "parameters"): _an_object,
            ("DeviceClassSpec", "extendedResourceName"): _whole(_extended),
            ("ResourceSliceSpec", "driver"): _DRIVER,
            ("ResourceSliceSpec", "nodeName"): _NAME,
            ("ResourcePool", "name"): _whole(_pool),
            ("ResourcePool", "resourceSliceCount"): _between(1, 2**63 - 1),
            ("ResourcePool", "generation"): _between(0, 2**63 - 1),
            ("Device", "name"): _LABEL,
            ("Device", "attributes*"): _ATTRIBUTE,
            ("Device", "capacity*"): _ATTRIBUTE,
            ("Device", "bindingConditions"): _KEY,
            ("BasicDevice", "attributes*"): _ATTRIBUTE,
            ("BasicDevice", "capacity*"): _ATTRIBUTE,
            ("DeviceAttribute", "string"): _whole(_short),
            ("DeviceAttribute", "version"): _whole(_version),
            ("CounterSet", "name"): _LABEL,
            ("CounterSet", "counters*"): _LABEL,
            ("DeviceCounterConsumption", "counterSet"): _LABEL,
        }
    ),
}
"""The form of a field's value, or of each entry of its list or map."""

_RESOURCE_LENGTHS = {
    ("Device", "taints"): 16,
    ("BasicDevice", "taints"): 16,
    ("Device", "bindingConditions"): 4,
    ("Device", "bindingFailureConditions"): 4,
    ("Device", "consumesCounters"): 2,
    ("ResourceSliceSpec", "devices"): 128,
    ("ResourceSliceSpec", "sharedCounters"): 8,
    ("CounterSet", "counters"): 32,
    ("DeviceConstraint", "requests"): 32,
    ("DeviceClassSpec", "config"): 32,
}
LENGTHS: Mapping[Place, int] = {
    ("batch.v1.PodFailurePolicy", "rules"): 20,
    ("batch.v1.PodFailurePolicyRule", "onPodConditions"): 20,
    ("batch.v1.SuccessPolicy", "rules"): 20,
    ("core.v1.PodDNSConfig", "nameservers"): 3,
    ("core.v1.Container", "restartPolicyRules"): 20,
    **{
        (f"resource.{v}.{type}", name): most
        for (type, name), most in _RESOURCE_LENGTHS.items()
        for v in ("v1", "v1beta1", "v1beta2")
    },
}
"""How many entries a list or map may have."""

_RESOURCE_KEYS: Mapping[Place, tuple[str, ...]] = {
    ("ResourceSliceSpec", "devices"): ("name",),
    ("ResourceSliceSpec", "sharedCounters"): ("name",),
    ("DeviceConstraint", "requests"): (),
    ("DeviceClaimConfiguration", "requests"): (),
}
UNIQUE: Mapping[Place, tuple[str, ...]] = {
    ("core.v1.PodSpec", "schedulingGates"): ("name",),
    ("core.v1.PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("core.v1.Container", "resizePolicy"): ("resourceName",),
    **{
        (f"resource.{v}.{type}", name): keys
        for (type, name), keys in _RESOURCE_KEYS.items()
        for v in ("v1", "v1beta1", "v1beta2")
    },
}
"""Which fields of two entries of a list may not be alike; none: the entries themselves."""

REQUIRED: Mapping[str, str] = {
    "core.v1.SecretVolumeSource": "secretName",
    "core.v1.EphemeralVolumeSource": "volumeClaimTemplate",
    "core.v1.ImageVolumeSource": "reference",
    "core.v1.ConfigMapKeySelector": "name",
    "core.v1.SecretKeySelector": "name",
    "core.v1.ConfigMapEnvSource": "name",
    "core.v1.SecretEnvSource": "name",
    "core.v1.ConfigMapVolumeSource": "name",
    "core.v1.ConfigMapProjection": "name",
    "core.v1.SecretProjection": "name",
    **{
        f"resource.{v}.{type}": "counters"
        for v in ("v1", "v1beta1", "v1beta2")
        for type in ("CounterSet", "DeviceCounterConsumption")
    },
}
"""A field without which an object of the type is refused, though the API says it is optional."""

ALLOWED: Mapping[Place, tuple[str, ...]] = {
    ("core.v1.ContainerResizePolicy", "resourceName"): ("cpu", "memory"),
    ("apps.v1.StatefulSetUpdateStrategy", "type"): ("OnDelete", "RollingUpdate"),
    ("apps.v1.DaemonSetUpdateStrategy", "type"): ("OnDelete", "RollingUpdate"),
    ("apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy", "whenDeleted"): _KEEP,
    ("apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy", "whenScaled"): _KEEP,
}
"""The values of fields of which the API server publishes no list."""


# --- a field


def wrong_forms(type: str, name: str, member: Field) -> Iterator[tuple[Field, str]]:
    """What is wrong with the value of a field, or with an entry or key of it."""
    if form := FORMS.get((type, name)):
        if isinstance(member.value, list):
            entries = list(member.entries())
        elif isinstance(member.value, dict) and name == "matchLabels":
            entries = [field for _, field in member.members()]
        else:
            entries = [member]
        for entry in entries:
            if why := form(entry.value):
                yield entry, _said(entry.value, why)
    if form := FORMS.get((type, f"{name}*")):
        for key, field in member.members():
            if why := form(key):
                yield field, f"the key {key[:80]!r} {why}"


def _said(value: Any, why: str) -> str:
    return f"{value[:80]!r} {why}" if isinstance(value, str) else why


def repeated(type: str, name: str, member: Field) -> Iterator[tuple[Field, str]]:
    """Entries of a list that repeat an earlier one where none may."""
    keys = UNIQUE.get((type, name))
    if keys is None or not isinstance(member.value, list):
        return
    seen: set[str] = set()
    for entry in member.entries():
        said = [str(mapping(entry.value).get(key)) for key in keys] or [str(entry.value)]
        if (key := " ".join(said)) in seen:
            yield entry, f"{key[:80]} is there already"
        seen.add(key)
