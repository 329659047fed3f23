"""The Events of mode `observe`: what the webhook would have refused, changed or warned of.

The answer says nothing of it, since in `observe` everything is as if Fettle were not there. An
Event also reaches people who see no warnings because a controller creates their pods.
"""

from collections.abc import Callable, Sequence

from fettle.api.raw import mapping, text
from fettle.client import Event, Regarding
from webhook.review import AdmissionRequest, AdmissionResponse

EventSink = Callable[[Event], object]
"""Takes an Event. It must return at once: a review waits for it."""

REPORTING_CONTROLLER = "fettle.dev/webhook"


def observed_event(
    request: AdmissionRequest, answer: AdmissionResponse, rules: Sequence[str]
) -> Event | None:
    """The Event of a review that would have got this answer; None if that says nothing, or for a
    dry run."""
    fields = ", ".join(str(operation) for operation in answer.patch)
    changes = [f"would be changed: {fields}"] if fields else []
    refusals = [f"would be refused: {reason}" for reason in answer.reasons]
    said = [*refusals, *changes, *answer.warnings]
    if not said or request.dry_run:
        return None
    name = text(mapping(request.object, "metadata").get("generateName")) or "without a name"
    called = f"{request.kind.kind} {request.name or name}"
    return Event(
        regarding=_regarding(request),
        reason="WouldBeRefused" if refusals else "WouldBeChanged" if changes else "Warned",
        action="Review",
        note=f"{called}: {' | '.join(said)}",
        # A controller that retries creates objects of many names: the same findings on one kind
        # are one Event, which is counted.
        series_key=" ".join((request.kind.kind, *sorted(set(rules)))),
        type="Normal" if changes else "Warning",
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
