"""What all Kubernetes objects share: the struct base, ObjectMeta, and conditions."""

from datetime import datetime
from math import inf

import msgspec

from fettle.model import utc


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all API structs. They are trees, so the garbage collector need not track them."""


class Unread(Wire, frozen=True, kw_only=True):
    """An object of which nothing is read, whatever is in it."""


class OwnerReference(Wire, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Wire, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generate_name: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerReference, ...] | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` for cluster-scoped objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, such as the Job of a pod."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)

    @property
    def identity(self) -> str:
        """`namespace/UID`. A UID alone may be the word of another namespace."""
        return f"{self.namespace}/{self.uid}"

    @property
    def controller_identity(self) -> str:
        """`namespace/UID` of the controller, which is in the same namespace whatever the reference
        says: whoever creates a pod writes its owners. "" if there is none."""
        owner = self.controller
        return f"{self.namespace}/{owner.uid}" if owner is not None else ""

    @property
    def deleted_at(self) -> float:
        """When somebody asked to delete it, in Unix seconds: the API gives the end of the grace
        period. Infinite if nobody has."""
        grace = self.deletion_grace_period_seconds or 0
        return unix_s(self.deletion_timestamp, inf) - grace

    def label(self, key: str) -> str | None:
        return self.labels.get(key) if self.labels else None


class Condition(Wire, frozen=True, kw_only=True):
    type: str
    status: str = msgspec.field(default_factory=lambda: "Unknown")
    """Required by the API, so written always: a plain default would be left out."""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None


def rfc3339(moment: datetime | None) -> str:
    """A time in UTC in whole seconds, formatted as the API's Time; "" if there is none."""
    return f"{moment.isoformat(timespec='seconds')[:19]}Z" if moment is not None else ""


def rfc3339_at(unix_s: float) -> str:
    """A time in Unix seconds, in whole ones, formatted as the API's Time."""
    return rfc3339(utc(unix_s))


def micro_time(moment: datetime) -> str:
    """A time in UTC, formatted as the API's MicroTime."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def unix_s(moment: datetime | None, default: float) -> float:
    """Seconds since the Unix epoch, or `default` where the API gives no time."""
    return moment.timestamp() if moment is not None else default
