"""What is injected into pods: node tolerations, container restart rules, and the marker.

The marker is an extended resource that no node has. A pod with claims requests zero of it: then
the scheduler calls the extender for the pod, and zero fits on every node. Pods of schedulers that
do not call Fettle get none.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fettle.api.raw import Raw, integer, text
from fettle.dra import IMPLICIT_CLASS_PREFIX, MARKER, is_device_resource, units_of
from fettle.lint import Field
from fettle.model import JOB_EXIT_CODES, RestartAction, Tolerations
from webhook.mutate.injection import Injection

MIRROR = "kubernetes.io/config.mirror"
"""Annotation of a static pod's mirror: the kubelet owns it and recreates it after any change."""
DEFAULT_TOLERATION_SECONDS = 300
"""What the API server's DefaultTolerationSeconds adds; the same value counts as not written."""


def uses_devices(spec: Field) -> bool:
    """Whether it has claims, or an extended resource: only their names contain a slash."""
    return bool(spec.at("resourceClaims").value) or any("/" in name for name in _limits(spec))


def uses_claims(spec: Field) -> bool:
    """Whether it has claims, or the scheduler makes one for an extended resource by a DeviceClass's
    name."""
    by_class = any(name.startswith(IMPLICIT_CLASS_PREFIX) for name in _limits(spec))
    return bool(spec.at("resourceClaims").value) or by_class


def units_asked(spec: Field) -> dict[str, int]:
    """How many units of each resource of a device plugin a pod asks for: those of its containers
    and sidecars, or of one init container, with the sidecars before it, if that is more."""
    running, peak = Counter[str](), Counter[str]()
    for container in spec.each("initContainers"):
        units = running + _units(container)
        peak |= units
        if container.text("restartPolicy") == "Always":
            running = units
    for container in spec.each("containers"):
        running.update(_units(container))
    return dict(running | peak)


def _units(container: Field) -> Counter[str]:
    limits = container.raw("resources", "limits")
    return Counter(
        {
            name: units
            for name, amount in limits.items()
            if is_device_resource(name)
            and not name.startswith(IMPLICIT_CLASS_PREFIX)
            and (units := _units_of(amount)) > 0
        }
    )


def _units_of(amount: Any) -> int:
    return units_of(amount) if isinstance(amount, int | str) else 0


def needs_marker(spec: Field) -> bool:
    """Whether the scheduler would not call an extender for it without the marker.

    So it is for claims, and for an extended resource by a DeviceClass's name: the scheduler makes
    a claim for it, and an extender's managedResources cannot list it.
    """
    return uses_claims(spec) and MARKER not in _limits(spec)


def add_marker(injection: Injection) -> None:
    """Put the marker on the first container: as a limit, and as the equal request it needs."""
    # Zero: if another resource of the pod belongs to a DeviceClass, `filterExtendedResources` of
    # the scheduler's DRA plugin looks for any larger amount, even of a resource that it is to
    # ignore.
    first = injection.read("spec", "containers").entry(0)
    for part in ("limits", "requests"):
        injection.set(first.at("resources", part, MARKER), "0")


def remove_marker(injection: Injection) -> None:
    """Remove the marker that an earlier injection added.

    Another webhook may have given the pod to a scheduler that does not call Fettle.
    """
    names = [name for name in injection.before.values if name.endswith(f"[{MARKER}]")]
    if not names:
        return
    for container in injection.read("spec").each("containers"):
        for part in ("limits", "requests"):
            if MARKER in container.raw("resources", part):
                injection.remove(container.at("resources", part, MARKER))
    for name in names:
        injection.forget(name)


def add_restart_rules(
    injection: Injection, exit_codes: Sequence[int], action: RestartAction = RestartAction.RESTART
) -> None:
    """Restart containers in place after these exit codes, if the pod would have failed.

    A container with a restart policy of its own keeps it. Exit codes that the pod's Job acts on are
    left out: for a rule of its podFailurePolicy to apply, the pod must fail.
    """
    spec, annotations = injection.read("spec"), injection.read("metadata").strings("annotations")
    of_job = annotations.get(JOB_EXIT_CODES, "").split(",")
    exit_codes = [code for code in exit_codes if str(code) not in of_job]
    if not exit_codes or spec.text("restartPolicy") != "Never":
        return
    codes = {"operator": "In", "values": sorted(exit_codes)}
    for container in spec.each("containers", named=True):
        policy, rules = container.at("restartPolicy"), container.at("restartPolicyRules")
        if not policy.exists and not rules.exists:
            injection.set(policy, "Never")
            injection.set(rules, [{"action": str(action), "exitCodes": codes}])


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
    path = f"spec.tolerations[{taint}].tolerationSeconds"
    tolerations = injection.read("spec", "tolerations")
    for toleration in tolerations.each():
        if _matches(toleration.value, taint):
            if _is_default(toleration.value, taint):
                injection.set(toleration.at("tolerationSeconds")._replace(path=path), seconds)
            return
    added = {
        "key": taint,
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": seconds,
    }
    injection.append(tolerations, added, path=path, recorded=seconds)


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


def _limits(spec: Field) -> set[str]:
    return {
        name
        for group in ("containers", "initContainers")
        for container in spec.each(group)
        for name in container.raw("resources", "limits")
    }
