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


class Ready(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The worker's first message: it can be asked now."""


Request = Parse | EvaluateRequest | Inspect
Reply = Parsed | EvaluateReply | Inspected | Ready

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def frame(message: Request | Reply) -> bytes:
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
    header = stream.read(4)
    if len(header) < 4:
        return None
    return _requests.decode(stream.read(body_length(header)))
