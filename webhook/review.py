"""AdmissionReview v1, in and out: bytes → AdmissionRequest, AdmissionResponse → bytes.

Bytes that are no review raise BadInput, which names the field and the mistake. This module knows
the API server's rules for answers (patch and patchType together, warnings without control
characters) and nothing about devices.
"""

import base64
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from fettle.api import mend
from fettle.model import BadInput
from webhook.patches import Operation

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

SCHEDULER = "system:kube-scheduler"
"""The user whose requests are neither changed nor judged."""

WARNING_LENGTH = 120
"""The limit that the API's documentation names; longer text continues in the next warning."""
WARNINGS_LENGTH = 4096
"""Above this total, the API server cuts each warning to 256 characters."""
_CONTINUED = "fettle:   "
"""Begins a continued warning: those of other webhooks may stand before it."""
_MORE = "fettle: there are more warnings than can be shown"
_DENIED = 422


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The object under review. Objects stay raw: fields that Fettle does not know must survive.

    `request_kind` is the kind that the author sent, if the API server converted it to `kind`.
    `in_part`: some of the objects cannot be read, and is left out here.
    """

    uid: str
    operation: str
    kind: GroupVersionKind
    request_kind: GroupVersionKind | None = None
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    dry_run: bool | None = None
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    user_info: UserInfo = UserInfo()
    in_part: bool = False

    @property
    def group_kind(self) -> tuple[str, str]:
        """(API group, kind)."""
        return (self.kind.group, self.kind.kind)

    @property
    def username(self) -> str:
        """Who makes the change."""
        return self.user_info.username


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer to a request; `message` explains a denial."""

    allowed: bool = True
    message: str = ""
    warnings: Sequence[str] = ()
    patch: Sequence[Operation] = ()


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: msgspec.Raw = msgspec.Raw(b"null")


class _Status(msgspec.Struct, frozen=True):
    code: int
    message: str
    reason: str = "Invalid"
    status: str = "Failure"


class _Response(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool | None = None
    status: _Status | None = None
    warnings: list[str] = []
    patch: str | None = None
    patch_type: Literal["JSONPatch"] | None = None


class _Review(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str = API_VERSION
    kind: str = KIND
    response: _Response


_ENVELOPES = msgspec.json.Decoder(_Envelope)
_REQUESTS = msgspec.json.Decoder(AdmissionRequest)


def decode(body: bytes) -> AdmissionRequest:
    """The request in an AdmissionReview; raises BadInput that says what is wrong, and where."""
    try:
        request = _read(body)
    except msgspec.DecodeError as error:  # includes ValidationError
        raise BadInput(f"not an {KIND}: {error}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"not an {KIND}: not UTF-8 at byte {error.start}") from error
    if not request.uid:
        raise BadInput(f"the {KIND}'s request.uid is empty, so no answer could name it")
    return request


def _read(body: bytes) -> AdmissionRequest:
    try:
        return _read_whole(body)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.structs.replace(_read_whole(mend(body)), in_part=True)


def _read_whole(body: bytes) -> AdmissionRequest:
    envelope = _ENVELOPES.decode(body)
    if (envelope.api_version, envelope.kind) != (API_VERSION, KIND):
        raise BadInput(
            f"this is a {envelope.kind!r} of {envelope.api_version!r}, not an {KIND} of "
            f"{API_VERSION}: set admissionReviewVersions: [v1] in the webhook configuration"
        )
    if bytes(envelope.request).strip() == b"null":
        raise BadInput(f"the {KIND} has no request")
    return _REQUESTS.decode(envelope.request)


def encode(uid: str, answer: AdmissionResponse) -> bytes:
    """The AdmissionReview that answers the request of that UID."""
    patch = msgspec.json.encode(answer.patch) if answer.allowed and answer.patch else None
    response = _Response(
        uid=uid,
        allowed=answer.allowed,
        status=None if answer.allowed else _Status(_DENIED, _one_line(answer.message)),
        warnings=presentable(answer.warnings),
        patch=base64.b64encode(patch).decode() if patch else None,
        patch_type="JSONPatch" if patch else None,
    )
    return msgspec.json.encode(_Review(response=response))


def presentable(warnings: Iterable[str]) -> list[str]:
    """Warnings as the API server passes them on: it drops those with control characters."""
    lines: list[str] = []
    room = WARNINGS_LENGTH - len(_MORE)
    for warning in dict.fromkeys(warnings):
        for line in textwrap.wrap(_one_line(warning), WARNING_LENGTH, subsequent_indent=_CONTINUED):
            if len(line) > room:
                return [*lines, _MORE]
            lines.append(line)
            room -= len(line)
    return lines


def _one_line(text: str) -> str:
    """Control, format and separator characters and lone surrogates become blanks."""
    return "".join(" " if unicodedata.category(c) in _UNPRINTABLE else c for c in text)


_UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
