"""What is injected into JobSets: the policy's failurePolicy, where the author wrote none.

It is immutable once the JobSet exists. The Jobs that a JobSet makes get theirs when they are made.
"""

from typing import Any

import msgspec

from fettle.lint.raw import mapping
from fettle.policy import Failure
from webhook.injecting import Injecting
from webhook.places import Place

_PLACE = Place().at("spec", "failurePolicy")
_DEFAULTS = {"maxRestarts": 0, "restartStrategy": "Recreate", "rules": []}
"""What the API adds to an empty failurePolicy, which says the same as none."""


def inject(injecting: Injecting, failure: Failure) -> None:
    written = mapping(injecting.document, "spec").get("failurePolicy")
    wanted = _compact(msgspec.to_builtins(failure.job_set))
    if _says_something(wanted) and not _says_something(written):
        injecting.set(_PLACE, wanted)


def _says_something(written: Any) -> bool:
    if not isinstance(written, dict):
        return written is not None
    return any(value not in (None, _DEFAULTS.get(key)) for key, value in written.items())


def _compact(value: Any) -> Any:
    """Without fields that say nothing: the API's schema knows no null for them."""
    if isinstance(value, dict):
        return {key: _compact(entry) for key, entry in value.items() if entry not in (None, [], ())}
    return [_compact(entry) for entry in value] if isinstance(value, list | tuple) else value
