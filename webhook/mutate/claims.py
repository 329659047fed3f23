"""What is injected into ResourceClaims and their templates: tolerations and fallbacks.

Tolerations are those of the policy for device taints. A fallback is soft steering: the request
becomes a list of alternatives, first as it was, then tolerating Fettle's taint of degraded devices,
and the scheduler prefers nodes that have the first. Both are injected when the claim is created: a
claim's spec never changes afterwards.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fettle.api.raw import Raw, mappings, text
from fettle.lint import Field, workload_kinds
from fettle.model import DEGRADED_TAINT, PolicyToleration, Tolerations
from webhook.mutate.injection import Injection, Record

MAX_TOLERATIONS = 16
MAX_ALTERNATIVES = 8
"""Of one request: `DeviceTolerationsMaxLength` and `FirstAvailableDeviceRequestMaxSize` of
resource.k8s.io/v1. With more, the API server would refuse the claim."""
SOUND, DEGRADED = "sound", "degraded"
CLAIM_SPECS = {kind: path for kind, (path,) in workload_kinds.CLAIM_SPECS.items()}
"""Where each kind, by API group and name, keeps the spec of a claim."""
_MAX_NAME_LENGTH = 63
_TOLERATES_DEGRADED = {"key": DEGRADED_TAINT, "operator": "Exists", "effect": "NoSchedule"}


class InjectedTolerations(NamedTuple):
    """The tolerations that a request gets, and whether it gets a fallback."""

    tolerations: tuple[Raw, ...] = ()
    fallback: bool = False

    @classmethod
    def from_policy(cls, tolerations: Tolerations) -> "InjectedTolerations":
        entries = (entry for one in tolerations.devices for entry in _entries(one))
        return cls(tuple(entries), tolerations.degraded_as_fallback)

    @classmethod
    def from_record(cls, record: Record, request: Field) -> "InjectedTolerations":
        """What that request was given before, whatever the policy says by now."""
        listed = mappings(record.values.get(request.at("tolerations").path))
        entries = (entry for _, entry in listed if {"key", "effect"} <= entry.keys())
        return cls(tuple(entries), request.at("firstAvailable").path in record.values)


def inject_tolerations(
    injection: Injection,
    spec: workload_kinds.Path,
    wanted_of: Callable[[Field], InjectedTolerations],
) -> None:
    """Into each request of the claim spec at that path, what `wanted_of` says for it."""
    devices = injection.read(*spec, "devices")
    for request in devices.each("requests", named=True):
        wanted = wanted_of(request)
        if options := _options(request.value):
            options = _tolerate(injection, request, options, wanted.tolerations)
            if wanted.fallback and not _is_steered(options):
                options = _fall_back(injection, request, options, devices.value)
            _write(injection, request, options)


def _options(request: Raw) -> list[Raw]:
    """`exactly`, or the alternatives of `firstAvailable`; none if the request is malformed."""
    if _is_flat(request):
        options = [request]
    elif "exactly" in request:
        options = [request["exactly"]]
    else:
        options = _list(request.get("firstAvailable"))
    return options if all(map(_is_option, options)) else []


def _is_flat(request: Raw) -> bool:
    """Whether it is written as in v1beta1, without `exactly`: some clusters serve only that."""
    return "deviceClassName" in request and not {"exactly", "firstAvailable"} & request.keys()


def _is_option(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("tolerations") or [], list)


def _write(injection: Injection, request: Field, options: list[Raw]) -> None:
    """Edit only what differs: tolerations, and alternatives that were added."""
    edit, before = injection.editing, _options(request.value)
    exactly, alternatives = request.at("exactly"), request.at("firstAvailable")
    is_exactly = "exactly" in request.value
    if is_exactly and len(options) > 1:
        edit.remove(exactly.keys)
        edit.set(alternatives.keys, options)
        return
    for index, option in enumerate(options):
        if _is_flat(request.value):
            below = request
        else:
            below = exactly if is_exactly else alternatives.entry(index)
        if index >= len(before):
            edit.append(alternatives.keys, option)
        elif option != before[index]:
            edit.set(below.at("tolerations").keys, option["tolerations"])


# --- tolerations


def _entries(toleration: PolicyToleration) -> Iterator[Raw]:
    # One entry without an effect would let the claim be scheduled onto the device and then evict
    # its pod again, so each effect gets an entry of its own.
    one: dict[str, Any] = {"key": toleration.key, "operator": "Exists"}
    if toleration.value is not None:
        one |= {"operator": "Equal", "value": toleration.value}
    yield {**one, "effect": "NoSchedule"}
    seconds = {} if toleration.seconds is None else {"tolerationSeconds": toleration.seconds}
    yield {**one, "effect": "NoExecute", **seconds}


def _tolerate(
    injection: Injection, request: Field, options: list[Raw], wanted: Sequence[Raw]
) -> list[Raw]:
    """The options with these tolerations, except for taints that their author mentions."""
    lacking = [
        [entry for entry in wanted if not any(_covers(own, entry) for own in _tolerations(option))]
        for option in options
    ]
    changed = [
        {**option, "tolerations": [*_list(option.get("tolerations")), *more]} if more else option
        for option, more in zip(options, lacking, strict=True)
    ]
    if any(len(_list(option.get("tolerations"))) > MAX_TOLERATIONS for option in changed):
        injection.warn(
            f"{request.path} would have more than {MAX_TOLERATIONS} tolerations with those of the "
            "policy, so none are added"
        )
        return options
    if any(lacking):
        added = [entry for entry in wanted if any(entry in more for more in lacking)]
        injection.note(request.at("tolerations").path, added)
    return changed


def _tolerations(option: Raw) -> list[Raw]:
    return [entry for _, entry in mappings(option.get("tolerations"))]


def _covers(own: Raw, wanted: Raw) -> bool:
    """Whether the author's entry mentions this taint and effect already."""
    if text(own.get("effect")) not in ("", wanted["effect"]):
        return False
    exists = own.get("operator") == "Exists"
    if not text(own.get("key")):
        return exists
    if own.get("key") != wanted["key"]:
        return False
    return exists or text(own.get("value")) == text(wanted.get("value"))


