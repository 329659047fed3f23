"""Answers of the API server as structs. A proxy that stands before it may answer with a page of its
own, and status 200: that is trouble with the cluster like any other. Pure.
"""

from typing import TypeVar

import msgspec

from fettle.errors import ClusterError

_T = TypeVar("_T")


def decoded(raw: bytes, type: type[_T], what: str) -> _T:
    """`what` was asked for, such as "Secret fettle-system/ca"; raises ClusterError."""
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ClusterError(
            f"the API server's answer is no {what} ({error}); "
            "see whether a proxy answers in its place"
        ) from error
