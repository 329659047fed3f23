"""Shows that the webhook gives claims degraded devices as a fallback, by a dry run that creates
nothing. Only then may Degraded devices be tainted: else nobody would get them.
"""

import asyncio
from collections.abc import Iterable
from math import inf

from fettle.api import api_path, kinds, resource
from fettle.client import Session, decoded
from fettle.dra import tolerates
from fettle.model import ANNOTATION, DEGRADED_TAINT, ClusterError, Policy, TaintRef

NAMESPACE = "fettle-dry-run"
"""Objects in Fettle's own namespace are not sent to its webhook."""
EVERY_S = 10.0
TRUSTED_S = 25.0
"""How long a success counts. One call that a busy webhook does not answer in time changes nothing.
"""
MOST_POLICIES = 5
"""How many policies are tried, of those that give a fallback."""
_TAINT = TaintRef(DEGRADED_TAINT, "", "NoSchedule")


class SoftSteering:
    """`problem`: why the last try did not show it, as a sentence; "" if it did."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tried_at = self._shown_at = -inf
        self.problem = ""

    async def works(self, policies: Iterable[Policy]) -> bool:
        """Whether a claim of one of these policies got its fallback lately."""
        now = asyncio.get_running_loop().time()
        if now - self._tried_at >= EVERY_S:
            self._tried_at = now
            self.problem = await self._try(policies)
            if not self.problem:
                self._shown_at = now
        return now - self._shown_at < TRUSTED_S

    async def _try(self, policies: Iterable[Policy]) -> str:
        problem = "no policy has tolerations.degradedAsFallback"
        steering = sorted(p.name for p in policies if p.tolerations.degraded_as_fallback)
        for name in steering[:MOST_POLICIES]:
            try:
                if await self._gets_fallback(name):
                    return ""
                problem = f"the webhook gave a claim of policy {name} no fallback"
            except ClusterError as error:
                problem = f"a claim of policy {name} cannot be tried: {error}"
        return problem

    async def _gets_fallback(self, policy: str) -> bool:
        name = "fettle-dry-run"
        api_version = kinds.CLAIM.api_version
        made = await self._session.create(
            api_path(api_version, kinds.CLAIM.plural, namespace=NAMESPACE),
            {
                "apiVersion": api_version,
                "kind": kinds.CLAIM.name,
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "annotations": {ANNOTATION: policy},
                },
                "spec": {
                    "devices": {
                        "requests": [{"name": "any", "exactly": {"deviceClassName": "fettle.dev"}}]
                    }
                },
            },
            dry_run=True,
        )
        claim = decoded(made, resource.ResourceClaim, "dry-run claim")
        requests = claim.spec.devices.requests if claim.spec.devices is not None else None
        return any(
            tolerates(toleration, _TAINT)
            for request in requests or ()
            for option in request.first_available or ()
            for toleration in option.tolerations or ()
        )
