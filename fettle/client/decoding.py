"""API server responses as structs. A proxy in front of it may answer with its own page and status
200: that is a cluster error like any other. Pure.
"""

from typing import TypeVar

import msgspec

from fettle.model import ClusterError

_T = TypeVar("_T")


def decoded(raw: bytes, type: type[_T], what: str) -> _T:
    """`what` was asked for, such as "Secret fettle-system/ca"; raises ClusterError."""
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterError(
            f"the API server's response is not a valid {what} ({error}); "
            "check whether a proxy is answering instead"
        ) from error
