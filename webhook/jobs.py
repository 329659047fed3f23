"""What is injected into Jobs: how failures are counted, and the policy's name for their pods.

A podFailurePolicy is one transaction of four fields. Its rules ignore failures by disruption and
by a failed device; it is only valid with restartPolicy Never (otherwise nothing is injected, and a
warning says so) and with podReplacementPolicy Failed (the API's default, TerminatingOrFailed,
counts as not written). The fourth is backoffLimit: a device that crashes a gang fails all its pods
at once, before anybody can mark them, so the API's default of 6 counts as not written and becomes
6 for each pod that runs at the same time: still six incidents. All of it is immutable once the Job
exists, and a Job with a podFailurePolicy of its own is left as its author wrote it.
"""

from fettle.lint.raw import Raw, integer, mapping, strings, text
from fettle.policy import ANNOTATION, DEVICE_FAILED, MIN_SCORE_ANNOTATION
from fettle.policy import ON_DEVICE_FAILURE_ANNOTATION as ON_FAILURE
from webhook.injecting import Injecting

DEFAULT_BACKOFF_LIMIT = 6
_MAX_INT32 = 2**31 - 1
_IGNORED = ("DisruptionTarget", DEVICE_FAILED)
_TEMPLATE = ("spec", "template")


def stamp(injecting: Injecting) -> None:
    """Copy the policy annotations to the pod template; what the template says itself stays."""
    own = strings(mapping(injecting.document, "metadata").get("annotations"))
    theirs = mapping(injecting.document, *_TEMPLATE, "metadata", "annotations")
    for key in (ANNOTATION, MIN_SCORE_ANNOTATION, ON_FAILURE):
        if key in own and key not in theirs:
            injecting.set((*_TEMPLATE, "metadata", "annotations", key), own[key])


def ignore_disruptions(injecting: Injecting, policy: str) -> None:
    spec = mapping(injecting.document, "spec")
    if spec.get("podFailurePolicy") is not None:
        return
    restart = text(mapping(spec, "template", "spec").get("restartPolicy"))
    if restart != "Never":
        injecting.warnings.append(
            f"fettle: policy {policy}: restartPolicy is {restart or 'not set'}, so device failures "
            "count against backoffLimit; use Never"
        )
        return
    rules = [_ignore(condition) for condition in _IGNORED]
    injecting.set(("spec", "podFailurePolicy"), {"rules": rules})
    if spec.get("podReplacementPolicy") in (None, "TerminatingOrFailed"):
        injecting.set(("spec", "podReplacementPolicy"), "Failed")
    if (limit := _backoff_limit(spec)) is not None:
        injecting.set(("spec", "backoffLimit"), limit)


def _ignore(condition: str) -> Raw:
    return {"action": "Ignore", "onPodConditions": [{"type": condition, "status": "True"}]}


def _backoff_limit(spec: Raw) -> int | None:
    """None: leave it. With a limit per index, the API's default is no longer 6."""
    written = integer(spec.get("backoffLimit"))
    if spec.get("backoffLimitPerIndex") is not None:
        return None
    if spec.get("backoffLimit") is not None and written != DEFAULT_BACKOFF_LIMIT:
        return None
    parallelism = integer(spec.get("parallelism"))
    parallelism = 1 if parallelism is None else parallelism
    completions = integer(spec.get("completions"))
    at_once = parallelism if completions is None else min(parallelism, completions)
    limit = min(DEFAULT_BACKOFF_LIMIT * max(at_once, 1), _MAX_INT32)
    return limit if limit != DEFAULT_BACKOFF_LIMIT else None
