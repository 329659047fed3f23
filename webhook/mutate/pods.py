"""What is injected into pods: node tolerations, container restart rules, and the marker.

The marker is an extended resource that no node has. A pod with claims requests zero of it: then
the scheduler calls the extender for the pod, and zero fits on every node. Pods of schedulers that
do not call Fettle get none.
"""

from collections.abc import Sequence

from fettle.api.raw import Raw, integer, mapping, mappings, strings, text
from fettle.dra import IMPLICIT_CLASS_PREFIX, MARKER
from fettle.model import JOB_EXIT_CODES, RestartAction, Tolerations
from webhook.mutate.injection import Injection
from webhook.patches import FieldPath

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a static pod's mirror: the kubelet owns it and recreates it after any change."""
DEFAULT_TOLERATION_SECONDS = 300
"""What the API server's DefaultTolerationSeconds adds; the same value counts as not written."""

_CONTAINERS = FieldPath().at("spec", "containers")


def uses_devices(spec: Raw) -> bool:
    """Whether it has claims, or an extended resource: only their names contain a slash."""
    return bool(spec.get("resourceClaims")) or any("/" in name for name in _limits(spec))


def needs_marker(spec: Raw) -> bool:
    """Whether the scheduler would not call an extender for it without the marker.

    So it is for claims, and for an extended resource by a DeviceClass's name: the scheduler makes
    a claim for it, and an extender's managedResources cannot list it.
    """
    names = _limits(spec)
    by_class = any(name.startswith(IMPLICIT_CLASS_PREFIX) for name in names)
    return (bool(spec.get("resourceClaims")) or by_class) and MARKER not in names


def add_marker(injection: Injection) -> None:
    """Put the marker on the first container: as a limit, and as the equal request it needs."""
    # Zero: if another resource of the pod belongs to a DeviceClass, `filterExtendedResources` of
    # the scheduler's DRA plugin looks for any larger amount, even of a resource that it is to
    # ignore.
    for part in ("limits", "requests"):
        injection.set(_CONTAINERS.at(0, "resources", part, MARKER), "0")


def remove_marker(injection: Injection) -> None:
    """Remove the marker that an earlier injection added.

    Another webhook may have given the pod to a scheduler that does not call Fettle.
    """
    names = [name for name in injection.before.values if name.endswith(f"[{MARKER}]")]
    if not names:
        return
    for index, container in mappings(mapping(injection.document, "spec").get("containers")):
        for part in ("limits", "requests"):
            if MARKER in mapping(container, "resources", part):
                injection.remove(_CONTAINERS.at(index, "resources", part, MARKER))
    for name in names:
        injection.forget(name)


def add_restart_rules(
    injection: Injection, exit_codes: Sequence[int], action: RestartAction = RestartAction.RESTART
) -> None:
    """Restart containers in place after these exit codes, if the pod would have failed.

    A container with a restart policy of its own keeps it. Exit codes that the pod's Job acts on are
    left out: for a rule of its podFailurePolicy to apply, the pod must fail.
    """
    spec = mapping(injection.document, "spec")
    annotations = strings(mapping(injection.document, "metadata").get("annotations"))
    of_job = annotations.get(JOB_EXIT_CODES, "").split(",")
    exit_codes = [code for code in exit_codes if str(code) not in of_job]
    if not exit_codes or spec.get("restartPolicy") != "Never":
        return
    codes = {"operator": "In", "values": sorted(exit_codes)}
    for index, container in mappings(spec.get("containers")):
        if container.get("restartPolicy") is None and container.get("restartPolicyRules") is None:
            field = _CONTAINERS.entry(index, text(container.get("name")) or str(index))
            injection.set(field.at("restartPolicy"), "Never")
            rules = [{"action": str(action), "exitCodes": codes}]
            injection.set(field.at("restartPolicyRules"), rules)


def add_node_tolerations(injection: Injection, seconds: Tolerations) -> None:
    """How long the pod stays on a node that is not ready or unreachable."""
    for taint, wanted in (
        ("node.kubernetes.io/not-ready", seconds.not_ready_seconds),
        ("node.kubernetes.io/unreachable", seconds.unreachable_seconds),
    ):
        if wanted is not None and wanted != DEFAULT_TOLERATION_SECONDS:
            _tolerate(injection, taint, wanted)


def _tolerate(injection: Injection, taint: str, seconds: int) -> None:
    # Eviction follows the first toleration that matches, so a second one would be ignored.
    field = FieldPath().at("spec", "tolerations")
    name = f"spec.tolerations[{taint}].tolerationSeconds"
    for index, toleration in mappings(mapping(injection.document, "spec").get("tolerations")):
        if _matches(toleration, taint):
            if _is_default(toleration, taint):
                path = field.at(index, "tolerationSeconds").path
                injection.set(FieldPath(path, name), seconds)
            return
    added = {
        "key": taint,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }
    injection.append(field, added, name=name, recorded=seconds)


def _matches(toleration: Raw, taint: str) -> bool:
    """As `ToleratesTaint` of the Kubernetes API; these taints have no value."""
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
