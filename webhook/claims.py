"""What is injected into claims and their templates: the device taints they tolerate, and, where the
policy says so, degraded devices as a fallback.

A claim's spec never changes once it exists, and its tolerations are copied when it is allocated;
so this is done when it is made. Each tolerated taint becomes two entries with explicit effects:
one without an effect is scheduled onto the device and evicted from it again. Soft steering turns a
request into alternatives, first as it was, then tolerating Fettle's taint of degraded devices: the
scheduler prefers nodes where the first can be had.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fettle.api.raw import Raw, mapping, mappings, text
from fettle.lint import shapes
from fettle.model import DEGRADED_TAINT, PolicyToleration, Tolerations
from webhook.injecting import Injecting, Record
from webhook.places import FieldPath, value_at

MOST_TOLERATIONS = 16
MOST_ALTERNATIVES = 8
SOUND, DEGRADED = "sound", "degraded"
CLAIM_SPECS = {kind: FieldPath().at(*path) for kind, (path,) in shapes.CLAIM_SPECS.items()}
"""Where the kinds, by API group and name, keep the spec of a claim."""
_LONGEST_NAME = 63
_EVERY_DEGRADED = {"key": DEGRADED_TAINT, "operator": "Exists", "effect": "NoSchedule"}


class InjectedTolerations(NamedTuple):
    """Tolerations that a request gets, and whether it gets a fallback."""

    tolerations: tuple[Raw, ...] = ()
    fallback: bool = False

    @classmethod
    def by(cls, tolerations: Tolerations) -> "InjectedTolerations":
        entries = (entry for one in tolerations.devices for entry in _entries(one))
        return cls(tuple(entries), tolerations.degraded_as_fallback)

    @classmethod
    def recorded(cls, record: Record, request: FieldPath) -> "InjectedTolerations":
        """What that request got before, whatever the policy says by now."""
        listed = mappings(record.values.get(request.at("tolerations").name))
        entries = (entry for _, entry in listed if {"key", "effect"} <= entry.keys())
        return cls(tuple(entries), request.at("firstAvailable").name in record.values)


def inject(
    injecting: Injecting, spec: FieldPath, wanted_of: Callable[[FieldPath], InjectedTolerations]
) -> None:
    """Into all requests of the claim spec at that place, what is wanted of each."""
    devices = mapping(value_at(injecting.document, spec.at("devices").path))
    for index, request in mappings(devices.get("requests")):
        place = spec.at("devices", "requests").entry(index, text(request.get("name")))
        wanted = wanted_of(place)
        if options := _options(request):
            options = _tolerate(injecting, place, options, wanted.tolerations)
            if wanted.fallback and not _is_steered(options):
                options = _fall_back(injecting, place, request, options, devices)
            _write(injecting, place, request, options)


def _options(request: Raw) -> list[Raw]:
    """What satisfies a request, `exactly` or any of `firstAvailable`; none if it is malformed."""
    if _is_flat(request):
        options = [request]
    elif "exactly" in request:
        options = [request["exactly"]]
    else:
        options = _list(request.get("firstAvailable"))
    return options if all(map(_is_option, options)) else []


def _is_flat(request: Raw) -> bool:
    """As v1beta1 has it, which is all that some clusters serve: what others have in `exactly`."""
    return "deviceClassName" in request and not {"exactly", "firstAvailable"} & request.keys()


def _is_option(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("tolerations") or [], list)


def _write(injecting: Injecting, place: FieldPath, request: Raw, options: list[Raw]) -> None:
    """Only what differs: tolerations, and alternatives that were added."""
    edit, before = injecting.editing, _options(request)
    if "exactly" in request and len(options) > 1:
        edit.remove(place.at("exactly").path)
        edit.set(place.at("firstAvailable").path, options)
        return
    for index, option in enumerate(options):
        if _is_flat(request):
            below = place
        elif "exactly" in request:
            below = place.at("exactly")
        else:
            below = place.at("firstAvailable", index)
        if index >= len(before):
            edit.append(place.at("firstAvailable").path, option)
        elif option != before[index]:
            edit.set(below.at("tolerations").path, option["tolerations"])


# --- tolerations


def _entries(toleration: PolicyToleration) -> Iterator[Raw]:
    one: dict[str, Any] = {"key": toleration.key, "operator": "Exists"}
    if toleration.value is not None:
        one |= {"operator": "Equal", "value": toleration.value}
    yield {**one, "effect": "NoSchedule"}
    seconds = {} if toleration.seconds is None else {"tolerationSeconds": toleration.seconds}
    yield {**one, "effect": "NoExecute", **seconds}


def _tolerate(
    injecting: Injecting, place: FieldPath, options: list[Raw], wanted: Sequence[Raw]
) -> list[Raw]:
    """The options with these tolerations, as far as their author has not spoken of the taint."""
    lacking = [
        [entry for entry in wanted if not any(_covers(own, entry) for own in _tolerations(option))]
        for option in options
    ]
    changed = [
        {**option, "tolerations": [*_list(option.get("tolerations")), *more]} if more else option
        for option, more in zip(options, lacking, strict=True)
    ]
    if any(len(_list(option.get("tolerations"))) > MOST_TOLERATIONS for option in changed):
        injecting.warn(
            f"{place.name} would have more than {MOST_TOLERATIONS} tolerations with those of the "
            "policy, so none are added"
        )
        return options
    if any(lacking):
        added = [entry for entry in wanted if any(entry in more for more in lacking)]
        injecting.note(place.at("tolerations").name, added)
    return changed


def _tolerations(option: Raw) -> list[Raw]:
    return [entry for _, entry in mappings(option.get("tolerations"))]


def _covers(own: Raw, wanted: Raw) -> bool:
    """Whether the author has spoken of this taint and effect already."""
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
    """Whether degraded devices are taken already, which is the author's word."""
    return any(
        _covers(entry, _EVERY_DEGRADED) for option in options for entry in _tolerations(option)
    )


