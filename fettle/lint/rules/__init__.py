"""The rules: one class each, grouped by subject; `RULES` lists them all by id."""

from collections.abc import Iterator
from types import ModuleType

from fettle.lint.findings import Rule
from fettle.lint.rules import (
    amounts,
    api_versions,
    classes,
    configs,
    constraints,
    extended,
    jobs,
    placement,
    references,
    selectors,
)

_SUBJECTS = (
    amounts,
    api_versions,
    classes,
    configs,
    constraints,
    extended,
    jobs,
    placement,
    references,
    selectors,
)


def _rules_of(module: ModuleType) -> Iterator[Rule]:
    for found in vars(module).values():
        if isinstance(found, type) and issubclass(found, Rule) and found is not Rule:
            yield found()


RULES: tuple[Rule, ...] = tuple(
    sorted((rule for module in _SUBJECTS for rule in _rules_of(module)), key=lambda rule: rule.id)
)
ABSENCES = frozenset(rule.id for rule in RULES if rule.absence)
"""Ids of the rules that report an object as missing; it may have been created a moment ago."""
