"""What nobody is warned of when it is written: unknown rules in stored DevicePolicies, logged once
and counted, and unknown policies in labels of namespaces, logged once.

For a rule that is written now, `validating` returns a warning; others were stored before, or by an
older version that knew the rule. Of a label, only the authors of pods would hear.
"""

from collections.abc import Sequence

import structlog
from prometheus_client import CollectorRegistry, Gauge

from fettle.cluster import Publisher, View
from fettle.lint import unknown_rules
from fettle.model import ANNOTATION

MOST = 100
"""Names in labels that are logged: whoever may label a namespace must not fill the disk."""

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


class UnknownLabels:
    """Namespaces whose label names a policy that there is not: each is logged once for a name."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def tell(self, namespace: str, name: str, known: Sequence[str]) -> None:
        if (namespace, name) in self._told or len(self._told) >= MOST:
            return
        self._told.add((namespace, name))
        _LOG.warning(
            f"a namespace's label {ANNOTATION} names a policy that Fettle does not know, so "
            "pods there that name none themselves are placed by the cluster's default: correct the "
            "label, or apply the policy",
            namespace=namespace,
            policy=name,
            known=known,
        )
