"""Fields of the API that the wire structs do not know: newer than they are, or misspelled.

Structs read only what they name, which is right for most objects. Where a field that nobody reads
could change what is allocated, it has to be noticed: the same bytes are decoded once more, with
structs made from the wire structs that refuse what they do not know.
"""

from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from fettle.api import lenient

Probe = Callable[[bytes | msgspec.Raw], str]
"""The first unknown field of an object, with where it is; "" if there is none."""


def probe(*path: str, struct: type[msgspec.Struct]) -> Probe:
    """Looks at what an object has under `path` (`spec`), which `struct` reads."""
    inner: Any = strict(struct)
    for field in reversed(path):
        inner = msgspec.defstruct("Probed", [(field, inner | None, None)], frozen=True)
    decoder = msgspec.json.Decoder(inner, strict=False)

    def unknown(raw: bytes | msgspec.Raw) -> str:
        try:
            lenient.decode(decoder, raw)
        except msgspec.ValidationError as error:
            return str(error)
        return ""

    return unknown


@cache
def strict(struct: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The struct again, refusing unknown fields wherever it goes."""
    fields = msgspec.structs.fields(struct)
    return msgspec.defstruct(
        struct.__name__,
        [(f.name, _strict_type(f.type), None) for f in fields],
        rename={f.name: f.encode_name for f in fields},
        forbid_unknown_fields=True,
        frozen=True,
        kw_only=True,
    )


def _strict_type(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return strict(hint)
    arguments = tuple(_strict_type(argument) for argument in get_args(hint))
    if not arguments:
        return hint
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return reduce(or_, arguments)
    return origin[arguments]
