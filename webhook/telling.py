"""What audit mode reports as Events, besides warnings and metrics: they also reach people who see
no warnings because a controller creates their pods.

An object that is being created may never exist, so its Event is recorded on its namespace.
"""

from collections.abc import Callable, Sequence

from fettle.api.raw import mapping, text
from fettle.client import Event, Regarding
from webhook.review import AdmissionRequest, AdmissionResponse

Tell = Callable[[Event], None]
"""Must return at once: a review waits for it."""

CONTROLLER = "fettle.dev/webhook"
_REASONS = {"would_be_denied": "WouldBeRefused", "would_be_patched": "WouldBeChanged"}


def event_of(
    request: AdmissionRequest, answer: AdmissionResponse, result: str, rules: Sequence[str]
) -> Event | None:
    """What to tell of a review; None where there is nothing, or it was a dry run.

    Of objects that are being created, those of one kind with the same findings are alike.
    """
    if not answer.warnings or request.dry_run:
        return None
    reason = _REASONS.get(result, "Warned")
    name = text(mapping(request.object, "metadata").get("generateName")) or "without a name"
    called = f"{request.kind.kind} {request.name or name}"
    return Event(
        regarding=_regarding(request),
        reason=reason,
        action="Review",
        note=f"{called}: {' | '.join(answer.warnings)}",
        series_key=" ".join((request.kind.kind, *sorted(set(rules)))),
        type="Normal" if result == "would_be_patched" else "Warning",
    )


def _regarding(request: AdmissionRequest) -> Regarding:
    metadata = mapping(request.object, "metadata")
    if request.operation == "CREATE" and request.namespace:
        return Regarding("v1", "Namespace", request.namespace, request.namespace)
    return Regarding(
        request.kind.api_version,
        request.kind.kind,
        request.name,
        request.namespace,
        text(metadata.get("uid")),
    )
