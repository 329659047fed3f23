"""Which scheduler places the pods of a policy: `spec.schedulerName` of pods and of templates, whose
pods then go by it though the webhook is away.

Only what goes by the default scheduler is given away: who names another one means it.
"""

from collections.abc import Collection, Mapping
from typing import Any

from fettle.api.core import DEFAULT_SCHEDULER
from fettle.api.raw import Raw
from fettle.lint import Field
from webhook.mutate.injection import Injection

_NAME = "schedulerName"
_UNSAID = (None, "", DEFAULT_SCHEDULER)


def inject_scheduler(
    injection: Injection, spec: Field, wanted: str | None, asking: Collection[str] = ()
) -> None:
    """Name the scheduler that a policy wants, or take back what an earlier injection named; None:
    it wants none. `asking`: those that call Fettle."""
    field, before = spec.at(_NAME), injection.before.values
    ours = field.value not in _UNSAID and field.value == before.get(field.path)
    if spec.text("nodeName") or not (ours or field.value in _UNSAID):
        return
    if wanted is None and ours:
        injection.remove(field)
    elif wanted is not None and wanted not in (field.value, DEFAULT_SCHEDULER):
        injection.set(field, wanted)
        if wanted not in asking:
            injection.warn(
                f"scheduler {wanted} is not in the setting scheduler.names, so Fettle has no say "
                "in where it places pods"
            )


def keep_scheduler(
    injection: Injection, spec: Field, stored: Field, values: Mapping[str, Any]
) -> None:
    """Put back what a template had, by the record on the old object."""
    field, before = spec.at(_NAME), stored.at(_NAME)
    if field.value in _UNSAID and before.exists and before.value == values.get(before.path):
        injection.set(field, before.value)


def bare(spec: Raw, path: str, values: Mapping[str, Any]) -> Raw:
    """A pod spec without its scheduler, if that is the default one or what we wrote."""
    if spec.get(_NAME) not in (*_UNSAID, values.get(f"{path}.{_NAME}")):
        return spec
    return {key: value for key, value in spec.items() if key != _NAME}
