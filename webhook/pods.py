"""What is injected into pods: the policy's node tolerations, the exit codes after which a container
starts again, and the marker of pods with claims.

The marker is an extended resource that no node has, of which a pod requests none: a scheduler asks
the extender about pods that name it, and finds room for zero of it anywhere. Pods of schedulers
that do not ask are left without.
"""

from collections.abc import Sequence

from fettle.api.raw import Raw, integer, mapping, mappings, strings, text
from fettle.dra import IMPLICIT_CLASS_PREFIX, MARKER
from fettle.model import JOB_EXIT_CODES, Tolerations
from webhook.injecting import Injecting
from webhook.places import FieldPath

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a static pod's mirror: the kubelet owns it, and a change would recreate it."""
DEFAULT_TOLERATION_SECONDS = 300
"""What the API server's DefaultTolerationSeconds adds; equal to it counts as not written."""

_CONTAINERS = FieldPath().at("spec", "containers")


def uses_devices(spec: Raw) -> bool:
    """Claims, or an extended resource of any name: all native ones have no slash."""
    return bool(spec.get("resourceClaims")) or any("/" in name for name in _limits(spec))


def needs_marker(spec: Raw) -> bool:
    """Claims, or an extended resource by a class's name: the scheduler makes a claim for it, and it
    cannot be among an extender's managedResources."""
    names = _limits(spec)
    by_class = any(name.startswith(IMPLICIT_CLASS_PREFIX) for name in names)
    return (bool(spec.get("resourceClaims")) or by_class) and MARKER not in names


def mark(injecting: Injecting) -> None:
    """Put the marker on the first container: a limit, and the equal request that one needs.

    Zero, since a scheduler looks for more even of what it is to ignore, where a DeviceClass stands
    behind another resource of the pod (`filterExtendedResources` of its DRA plugin).
    """
    for part in ("limits", "requests"):
        injecting.set(_CONTAINERS.at(0, "resources", part, MARKER), "0")


def unmark(injecting: Injecting) -> None:
    """Take away the marker that an earlier injection put: another webhook has given the pod to a
    scheduler that does not ask since."""
    names = [name for name in injecting.before.values if name.endswith(f"[{MARKER}]")]
    if not names:
        return
    for index, container in mappings(mapping(injecting.document, "spec").get("containers")):
        for part in ("limits", "requests"):
            if MARKER in mapping(container, "resources", part):
                injecting.remove(_CONTAINERS.at(index, "resources", part, MARKER))
    for name in names:
        injecting.forget(name)


def restart(injecting: Injecting, exit_codes: Sequence[int]) -> None:
    """Start containers again in place after these codes, where the pod would have ended.

    A container that says itself when it starts again is left as it was written. Not after the codes
    that the pod's Job acts on: to a rule of its podFailurePolicy the pod must fail.
    """
    spec = mapping(injecting.document, "spec")
    annotations = strings(mapping(injecting.document, "metadata").get("annotations"))
    of_job = annotations.get(JOB_EXIT_CODES, "").split(",")
    exit_codes = [code for code in exit_codes if str(code) not in of_job]
    if not exit_codes or spec.get("restartPolicy") != "Never":
        return
    codes = {"operator": "In", "values": sorted(exit_codes)}
    for index, container in mappings(spec.get("containers")):
        if container.get("restartPolicy") is None and container.get("restartPolicyRules") is None:
            place = _CONTAINERS.entry(index, text(container.get("name")) or str(index))
            injecting.set(place.at("restartPolicy"), "Never")
            rules = [{"action": "Restart", "exitCodes": codes}]
            injecting.set(place.at("restartPolicyRules"), rules)


def tolerate(injecting: Injecting, seconds: Tolerations) -> None:
    """The policy's seconds on nodes that are not ready or unreachable."""
    for taint, wanted in (
        ("node.kubernetes.io/not-ready", seconds.not_ready_seconds),
        ("node.kubernetes.io/unreachable", seconds.unreachable_seconds),
    ):
        if wanted is not None and wanted != DEFAULT_TOLERATION_SECONDS:
            _tolerate(injecting, taint, wanted)


def _tolerate(injecting: Injecting, taint: str, seconds: int) -> None:
    """Eviction goes by the first toleration that matches, so a second one would be ignored."""
    place = FieldPath().at("spec", "tolerations")
    name = f"spec.tolerations[{taint}].tolerationSeconds"
    for index, toleration in mappings(mapping(injecting.document, "spec").get("tolerations")):
        if _matches(toleration, taint):
            if _is_default(toleration, taint):
                path = place.at(index, "tolerationSeconds").path
                injecting.set(FieldPath(path, name), seconds)
            return
    added = {
        "key": taint,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }
    injecting.append(place, added, name=name, recorded=seconds)


def _matches(toleration: Raw, taint: str) -> bool:
    """As `ToleratesTaint` of the API; these taints have no value."""
    if text(toleration.get("effect")) not in ("", "NoExecute"):
        return False
    if text(toleration.get("key")) not in ("", taint):
        return False
    operator = text(toleration.get("operator"))
    return operator == "Exists" or (operator in ("", "Equal") and not toleration.get("value"))


def _is_default(toleration: Raw, taint: str) -> bool:
    return (
        toleration.get("key") == taint
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") == "NoExecute"
        and integer(toleration.get("tolerationSeconds")) == DEFAULT_TOLERATION_SECONDS
    )


def _limits(spec: Raw) -> set[str]:
    return {
        name
        for group in ("containers", "initContainers")
        for _, container in mappings(spec.get(group))
        for name in mapping(container, "resources", "limits")
    }
