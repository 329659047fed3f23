"""What is injected into Jobs: how failures are counted.

A podFailurePolicy is one transaction of four fields. Its rules ignore failures by disruption and
by a failed device, then fail the Job on the policy's exit codes; it is only valid with
restartPolicy Never (otherwise nothing is injected, and a warning says so) and with
podReplacementPolicy Failed (the API's default, TerminatingOrFailed, counts as not written). The
fourth is backoffLimit: a device that crashes a gang fails all its pods at once, before anybody can
mark them, so the API's default of 6 counts as not written and becomes 6 for each pod that runs at
the same time: still six incidents. All of it is immutable once the Job exists, and a Job with a
podFailurePolicy of its own is left as its author wrote it.
"""

from fettle.api.raw import Raw, integer, mapping, mappings, text
from fettle.model import DEVICE_FAILED, JOB_EXIT_CODES, Failure
from webhook.injecting import Injecting
from webhook.places import FieldPath, places, value_at

DEFAULT_BACKOFF_LIMIT = 6
DEFAULT_REPLACEMENT = "TerminatingOrFailed"
_MAX_INT32 = 2**31 - 1
_IGNORED = ("DisruptionTarget", DEVICE_FAILED)
_SPEC = FieldPath().at("spec")
_ONLY_WITH_NEVER = (
    "podFailurePolicy",
    "podReplacementPolicy",
    "backoffLimitPerIndex",
    "backoffLimit",
)
"""The values that make sense only with that restartPolicy."""


def inject(injecting: Injecting, failure: Failure) -> None:
    """Tries for each index, then the transaction."""
    if not _wanted(failure):
        return
    _take_back(injecting)
    spec = mapping(injecting.document, "spec")
    if why := _cannot(spec):
        injecting.warn(why)
        return
    if why := _lacking(injecting, _SPEC, failure):
        injecting.warn(why)
    _limit_each_index(injecting, spec, failure)
    if failure.ignore_disruptions or failure.fail_job_on_exit_codes:
        _transaction(injecting, failure)


def keep_codes(injecting: Injecting, failure: Failure) -> None:
    """Tell the pods after which exit codes they must not restart, as the Job's own rules act on
    them; the Jobs that others make are told so when they are made."""
    place = _SPEC.at("template", "metadata", "annotations", JOB_EXIT_CODES)
    codes = _acted_on(mapping(injecting.document, "spec"), failure)
    if codes and value_at(injecting.document, place.path) is None:
        injecting.set(place, ",".join(map(str, codes)))
        injecting.warn(_kept(_SPEC, codes))


def warn(injecting: Injecting, failure: Failure, path: str) -> None:
    """Warn about what Jobs made from these specs would lack."""
    for place in places(injecting.document, path):
        if codes := _acted_on(mapping(value_at(injecting.document, place.path)), failure):
            injecting.warn(_kept(place, codes))
        why = _cannot(mapping(value_at(injecting.document, place.path)))
        if why and _wanted(failure):
            injecting.warn(f"{place.name}: {why}")
        elif why := _lacking(injecting, place, failure):
            injecting.warn(why)


def _take_back(injecting: Injecting) -> None:
    """What an earlier injection put, where another webhook lets the pods restart since: with it,
    the API server would refuse the Job."""
    spec = mapping(injecting.document, "spec")
    if text(mapping(spec, "template", "spec").get("restartPolicy")) == "Never":
        return
    for name in _ONLY_WITH_NEVER:
        place = _SPEC.at(name)
        if (value := spec.get(name)) is not None and (
            injecting.before.values.get(place.name) == value
        ):
            injecting.remove(place)


def _wanted(failure: Failure) -> bool:
    return bool(
        failure.ignore_disruptions
        or failure.fail_job_on_exit_codes
        or failure.backoff_limit_per_index is not None
    )


def _cannot(spec: Raw) -> str:
    """Why failures of these pods cannot be told apart; "" if they can."""
    if spec.get("podFailurePolicy") is not None:
        return ""
    restart = text(mapping(spec, "template", "spec").get("restartPolicy"))
    if restart == "Never":
        return ""
    return (
        f"restartPolicy is {restart or 'not set'}, so device failures count against backoffLimit; "
        "use Never"
    )


