"""AdmissionReview v1, in and out: bytes → AdmissionRequest, AdmissionResponse → bytes.

Bytes that are no review raise BadInput, which names the field and the mistake. This module knows
the API server's rules for answers (patch and patchType together, warnings without control
characters) and nothing about devices.
"""

import base64
import gc
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from fettle.api import mend
from fettle.api.raw import mapping, text
from fettle.model import BadInput
from webhook.patches import Operation

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

SCHEDULER = "system:kube-scheduler"
"""The user whose requests are neither changed nor judged."""

WARNING_LENGTH = 256
"""What the API server cuts each warning to, if there are many. One is not continued in the next:
kubectl shows no line twice, so the middle of a text may be missing."""
WARNINGS_LENGTH = 4096
"""Above this total, the API server cuts each warning."""
_LONGEST_FIX, _LONGEST_WHO = 130, 100
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
    def key(self) -> str:
        """`namespace/name`, or `name`. `*` ends one that the API server completes."""
        metadata = mapping(self.object, "metadata")
        name = self.name or text(metadata.get("name")) or f"{text(metadata.get('generateName'))}*"
        return f"{self.namespace}/{name}" if self.namespace else name

    @property
    def about(self) -> str:
        """The object in words, such as `Pod team/worker`."""
        return shortened(f"{self.kind.kind} {self.key}", _LONGEST_WHO)

    @property
    def username(self) -> str:
        """Who makes the change."""
        return self.user_info.username


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer to a request; `message` explains a denial, `reasons` are its parts."""

    allowed: bool = True
    message: str = ""
    reasons: Sequence[str] = ()
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
    with _without_collector():
        return _REQUESTS.decode(envelope.request)


@contextmanager
def _without_collector() -> Iterator[None]:
    """What a decoder makes is no garbage. The collector would look through it again and again while
    it grows: for hundreds of thousands of parts that takes several times as long as to read them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def encode(uid: str, answer: AdmissionResponse, about: str = "") -> bytes:
    """The AdmissionReview that answers the request of that UID, about the object of that name."""
    patch = msgspec.json.encode(answer.patch) if answer.allowed and answer.patch else None
    response = _Response(
        uid=uid,
        allowed=answer.allowed,
        status=None if answer.allowed else _Status(_DENIED, _one_line(answer.message)),
        warnings=presentable(answer.warnings, about),
        patch=base64.b64encode(patch).decode() if patch else None,
        patch_type="JSONPatch" if patch else None,
    )
    return msgspec.json.encode(_Review(response=response))


def presentable(warnings: Iterable[str], about: str = "") -> list[str]:
    """Warnings as the API server passes them on, and kubectl shows them: each is one line, without
    control characters, and begins with the object, since kubectl shows no line twice.

    >>> presentable(["no node has it"], about="Pod ml/train-0")
    ['Pod ml/train-0: no node has it']
    """
    who = f"{about}: " if about else ""
    told = iter(dict.fromkeys(map(_read_part, warnings)))
    lines: dict[str, None] = {}
    length = 0
    for warning in told:
        if (said := " ".join(_one_line(warning).split())) and (
            (line := _warning_line(who, said)) not in lines
        ):
            lines[line] = None
            length += len(line)
        if length > WARNINGS_LENGTH:
            break
    most = WARNINGS_LENGTH // WARNING_LENGTH - 1
    if length <= WARNINGS_LENGTH:
        return list(lines)
    more = len(lines) - most + len([*told])
    return [*list(lines)[:most], f"{who}fettle: {more} more warnings than can be shown"]


def _read_part(warning: str) -> str:
    """The beginning and the end of a warning, of which no more can be shown."""
    if len(warning) <= WARNINGS_LENGTH:
        return warning
    return f"{warning[:WARNING_LENGTH]}…{warning[-WARNING_LENGTH:]}"


def _warning_line(who: str, warning: str) -> str:
    """The line of a warning; if it is too long, it keeps its end, which says what to do."""
    line = _one_line(f"{who}{warning}")
    said, _, fix = line.rpartition("; ")
    if len(line) <= WARNING_LENGTH or not said or len(fix) > _LONGEST_FIX:
        return shortened(line, WARNING_LENGTH)
    return f"{shortened(said, WARNING_LENGTH - len(fix) - 2)}; {fix}"


def shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _one_line(text: str) -> str:
    """Control, format and separator characters and lone surrogates become blanks."""
    if text.isprintable():
        return text
    return "".join(" " if unicodedata.category(c) in _UNPRINTABLE else c for c in text)


_UNPRINTABLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
