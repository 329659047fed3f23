"""What CustomResourceDefinitions say of objects in CEL (`x-kubernetes-validations`): cel-python
evaluates it, in the worker for rules about objects. What it cannot evaluate is undecided."""

import time
from collections.abc import Iterable
from itertools import groupby, islice
from typing import TYPE_CHECKING

import msgspec

from fettle.api.raw import Raw
from fettle.lint import (
    BROKEN_RULE,
    Finding,
    Manifest,
    Severity,
    StatedRule,
    schemas_of,
    stated_rules,
)

if TYPE_CHECKING:
    from fettle.cel import ObjectJudge

MOST = 400
"""Evaluations for one object."""
WITHIN_S = 10.0
"""For one object."""


class StatedRules:
    """Those of `named` definitions, which the user has passed, and of those that were `found`, of
    which a cluster may have another release: they only warn."""

    def __init__(self, named: Iterable[Raw], found: Iterable[Raw]) -> None:
        self._named = schemas_of(named)
        self._found = schemas_of(found)
        self._judge: ObjectJudge | None = None

    async def __aenter__(self) -> None:
        """The worker is started once something is to be evaluated."""

    async def __aexit__(self, *_: object) -> None:
        if self._judge is not None:
            await self._judge.close()

    async def broken_by(self, manifest: Manifest) -> list[Finding]:
        key = (manifest.api_version, manifest.kind)
        schema = self._named.get(key) or self._found.get(key)
        if schema is None:
            return []
        severity = None if key in self._named else Severity.WARN
        broken: list[Finding] = []
        open_: dict[str, Finding] = {}
        until = time.monotonic() + WITHIN_S
        rules = stated_rules(schema, manifest.object)
        for field, several in groupby(islice(rules, MOST), key=lambda one: one.field):
            at_once = list(several)
            outcomes = await self._outcomes(at_once, until)
            for rule, outcome in zip(at_once, outcomes, strict=True):
                if outcome is False:
                    broken.append(BROKEN_RULE.finding(field, rule.message, severity=severity))
                elif isinstance(outcome, str):
                    open_.setdefault(rule.expression, _undecided(rule, outcome))
        if (one_more := next(rules, None)) is not None:
            why = f"more than {MOST} rules are about this object, and the rest is not evaluated"
            open_.setdefault("", _undecided(one_more, why))
        return [*broken, *open_.values()]

    async def _outcomes(self, rules: list[StatedRule], until: float) -> tuple[bool | str, ...]:
        """By one value."""
        if time.monotonic() > until:
            return (f"the rules of this object take more than {WITHIN_S:g} s",) * len(rules)
        try:
            given = msgspec.json.encode({"self": rules[0].field.value})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return (f"the value cannot be written as JSON: {error}",) * len(rules)
        if self._judge is None:
            from fettle.cel import ObjectJudge  # late: few objects have such rules

            self._judge = ObjectJudge()
        return await self._judge.conditions([rule.expression for rule in rules], given)


def _undecided(rule: StatedRule, why: str) -> Finding:
    shown = " ".join(rule.expression.split())[:200]
    message = f"whether the rule holds is not known: {why}: {shown}"
    return BROKEN_RULE.finding(rule.field, message, severity=Severity.UNDECIDED)