def _fall_back(
    injecting: Injecting, place: FieldPath, request: Raw, options: list[Raw], devices: Raw
) -> list[Raw]:
    """The options, and after them the same again, tolerating degraded devices."""
    exactly = "exactly" in request
    names = [] if exactly else [text(option.get("name")) for option in options]
    fallbacks = [f"{name}-{DEGRADED}" for name in names] or [DEGRADED]
    why = _no_fallback(request, options, names, fallbacks)
    if why := why or _referrer(request, names, devices):
        injecting.warn(f"{place.name} gets no degraded device as a fallback: {why}")
        return options
    injecting.note(place.at("firstAvailable").name, fallbacks)
    own = [{"name": SOUND, **_without(options[0], "adminAccess")}] if exactly else options
    return [*own, *fallbacks_of(own, was_exactly=exactly)]


def fallbacks_of(options: Sequence[Raw], *, was_exactly: bool) -> list[Raw]:
    """The same alternatives again, tolerating degraded devices."""
    return [
        {
            **_without(option, "adminAccess"),
            "name": DEGRADED if was_exactly else f"{text(option.get('name'))}-{DEGRADED}",
            "tolerations": [*_tolerations(option), _EVERY_DEGRADED],
        }
        for option in options
    ]


def _no_fallback(
    request: Raw, options: Sequence[Raw], names: Sequence[str], fallbacks: Sequence[str]
) -> str:
    if _is_flat(request):
        return "a v1beta1 request cannot be given alternatives"
    if any(option.get("adminAccess") for option in options):
        return "adminAccess cannot be combined with alternatives"
    if 2 * len(options) > MOST_ALTERNATIVES:
        return f"a request has at most {MOST_ALTERNATIVES} alternatives"
    if any(len(_tolerations(option)) >= MOST_TOLERATIONS for option in options):
        return f"it already has {MOST_TOLERATIONS} tolerations"
    if {*fallbacks} & {*names} or max(map(len, fallbacks)) > _LONGEST_NAME:
        return "no name is available for it"
    return ""


def _referrer(request: Raw, alternatives: Sequence[str], devices: Raw) -> str:
    """What refers to the request in a way that would not reach its fallback.

    Drivers compare the names in a configuration with those of results, which then are
    `request/alternative`; constraints take the name of the request for all of them.
    """
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
