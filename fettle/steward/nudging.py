"""The writes that make the scheduler look again at pods which an extender refused. By default one
annotation on a ResourceClaim of our own, which no pod uses and no driver serves: it wakes them all
and needs no right outside our namespace. Without DRA, an annotation on one node.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from fettle.api.meta import micro_time
from fettle.client import Session
from fettle.cluster import View
from fettle.model import PURPOSE, WOKEN_AT, Conflict, NotFound

_NO_CLASS = "never-allocated.fettle.dev"


class Nudge:
    def __init__(self, session: Session, namespace: str, claim: str) -> None:
        self._session = session
        self._claims = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
        self._name = claim

    async def wake(self, view: View, now: float) -> None:
        """Raises ClusterError where the write is refused."""
        at = micro_time(datetime.fromtimestamp(now, UTC))
        stamp = {"metadata": {"annotations": {WOKEN_AT: at}}}
        if view.served.get("ResourceClaim", True):
            await self._by_claim(stamp)
        elif view.nodes:
            await self._session.patch(f"/api/v1/nodes/{min(view.nodes)}", stamp)

    async def _by_claim(self, stamp: Mapping[str, object]) -> None:
        path = f"{self._claims}/{self._name}"
        try:
            await self._session.patch(path, stamp)
        except NotFound:
            await self._create()
            await self._session.patch(path, stamp)

    async def _create(self) -> None:
        request = {"name": "none", "exactly": {"deviceClassName": _NO_CLASS}}
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": self._name,
                "labels": {"app.kubernetes.io/name": "fettle"},
                "annotations": {
                    PURPOSE: "Its annotation wakes pods that Fettle refused. "
                    "No pod uses it, so it is never allocated."
                },
            },
            "spec": {"devices": {"requests": [request]}},
        }
        with suppress(Conflict):  # another replica was first
            await self._session.create(self._claims, claim)
