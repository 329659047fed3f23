"""Looks up what controls a controller, such as the Deployment of a ReplicaSet: the object that
people know. Without the right to read those, the controller itself has to do."""

from typing import NamedTuple

from cachetools import TTLCache

from fettle.api.meta import ObjectMeta, OwnerReference, Wire
from fettle.client import Session, decoded
from fettle.model import ClusterError, Forbidden, NotFound

_PATHS = {
    ("apps/v1", "ReplicaSet"): "/apis/apps/v1/namespaces/{}/replicasets/{}",
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/{}/jobs/{}",
}
KEEP_S = 600.0


class _Controller(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


class Lineage(NamedTuple):
    """A controller, and what controls it, if that is known."""

    owner: OwnerReference
    above: OwnerReference | None = None


def path_of(owner: OwnerReference, namespace: str) -> str:
    """The URL path of a controller; "" if its kind is not read."""
    form = _PATHS.get((owner.api_version, owner.kind), "")
    return form.format(namespace, owner.name)


class Owners:
    """Asks once for each controller, and again after ten minutes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._above: TTLCache[str, OwnerReference | None] = TTLCache(2000, KEEP_S)

    async def of(self, owner: OwnerReference, namespace: str) -> Lineage:
        """The controller itself, and what is above it."""
        path = path_of(owner, namespace)
        if owner.uid not in self._above and path:
            try:
                raw = await self._session.get(path)
                found = decoded(raw, _Controller, f"{owner.kind} {namespace}/{owner.name}")
            except (Forbidden, NotFound):
                self._above[owner.uid] = None
            except ClusterError:
                return Lineage(owner)  # asked again in the next round
            else:
                self._above[owner.uid] = found.metadata.controller
        return Lineage(owner, self._above.get(owner.uid))