# --- alternatives


def _is_steered(options: Sequence[Raw]) -> bool:
    """Whether the author wrote a toleration of degraded devices."""
    return any(
        _covers(entry, _TOLERATES_DEGRADED) for option in options for entry in _tolerations(option)
    )


def _fall_back(injection: Injection, request: Field, options: list[Raw], devices: Raw) -> list[Raw]:
    """The options, followed by the same options with a toleration of degraded devices."""
    exactly = "exactly" in request.value
    names = [] if exactly else [text(option.get("name")) for option in options]
    fallbacks = [f"{name}-{DEGRADED}" for name in names] or [DEGRADED]
    why = _why_no_fallback(request.value, options, names, fallbacks)
    if why := why or _why_not_by_reference(request.value, names, devices):
        injection.warn(f"{request.path} gets no degraded device as a fallback: {why}")
        return options
    injection.note(request.at("firstAvailable").path, fallbacks)
    own = [{"name": SOUND, **_without(options[0], "adminAccess")}] if exactly else options
    return [*own, *fallbacks_of(own, was_exactly=exactly)]


def fallbacks_of(options: Sequence[Raw], *, was_exactly: bool) -> list[Raw]:
    """The same alternatives with a toleration of degraded devices."""
    return [
        {
            **_without(option, "adminAccess"),
            "name": DEGRADED if was_exactly else f"{text(option.get('name'))}-{DEGRADED}",
            "tolerations": [*_tolerations(option), _TOLERATES_DEGRADED],
        }
        for option in options
    ]


def _why_no_fallback(
    request: Raw, options: Sequence[Raw], names: Sequence[str], fallbacks: Sequence[str]
) -> str:
    if _is_flat(request):
        return "a v1beta1 request cannot be given alternatives"
    if any(option.get("adminAccess") for option in options):
        return "adminAccess cannot be combined with alternatives"
    if 2 * len(options) > MAX_ALTERNATIVES:
        return f"a request has at most {MAX_ALTERNATIVES} alternatives"
    if any(len(_tolerations(option)) >= MAX_TOLERATIONS for option in options):
        return f"it already has {MAX_TOLERATIONS} tolerations"
    if {*fallbacks} & {*names} or max(map(len, fallbacks)) > _MAX_NAME_LENGTH:
        return "no name is available for it"
    return ""


def _why_not_by_reference(request: Raw, alternatives: Sequence[str], devices: Raw) -> str:
    """Why a configuration or constraint that names the request would miss its fallback."""
    # Drivers compare the names in a configuration with those of results, which are
    # `request/alternative` then. In a constraint, the name of the request stands for all of them.
    main = text(request.get("name"))
    exact = {f"{main}/{name}" for name in alternatives}
    for kind, names in (("config", {main, *exact}), ("constraints", exact)):
        for index, entry in mappings(devices.get(kind)):
            if names & {text(name) for name in _list(entry.get("requests"))}:
                return f"devices.{kind}[{index}] names it, and would not apply to its fallback"
    return ""


def _without(value: Raw, key: str) -> Raw:
    return {name: member for name, member in value.items() if name != key}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
