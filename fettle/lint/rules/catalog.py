"""All rules, in the order of their ids: every class of rule in the modules named here."""

from collections.abc import Iterator
from types import ModuleType

from fettle.lint.findings import Rule
from fettle.lint.rules import (
    capacities,
    classes,
    configs,
    constraints,
    containers,
    counts,
    domains,
    extended,
    jobs,
    placement,
    quotas,
    references,
    restarts,
    selectors,
    tolerations,
    versions,
)

_SUBJECTS = (
    capacities,
    classes,
    configs,
    constraints,
    containers,
    counts,
    domains,
    extended,
    jobs,
    placement,
    quotas,
    references,
    restarts,
    selectors,
    tolerations,
    versions,
)


def _rules(module: ModuleType) -> Iterator[Rule]:
    for found in vars(module).values():
        if isinstance(found, type) and issubclass(found, Rule) and found is not Rule:
            yield found()


RULES: tuple[Rule, ...] = tuple(
    sorted((rule for module in _SUBJECTS for rule in _rules(module)), key=lambda rule: rule.id)
)
ABSENCES = frozenset(rule.id for rule in RULES if rule.absence)
"""Rules that miss an object by its name."""
