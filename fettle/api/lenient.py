"""JSON that anybody may store in a cluster and strict decoders refuse, read as Go reads it.

The opaque parameters of a claim are kept as they were sent: 10 KiB may nest thousands of levels
deep, or hold invalid UTF-8 or halves of surrogate pairs. None of this may break the list or watch
that it comes in, nor hide the rest of the claim. Pure.
"""

import re
from typing import Any

import msgspec

DEEP = 100
"""Levels that are read; the deepest field that Fettle knows lies at about 20."""
_NULL = b"null"
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_UNKNOWN = rb"\ufffd"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"  # half of one
    rb"|\\.",
    re.DOTALL,
)


def decode(decoder: "msgspec.json.Decoder[Any]", raw: bytes | msgspec.Raw) -> Any:
    """What `decoder` makes of it or, where it cannot, of what `mended` does; raises as it does."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if (readable := mended(bytes(raw))) == raw:
            raise
        return decoder.decode(readable)


def mended(raw: bytes) -> bytes:
    """The same with null for what nests deeper than DEEP, and U+FFFD for what is not a
    character.
    """
    text = raw.decode(errors="replace").encode()
    if _SURROGATE.search(text):
        text = _ESCAPE.sub(lambda found: _UNKNOWN if found[1] else found[0], text)
    return shallow(text)


def shallow(raw: bytes, levels: int = DEEP) -> bytes:
    """The same JSON with null for every list and object that stands below so many others."""
    pieces: list[bytes] = []
    depth = kept_to = 0
    for token in _TOKENS.finditer(raw):
        sign = token[0]
        if sign in (b"[", b"{"):
            depth += 1
            if depth == levels + 1:
                pieces += (raw[kept_to : token.start()], _NULL)
        elif sign in (b"]", b"}"):
            if depth == levels + 1:
                kept_to = token.end()
            depth -= 1
    if depth > levels:  # it ends before they do: no JSON, as its decoder will say
        return raw[: DEEP * 2]
    pieces.append(raw[kept_to:])
    return b"".join(pieces)
