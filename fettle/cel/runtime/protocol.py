"""The messages between the serving process and the worker, as frames of msgpack.

Four bytes before each message hold its length. The worker gets an expression with
the rows to judge, or a few devices, but never the view.
"""

from typing import BinaryIO

import msgspec

from fettle.api.resource import Device
from fettle.cel.runtime.outcomes import Outcome
from fettle.cel.runtime.rows import AttributeRead, DeviceRow, Equation, Variable

MAX_FRAME = 16 * 1024 * 1024


class Parse(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks what an expression reads."""

    expression: str
    variable: Variable = "device"


class EvaluateRequest(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks for the outcome of an expression on each row."""

    expression: str
    rows: tuple[DeviceRow, ...]
    variable: Variable = "device"


class Inspect(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Asks what the nearest of these devices, each with its driver, lacks for all expressions."""

    expressions: tuple[str, ...]
    devices: tuple[tuple[str, Device], ...]


class Parsed(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What the expression reads (None: the whole device), or its one outcome for every device;
    the driver whose devices alone can match ("": any); which attributes it compares with what."""

    reads: tuple[AttributeRead, ...] | None
    outcome: Outcome | None
    driver: str = ""
    equations: tuple[Equation, ...] = ()


class EvaluateReply(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Outcomes of the first rows, at least of one: the rest is to be asked for again."""

    outcomes: tuple[Outcome, ...]
    spent_s: float


class Inspected(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What the nearest device lacks, in words; "" where that cannot be said."""

    nearest: str


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The worker's first word, once it can be asked."""


Request = Parse | EvaluateRequest | Inspect
Reply = Parsed | EvaluateReply | Inspected | Ready

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
    """A message with its length before it."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


def size(header: bytes) -> int:
    """The length that a header announces; raises ValueError where it cannot be one."""
    length = int.from_bytes(header, "big")
    if len(header) != 4 or not 0 < length <= MAX_FRAME:
        raise ValueError(f"{header!r} is not a message length")
    return length


def reply(body: bytes) -> Reply:
    """A reply from its bytes; raises ValueError."""
    return _replies.decode(body)  # msgspec's errors are ValueErrors


def read_request(stream: BinaryIO) -> Request | None:
    """The next request, waiting for it; None at the end of the stream."""
    header = stream.read(4)
    if len(header) < 4:
        return None
    return _requests.decode(stream.read(size(header)))
