"""JSON that nests deeper than a decoder can follow, read down to where anything of use stands.

Anybody may store a claim whose opaque parameters nest by the thousand (10 KiB of brackets): it must
not cost its readers the list or the watch that it comes in, nor hide what else it says. Pure.
"""

import re
from typing import Any

import msgspec

DEEP = 100
"""Levels that are read; the deepest field that Fettle knows lies at about 20."""
_NULL = b"null"
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def decode(decoder: "msgspec.json.Decoder[Any]", raw: bytes | msgspec.Raw) -> Any:
    """What `decoder` makes of it, what lies deeper than DEEP taken as null. Raises what it does."""
    try:
        return decoder.decode(raw)
    except RecursionError:
        return decoder.decode(shallow(bytes(raw)))


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
