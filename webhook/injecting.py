"""What every injection shares: edits that leave a record of themselves on the object.

The record is one annotation, which names the policy and every value that was injected for it, so
that a reader of the stored object can tell Fettle's hand from the author's; and so can Fettle.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fettle.api.raw import mapping, text
from fettle.model import INJECTED
from webhook.patches import Editing
from webhook.places import FieldPath, value_at

ANNOTATIONS = FieldPath().at("metadata", "annotations")


class Record(msgspec.Struct, frozen=True):
    """Injected values by the place where they were put, and the policy that asked for them."""

    policy: str | None = None
    values: Mapping[str, Any] = {}


def record_of(document: Any) -> Record:
    """What earlier injections say; nothing where there were none, or somebody spoilt it."""
    annotation = mapping(document, "metadata", "annotations").get(INJECTED)
    try:
        return msgspec.json.decode(text(annotation), type=Record)
    except msgspec.DecodeError:
        return Record()


class Injecting:
    """Edits one object on behalf of a policy, or of none where a value needs none.

    It goes on from the object's own record, and that of the object it replaces.
    """

    def __init__(
        self, document: dict[str, Any], policy: str | None, old: dict[str, Any] | None = None
    ) -> None:
        self.editing = Editing(document)
        self.policy = policy
        self.warnings: list[str] = []
        before, own = record_of(old), record_of(document)
        self.before = Record(own.policy or before.policy, {**before.values, **own.values})
        # A changed object may have gone over to another policy, or to none.
        self._named = policy or (own.policy if old is None else None)
        self._values = dict(self.before.values)

    @property
    def document(self) -> dict[str, Any]:
        return self.editing.document

    def set(self, place: FieldPath, value: Any) -> None:
        self.editing.set(place.path, value)
        self._values[place.name] = value

    def append(self, place: FieldPath, value: Any, *, name: str, recorded: Any) -> None:
        self.editing.append(place.path, value)
        self._values[name] = recorded

    def remove(self, place: FieldPath) -> None:
        self.editing.remove(place.path)
        self.forget(place.name)

    def forget(self, name: str) -> None:
        """What was edited by other means is no longer there."""
        self._values.pop(name, None)

    def note(self, name: str, value: Any) -> None:
        """Record what was edited by other means."""
        self._values[name] = value

    def warn(self, warning: str) -> None:
        self.warnings.append(f"fettle: policy {self.policy}: {warning}")

    def record(self) -> None:
        """Write the annotation, if anything was edited; what it said before is kept."""
        if not self.editing.operations:
            return
        place = ANNOTATIONS.at(INJECTED)
        if not self._values:
            if value_at(self.document, place.path) is not None:
                self.editing.remove(place.path)
            return
        record = Record(self._named, self._values)
        self.editing.set(place.path, msgspec.json.encode(record).decode())
