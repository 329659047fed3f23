"""Webhook configurations fitted to what a cluster serves: only kinds that are there, and
resource.k8s.io in the best version that is. Pure.

A rule on a version that is not served matches nothing, whatever matchPolicy says: the API server
converts only between versions that it serves. One version is enough where several are served.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fettle.client import ServedKind
from fettle.config import WorkloadSettings

Object = dict[str, Any]
Served = Mapping[str, Sequence[ServedKind]]
"""By API group."""

READ: Mapping[str, tuple[str, ...]] = {"resource.k8s.io": ("v1", "v1beta2", "v1beta1")}
"""Groups of which the webhook reads more versions than a rule names, the best first."""
_OF_OWN_WORKLOADS = ("workloads.mutate.fettle.dev", "gangs.validate.fettle.dev")
"""The entries whose conditions hold for any kind of workload."""


def groups(configurations: Iterable[Object], workloads: Iterable[WorkloadSettings]) -> set[str]:
    """The API groups that must be discovered."""
    rules = (rule for entry in _entries(configurations) for rule in entry.get("rules") or ())
    named = {group for rule in rules for group in rule["apiGroups"]}
    return named | {workload.group for workload in workloads}


def fitted(configuration: Object, served: Served, workloads: Iterable[WorkloadSettings]) -> Object:
    """The configuration with rules for what is served; an entry that is left without is dropped.

    `workloads` are the settings' own kinds: they get rules too, to be changed and to be judged.
    """
    kept = []
    fitting = [
        (entry, [new for rule in entry.get("rules") or () for new in _rules(rule, served)])
        for entry in _entries([configuration])
    ]
    shipped = [rule for _, rules in fitting for rule in rules]
    for entry, rules in fitting:
        if entry["name"] in _OF_OWN_WORKLOADS:
            rules += _own(workloads, served, shipped)
        if rules:
            kept.append({**entry, "rules": rules})
    return {**configuration, "webhooks": kept}


def _entries(configurations: Iterable[Object]) -> Iterator[Object]:
    for configuration in configurations:
        yield from configuration.get("webhooks") or ()


def _rules(rule: Object, served: Served) -> Iterator[Object]:
    """The rule for each of its groups, as far as that is served."""
    for group in rule["apiGroups"]:
        there = served.get(group, ())
        for version in READ.get(group, tuple(rule["apiVersions"])):
            plurals = {kind.plural for kind in there if kind.version == version}
            if resources := [name for name in rule["resources"] if name in plurals]:
                new = {"apiGroups": [group], "apiVersions": [version], "resources": resources}
                yield {**rule, **new}
                break


def _own(
    workloads: Iterable[WorkloadSettings], served: Served, rules: Sequence[Object]
) -> Iterator[Object]:
    ruled = {(group, name) for r in rules for group in r["apiGroups"] for name in r["resources"]}
    for workload in workloads:
        found = (kind for kind in served.get(workload.group, ()) if kind.kind == workload.kind)
        kind = next(found, None)
        if kind is not None and (workload.group, kind.plural) not in ruled:
            yield {
                "apiGroups": [workload.group],
                "apiVersions": [kind.version],
                "operations": ["CREATE", "UPDATE"],
                "resources": [kind.plural],
                "scope": "Namespaced",
            }