def _lacking(injecting: Injecting, spec: FieldPath, failure: Failure) -> str:
    """What the author's own podFailurePolicy lacks; "" if there is none, or it lacks nothing."""
    place = spec.at("podFailurePolicy")
    own = value_at(injecting.document, place.path)
    if own is None or place.name in injecting.before.values:
        return ""
    rules = [rule for _, rule in mappings(mapping(own).get("rules"))]
    ignored = {
        text(condition.get("type"))
        for rule in rules
        if rule.get("action") == "Ignore"
        for _, condition in mappings(rule.get("onPodConditions"))
    }
    lacking = [c for c in _IGNORED if failure.ignore_disruptions and c not in ignored]
    failed = {
        code
        for rule in rules
        if rule.get("action") == "FailJob" and mapping(rule, "onExitCodes").get("operator") == "In"
        for code in _codes(mapping(rule, "onExitCodes").get("values"))
    }
    missed = sorted({*failure.fail_job_on_exit_codes} - failed)
    said = [f"does not ignore {' and '.join(lacking)}"] if lacking else []
    said += [f"does not fail the Job on {', '.join(map(str, missed))}"] if missed else []
    if not said:
        return ""
    return f"{place.name} is left as written, and {', '.join(said)}"


def _acted_on(spec: Raw, failure: Failure) -> list[int]:
    """The codes to restart on after which a rule of the podFailurePolicy is to act."""
    restarted: set[int] = {*failure.restart_container_on_exit_codes}
    found: set[int] = set()
    for _, rule in mappings(mapping(spec, "podFailurePolicy").get("rules")):
        on = mapping(rule, "onExitCodes")
        named = restarted & _codes(on.get("values"))
        found |= {"In": named, "NotIn": restarted - named}.get(text(on.get("operator")), set())
    return sorted(found)


def _kept(spec: FieldPath, codes: list[int]) -> str:
    listed = ", ".join(map(str, codes))
    return (
        f"{spec.at('podFailurePolicy').name} acts on exit codes that the policy restarts "
        f"containers on, so they are not restarted on {listed}"
    )


def _codes(values: object) -> set[int]:
    return {code for code in values if isinstance(code, int)} if isinstance(values, list) else set()


def _transaction(injecting: Injecting, failure: Failure) -> None:
    spec = mapping(injecting.document, "spec")
    if spec.get("podFailurePolicy") is not None:
        return
    injecting.set(_SPEC.at("podFailurePolicy"), {"rules": _rules(failure)})
    if spec.get("podReplacementPolicy") in (None, DEFAULT_REPLACEMENT):
        injecting.set(_SPEC.at("podReplacementPolicy"), "Failed")
    if failure.ignore_disruptions and (limit := _backoff_limit(spec)) is not None:
        injecting.set(_SPEC.at("backoffLimit"), limit)


def _rules(failure: Failure) -> list[Raw]:
    """The first rule that matches counts, and an evicted pod has an exit code too."""
    rules = [_ignore(condition) for condition in _IGNORED if failure.ignore_disruptions]
    if failure.fail_job_on_exit_codes:
        values = sorted(failure.fail_job_on_exit_codes)
        rules.append({"action": "FailJob", "onExitCodes": {"operator": "In", "values": values}})
    return rules


def _ignore(condition: str) -> Raw:
    return {"action": "Ignore", "onPodConditions": [{"type": condition, "status": "True"}]}


def _limit_each_index(injecting: Injecting, spec: Raw, failure: Failure) -> None:
    """Which needs a limit for the whole Job that is never reached first."""
    indexed = spec.get("completionMode") == "Indexed"
    if failure.backoff_limit_per_index is None or not indexed:
        return
    never = mapping(spec, "template", "spec").get("restartPolicy") == "Never"
    if spec.get("backoffLimitPerIndex") is not None or not never:
        return
    injecting.set(_SPEC.at("backoffLimitPerIndex"), failure.backoff_limit_per_index)
    if spec.get("backoffLimit") in (None, DEFAULT_BACKOFF_LIMIT):
        injecting.set(_SPEC.at("backoffLimit"), _MAX_INT32)


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
