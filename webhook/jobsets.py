"""What is injected into JobSets: the policy's failurePolicy, where the author wrote none.

A rule for some replicated Jobs is narrowed to those that are there, since JobSet refuses the names
of others; with none left it is left out, since a rule for no Jobs is one for all of them.

It is immutable once the JobSet exists. The Jobs that a JobSet makes get theirs when they are made.
"""

from typing import Any

import msgspec

from fettle.api.raw import Raw, mapping, mappings, text
from fettle.model import Failure
from webhook.injecting import Injecting
from webhook.places import FieldPath

_PLACE = FieldPath().at("spec", "failurePolicy")
_DEFAULTS = {"maxRestarts": 0, "restartStrategy": "Recreate", "rules": []}
"""What the API adds to an empty failurePolicy, which says the same as none."""


def inject(injecting: Injecting, failure: Failure) -> None:
    spec = mapping(injecting.document, "spec")
    if _says_something(spec.get("failurePolicy")) or failure.job_set is None:
        return
    there = {text(job.get("name")) for _, job in mappings(spec.get("replicatedJobs"))}
    wanted: Raw = msgspec.to_builtins(failure.job_set)
    rules = [_narrowed(injecting, rule, there) for rule in wanted["rules"]]
    wanted = _compact({**wanted, "rules": [rule for rule in rules if rule is not None]})
    if _says_something(wanted):
        injecting.set(_PLACE, wanted)


def _narrowed(injecting: Injecting, rule: Raw, there: set[str]) -> Raw | None:
    """The rule for the replicated Jobs that are there; None where it is for none of them."""
    targets = rule["targetReplicatedJobs"]
    kept = [name for name in targets if name in there]
    if len(kept) == len(targets):
        return rule
    absent = ", ".join(name for name in targets if name not in there)
    outcome = f"is only for {', '.join(kept)}" if kept else "is left out"
    injecting.warn(f"there is no replicated Job {absent}, so its rule {rule['name']} {outcome}")
    return {**rule, "targetReplicatedJobs": kept} if kept else None


def _says_something(written: Any) -> bool:
    if not isinstance(written, dict):
        return written is not None
    return any(value not in (None, _DEFAULTS.get(key)) for key, value in written.items())


def _compact(value: Any) -> Any:
    """Without fields that are null, which the API's schema does not allow."""
    if isinstance(value, dict):
        return {key: _compact(entry) for key, entry in value.items() if entry not in (None, [], ())}
    return [_compact(entry) for entry in value] if isinstance(value, list | tuple) else value
