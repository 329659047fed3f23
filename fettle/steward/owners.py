"""Looks up what controls a controller, such as the Deployment of a ReplicaSet: the object that
people know. Without the right to read those, the controller itself has to do."""

from typing import NamedTuple

from cachetools import TTLCache

from fettle.api import api_path
from fettle.api.meta import ObjectMeta, OwnerReference, Wire
from fettle.client import Session, decoded
from fettle.model import BadInput, ClusterError, Forbidden, NotFound

_PLURALS = {("apps/v1", "ReplicaSet"): "replicasets", ("batch/v1", "Job"): "jobs"}
KEEP_S = 600.0


class _Controller(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta


class Lineage(NamedTuple):
    """A controller, and what controls it, if that is known."""

    owner: OwnerReference
    above: OwnerReference | None = None


def path_of(owner: OwnerReference, namespace: str) -> str:
    """The URL path of a controller; "" if its kind is not read, or no controller can have this
    name: whoever creates a pod writes its owners."""
    plural = _PLURALS.get((owner.api_version, owner.kind))
    if plural is None or not owner.name:
        return ""
    try:
        return api_path(owner.api_version, plural, namespace=namespace, name=owner.name)
    except BadInput:
        return ""


class Owners:
    """Asks once for each controller, and again after ten minutes."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._above: TTLCache[str, OwnerReference | None] = TTLCache(2000, KEEP_S)
        """By the identity of a controller."""

    async def of(self, owner: OwnerReference, namespace: str) -> Lineage:
        """The controller itself, and what is above it."""
        path, identity = path_of(owner, namespace), f"{namespace}/{owner.uid}"
        if identity not in self._above and path:
            try:
                raw = await self._session.get(path)
                found = decoded(raw, _Controller, f"{owner.kind} {namespace}/{owner.name}")
            except (Forbidden, NotFound):
                self._above[identity] = None
            except ClusterError:
                return Lineage(owner)  # asked again in the next round
            else:
                is_it = found.metadata.uid == owner.uid
                self._above[identity] = found.metadata.controller if is_it else None
        return Lineage(owner, self._above.get(identity))
