"""Unknown rules in stored DevicePolicies, logged once and counted.

For one that is written now, `validating` returns a warning; others were stored before, or by an
older version that knew the rule.
"""

import structlog
from prometheus_client import CollectorRegistry, Gauge

from fettle.lint.policies import unknown_rules
from fettle.view import Publisher, View

_LOG = structlog.get_logger("fettle.webhook")


class StoredPolicies:
    """Its metric is registered in the given registry, once. `run` until cancelled."""

    def __init__(self, publisher: Publisher, registry: CollectorRegistry) -> None:
        self._publisher = publisher
        self._ignored = Gauge(
            "fettle_webhook_ignored_rules",
            "Ids in stored DevicePolicies' validation.rules that match no rule",
            registry=registry,
        )
        self._told: frozenset[tuple[str, str]] = frozenset()

    async def run(self) -> None:
        view, looked_at = self._publisher.view, None
        while True:
            if view.policies is not looked_at:
                self._look(view)
                looked_at = view.policies
            view = await self._publisher.newer_than(view.generation)

    def _look(self, view: View) -> None:
        ignored = frozenset(
            (name, rule) for name, policy in view.policies.items() for rule in unknown_rules(policy)
        )
        for name, rule in sorted(ignored - self._told):
            _LOG.warning("a policy names a rule that does not exist", policy=name, rule=rule)
        self._told = ignored
        self._ignored.set(len(ignored))
