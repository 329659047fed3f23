"""What every injection shares: an edit that leaves a record of itself on the object.

The record is one annotation, which names the policy and every value that was injected for it, so
that a reader of the stored object can tell Fettle's hand from the author's.
"""

from typing import Any

import msgspec

from fettle.lint.raw import mapping, text
from webhook.patches import Editing, Path

INJECTED = "fettle.dev/injected"


class Injecting:
    """Edits one object on behalf of a policy, or of none where a value needs none."""

    def __init__(self, document: dict[str, Any], policy: str | None) -> None:
        self.editing = Editing(document)
        self.warnings: list[str] = []
        self._policy = policy
        self._values: dict[str, Any] = {}

    @property
    def document(self) -> dict[str, Any]:
        return self.editing.document

    def set(self, path: Path, value: Any, *, name: str = "") -> None:
        self.editing.set(path, value)
        self._values[name or _field(path)] = value

    def append(self, path: Path, value: Any, *, name: str, recorded: Any) -> None:
        self.editing.append(path, value)
        self._values[name] = recorded

    def record(self) -> None:
        """Write the annotation, if there is anything to say; earlier records are kept."""
        if not self._values:
            return
        before = _read(mapping(self.document, "metadata", "annotations").get(INJECTED))
        policy = self._policy or text(before.get("policy")) or None
        values = {**mapping(before, "values"), **self._values}
        content = msgspec.json.encode({"policy": policy, "values": values}).decode()
        self.editing.set(("metadata", "annotations", INJECTED), content)


def _field(path: Path) -> str:
    """`spec.containers[0].resources.limits[fettle.dev/claims]`."""
    field = ""
    for part in path:
        plain = isinstance(part, str) and "." not in part
        field += f".{part}" if plain else f"[{part}]"
    return field.removeprefix(".")


def _read(annotation: object) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text(annotation), type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
