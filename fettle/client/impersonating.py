"""Whom the user of a kubeconfig acts as: `as` and its like become the headers that client-go sends
along with every request. Raises `ConfigException`; pure.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from kubernetes.aio.config import ConfigException

_ALLOWED_IN_NAMES = "!#$&'*+-.^_`|~"
"""What a header's name may hold besides letters and digits, but for the % of escapes."""


class _Impersonation(msgspec.Struct, frozen=True):
    user: str | None = msgspec.field(default=None, name="as")
    uid: str | None = msgspec.field(default=None, name="as-uid")
    groups: list[str] | None = msgspec.field(default=None, name="as-groups")
    extra: dict[str, list[str]] | None = msgspec.field(default=None, name="as-user-extra")

    def texts(self) -> dict[str, list[str]]:
        """All that is sent, by field."""
        extra = self.extra or {}
        return {
            "as": [self.user or ""],
            "as-uid": [self.uid or ""],
            "as-groups": self.groups or [],
            "as-user-extra": [*extra, *(value for values in extra.values() for value in values)],
        }


def headers(user: Any) -> list[tuple[str, str]]:
    """Names and values; a name may come several times. None where nobody is impersonated."""
    asked = _read(user if isinstance(user, Mapping) else {})
    if not asked.user:
        if asked.uid or asked.groups or asked.extra:
            raise ConfigException(
                "the user has as-uid, as-groups or as-user-extra without as (whom to impersonate)"
            )
        return []
    found = [("Impersonate-User", asked.user)]
    if asked.uid:
        found.append(("Impersonate-Uid", asked.uid))
    found += (("Impersonate-Group", group) for group in asked.groups or ())
    for key, values in (asked.extra or {}).items():
        name = f"Impersonate-Extra-{quote(key, safe=_ALLOWED_IN_NAMES)}"
        found += ((name, value) for value in values)
    return found


def _read(user: Mapping[Any, Any]) -> _Impersonation:
    written = {key: value for key, value in user.items() if key in _FIELDS}
    try:
        asked = msgspec.convert(written, _Impersonation)
    except msgspec.ValidationError as error:
        raise ConfigException(f"impersonation by the user: {error}") from error
    for field, texts in asked.texts().items():
        if not all(text.isprintable() for text in texts):
            raise ConfigException(f"{field} of the user contains a non-printable character")
    return asked


_FIELDS = {field.encode_name for field in msgspec.structs.fields(_Impersonation)}
