"""Edits to one object that leave a record of themselves on it.

The record is one annotation. It names the policy and every injected value, so that a reader of the
stored object can tell Fettle's values from the author's; and so can Fettle, at the next review.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from fettle.api.raw import mapping, text
from fettle.lint import Field
from fettle.model import INJECTED
from webhook.patches import Editing


class Record(msgspec.Struct, frozen=True):
    """Injected values by the path of their field, and the policy that they come from."""

    policy: str | None = None
    values: Mapping[str, Any] = {}


def record_of(document: Any) -> Record:
    """The record on an object; an empty one if there is none, or it cannot be read."""
    annotation = mapping(document, "metadata", "annotations").get(INJECTED)
    try:
        return msgspec.json.decode(text(annotation), type=Record)
    except msgspec.DecodeError:
        return Record()


class Injection:
    """Edits one object for a policy; `policy` is None for values that need no policy.

    It extends the object's own record and that of `old`, the object that this one replaces.
    """

    def __init__(
        self, document: dict[str, Any], policy: str | None, old: dict[str, Any] | None = None
    ) -> None:
        self.editing = Editing(document)
        self.policy = policy
        self.warnings: list[str] = []
        before, own = record_of(old), record_of(document)
        self.before = Record(own.policy or before.policy, {**before.values, **own.values})
        # A changed object may name another policy by now, or none.
        self._named = policy or (own.policy if old is None else None)
        self._values = dict(self.before.values)

    @property
    def document(self) -> dict[str, Any]:
        return self.editing.document

    def read(self, *keys: str) -> Field:
        """A field as it is after all edits so far."""
        return Field("", self.document).at(*keys)

    def set(self, field: Field, value: Any) -> None:
        self.editing.set(field.keys, value)
        self._values[field.path] = value

    def append(self, field: Field, value: Any, *, path: str, recorded: Any) -> None:
        self.editing.append(field.keys, value)
        self._values[path] = recorded

    def remove(self, field: Field) -> None:
        self.editing.remove(field.keys)
        self.forget(field.path)

    def forget(self, path: str) -> None:
        """Drop a value from the record that was removed by other means."""
        self._values.pop(path, None)

    def note(self, path: str, value: Any) -> None:
        """Record a value that was injected by other means."""
        self._values[path] = value

    def warn(self, warning: str) -> None:
        self.warnings.append(f"fettle: policy {self.policy}: {warning}")

    def record(self) -> None:
        """Write the annotation if anything was edited; what it held before is kept."""
        if not self.editing.operations:
            return
        field = self.read("metadata", "annotations", INJECTED)
        if not self._values:
            if field.exists:
                self.editing.remove(field.keys)
            return
        record = Record(self._named, self._values)
        self.editing.set(field.keys, msgspec.json.encode(record).decode())
