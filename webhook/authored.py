"""A claim as its author wrote it: without the alternatives that were injected as a fallback.

The lint rules judge it, so that a mistake is told once, at the field that its author knows. An
alternative is taken away only where the record names it and it is the same as the one it stands in
for; so a forged record hides nothing.
"""

from collections.abc import Sequence
from typing import Any

from fettle.api.raw import Raw, mappings, text
from webhook.claims import CLAIM_SPECS, SOUND, fallbacks_of
from webhook.injecting import record_of
from webhook.places import value_at

Object = dict[str, Any]


def authored(object: Object, kind: tuple[str, str]) -> Object:
    """The object, or a copy without our fallbacks; `kind` is its API group and kind."""
    spec = CLAIM_SPECS.get(kind)
    record = record_of(object)
    if spec is None or not record.values:
        return object
    place = spec.at("devices", "requests")
    requests = value_at(object, place.path)
    restored = {
        index: _without_fallbacks(request)
        for index, request in mappings(requests)
        if place.entry(index, text(request.get("name"))).at("firstAvailable").name in record.values
    }
    if not restored:
        return object
    whole = [restored.get(index, request) for index, request in enumerate(requests)]
    return _with(object, place.path, whole)


def _without_fallbacks(request: Raw) -> Raw:
    """The request with the first half of its alternatives, if the second only repeats it."""
    options = [option for _, option in mappings(request.get("firstAvailable"))]
    half = len(options) // 2
    own, added = options[:half], options[half:]
    if not own or len(options) != len(request["firstAvailable"]):
        return request
    if own[0].get("name") == SOUND and added == fallbacks_of(own, was_exactly=True):
        exactly = {key: value for key, value in own[0].items() if key != "name"}
        bare = {key: value for key, value in request.items() if key != "firstAvailable"}
        return {**bare, "exactly": exactly}
    if added == fallbacks_of(own, was_exactly=False):
        return {**request, "firstAvailable": own}
    return request


def _with(object: Object, path: Sequence[str | int], value: object) -> Object:
    """A copy of the object, along the path of members, with that value there."""
    member, *below = path
    key = str(member)
    return {**object, key: _with(object[key], below, value) if below else value}
