"""The Events of audit mode: what the webhook would have refused or changed.

Warnings and metrics say it too, but an Event also reaches people who see no warnings because a
controller creates their pods.
"""

from collections.abc import Callable, Sequence

from fettle.api.raw import mapping, text
from fettle.client import Event, Regarding
from webhook.review import AdmissionRequest, AdmissionResponse

EventSink = Callable[[Event], object]
"""Takes an Event. It must return at once: a review waits for it."""

REPORTING_CONTROLLER = "fettle.dev/webhook"
_REASONS = {"would_be_denied": "WouldBeRefused", "would_be_patched": "WouldBeChanged"}


def audit_event(
    request: AdmissionRequest, answer: AdmissionResponse, result: str, rules: Sequence[str]
) -> Event | None:
    """The Event of a review; None if it has no warnings, or was a dry run."""
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
        # A controller that retries creates objects of many names: the same findings on one kind
        # are one Event, which is counted.
        series_key=" ".join((request.kind.kind, *sorted(set(rules)))),
        type="Normal" if result == "would_be_patched" else "Warning",
    )


def _regarding(request: AdmissionRequest) -> Regarding:
    metadata = mapping(request.object, "metadata")
    if request.operation == "CREATE" and request.namespace:
        # The object may never exist, so the Event is recorded on its namespace.
        return Regarding("v1", "Namespace", request.namespace, request.namespace)
    return Regarding(
        request.kind.api_version,
        request.kind.kind,
        request.name,
        request.namespace,
        text(metadata.get("uid")),
    )
