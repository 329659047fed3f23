"""The messages between the serving process and the worker, as frames of msgpack; and what a
selector says about one device, as values.

Four bytes before each message hold its length. The worker gets an expression with the rows to
judge, or a few devices, but never the view.
"""

from enum import StrEnum
from typing import BinaryIO, NamedTuple

import msgspec

from fettle.api import ObjectFact
from fettle.api.resource import Device
from fettle.cel.runtime.rows import AttributeRead, DeviceRow, Equation, Variable

MAX_FRAME = 16 * 1024 * 1024


class OutcomeKind(StrEnum):
    """The four outcomes; only a match lets the allocator take the device."""

    MATCH = "match"
    NO_MATCH = "no match"
    WOULD_ABORT = "would abort"  # an error that ends the scheduler's attempt for the whole pod
    UNDECIDED = "undecided"  # it is not known which of the others Kubernetes finds


class Outcome(NamedTuple):
    """One of the four kinds; `reason` is a phrase for people, empty for a match or no match."""

    kind: OutcomeKind
    reason: str = ""

    @property
    def matches(self) -> bool:
        return self.kind is OutcomeKind.MATCH

    @property
    def undecided(self) -> bool:
        return self.kind is OutcomeKind.UNDECIDED


MATCH = Outcome(OutcomeKind.MATCH)
NO_MATCH = Outcome(OutcomeKind.NO_MATCH)


def would_abort(reason: str) -> Outcome:
    return Outcome(OutcomeKind.WOULD_ABORT, reason)


def undecided(reason: str) -> Outcome:
    return Outcome(OutcomeKind.UNDECIDED, reason)


TOO_SLOW = undecided("it takes too long")
"""The evaluation took more time than an expression gets for one device, or for all of them."""


class Parse(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks for what an expression reads."""

    expression: str
    variable: Variable = "device"


class EvaluateRequest(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks for the outcome of an expression on each row."""

    expression: str
    rows: tuple[DeviceRow, ...]
    variable: Variable = "device"


class Inspect(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks what the nearest of these devices lacks to meet all expressions.

    Each device is given with its driver.
    """

    expressions: tuple[str, ...]
    devices: tuple[tuple[str, Device], ...]


class Parsed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What is known of an expression once it is parsed.

    What it reads (None: the whole device), or its one outcome for every device; the only driver
    whose devices can match ("": any); which attributes it compares with what; what a device must
    have to match.
    """

    reads: tuple[AttributeRead, ...] | None
    outcome: Outcome | None
    driver: str = ""
    equations: tuple[Equation, ...] = ()
    needed: tuple[AttributeRead, ...] = ()


class EvaluateReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The outcomes of the first rows, at least of one. The others must be asked for again."""

    outcomes: tuple[Outcome, ...]
    spent_s: float


class Inspected(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What the nearest device lacks, in words; "" if that is not known."""

    nearest: str


class ObjectExpressions(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What a row of the rules asks of an object, in CEL over `resource` and `now`; "" for nothing.

    `message` is text, in which CEL stands in braces.
    """

    when: str
    node: str
    device: str = ""
    message: str = ""


class CheckExpressions(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks whether these expressions over an object can be read."""

    expressions: tuple[str, ...]


class ExpressionRead(msgspec.Struct, frozen=True, array_like=True):
    """What is wrong with an expression ("": nothing), which fields of `resource` it reads, and
    whether it reads `now`.

    In a path, `*` stands for an entry of a list or mapping.
    """

    problem: str = ""
    fields: tuple[tuple[str, ...], ...] = ()
    reads_now: bool = False


class ExpressionsRead(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One for each expression."""

    found: tuple[ExpressionRead, ...]


class JudgeObject(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks what each of these rows says of an object, which is JSON. `now` is in Unix seconds.
    `named`: the expressions are over the members of the object, by their names."""

    rows: tuple[ObjectExpressions, ...]
    object: bytes
    now: float
    named: bool = False


class RowOutcome(msgspec.Struct, frozen=True, array_like=True):
    """What a row says of an object, or why that is not known; `slow` if it took too long.

    `counts`: the object is a fault, though it may name no node. `unsaid`: why a part of its message
    cannot be told.
    """

    facts: tuple[ObjectFact, ...] = ()
    problem: str = ""
    slow: bool = False
    counts: bool = False
    unsaid: str = ""


class ObjectJudged(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """One outcome for each row."""

    outcomes: tuple[RowOutcome, ...]


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The worker's first message: it can be asked now."""


Request = Parse | EvaluateRequest | Inspect
ObjectRequest = CheckExpressions | JudgeObject
"""What the worker for rules about objects is asked."""
Reply = Parsed | EvaluateReply | Inspected | ExpressionsRead | ObjectJudged | Ready

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_object_requests: msgspec.msgpack.Decoder[ObjectRequest] = msgspec.msgpack.Decoder(ObjectRequest)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | ObjectRequest | Reply) -> bytes:
    """A message behind its length."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


def body_length(header: bytes) -> int:
    """The length of the message behind a header; raises ValueError if it cannot be one."""
    length = int.from_bytes(header, "big")
    if len(header) != 4 or not 0 < length <= MAX_FRAME:
        raise ValueError(f"{header!r} is not a message length")
    return length


def decode_reply(body: bytes) -> Reply:
    """The reply in these bytes; raises ValueError."""
    return _replies.decode(body)  # msgspec's errors are ValueErrors


def read_request(stream: BinaryIO) -> Request | None:
    """Wait for the next request; None at the end of the stream."""
    body = _read_frame(stream)
    return None if body is None else _requests.decode(body)


def read_object_request(stream: BinaryIO) -> ObjectRequest | None:
    """As `read_request`, in the worker for rules about objects."""
    body = _read_frame(stream)
    return None if body is None else _object_requests.decode(body)


def _read_frame(stream: BinaryIO) -> bytes | None:
    header = stream.read(4)
    return stream.read(body_length(header)) if len(header) == 4 else None
