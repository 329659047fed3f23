"""Named formats (`format.dns1123Label()` and the like) and what does not have them.

Runs in the worker. How many reasons Kubernetes finds is known, how it words them is not.
"""

import re
from collections.abc import Callable
from datetime import date

from fettle.selectors import urls
from fettle.selectors.signatures import (
    FORMAT,
    STRING,
    Functions,
    function,
    list_of,
    method,
    optional_of,
)
from fettle.selectors.values import NOTHING, Format, Frame, Optional, Unclear, Value

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[^\n][0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_UUID = r"(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"

Problems = Callable[[str], int]


def _of(pattern: str, longest: int | None = None) -> Problems:
    """One problem for too great a length in bytes, and one for the wrong characters."""
    compiled = re.compile(pattern)

    def problems(text: str) -> int:
        too_long = longest is not None and len(text.encode()) > longest
        return too_long + (compiled.fullmatch(text) is None)

    return problems


def _prefix(problems: Problems) -> Problems:
    """A text that something is to be appended to may end in a dash."""
    return lambda text: problems(text[:-2] + "a" if len(text) > 1 and text[-1] == "-" else text)


_label = _of(_LABEL, 63)
_label_1035 = _of(r"[a-z](?:[-a-z0-9]*[a-z0-9])?", 63)
_subdomain = _of(rf"{_LABEL}(?:\.{_LABEL})*", 253)
_name = _of(_NAME, 63)


def _qualified_name(text: str) -> int:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return 1
    of_prefix = (_subdomain(prefix) if prefix else 1) if slash else 0
    return of_prefix + (not name) + _name(name)


def _uri(text: str) -> int:
    return not urls.is_url(Frame(None, 0), text)


def _date(text: str) -> int:
    match = _DATE.fullmatch(text)
    try:
        return match is None or not date(max(int(match[1]), 1), int(match[2]), int(match[3]))
    except ValueError:
        return int(text != "0000-02-29")  # the year 0 is a leap year


def _datetime(text: str) -> int:
    day, t, rest = text.lower().partition("t")
    match = _TIME.fullmatch(rest.partition("t")[0])
    if len(text.encode()) < 4 or not t or _date(day) or match is None:
        return 1
    return match[1] > "23" or match[2] > "59" or match[3] > "59"


_FORMATS: dict[str, tuple[str, Problems]] = {
    "dns1123Label": ("DNS1123Label", _label),
    "dns1123Subdomain": ("DNS1123Subdomain", _subdomain),
    "dns1035Label": ("DNS1035Label", _label_1035),
    "qualifiedName": ("QualifiedName", _qualified_name),
    "dns1123LabelPrefix": ("DNS1123LabelPrefix", _prefix(_label)),
    "dns1123SubdomainPrefix": ("DNS1123SubdomainPrefix", _prefix(_subdomain)),
    "dns1035LabelPrefix": ("DNS1035LabelPrefix", _prefix(_label_1035)),
    "labelValue": ("LabelValue", _of(f"(?:{_NAME})?", 63)),
    "uri": ("URI", _uri),
    "uuid": ("uuid", _of(_UUID)),
    "byte": ("byte", _of(_BASE64)),
    "date": ("date", _date),
    "datetime": ("datetime", _datetime),
}
FORMATS = {name: Format(*parts) for name, parts in _FORMATS.items()}


def _validate(frame: Frame, format_: Format, text: str) -> Optional:
    frame.spend(1 + len(text))
    problems = int(format_.problems(text))
    return Optional(([Unclear() for _ in range(problems)],)) if problems else NOTHING


def _named(_frame: Frame, name: str) -> Optional:
    return Optional((FORMATS[name],)) if name in FORMATS else NOTHING


def _constant(format_: Format) -> Callable[[Frame], Value]:
    return lambda _frame: format_


FUNCTIONS: Functions = {
    "validate": (method((FORMAT, STRING), optional_of(list_of(STRING)), _validate),),
    "format.named": (function((STRING,), optional_of(FORMAT), _named),),
    **{
        f"format.{name}": (function((), FORMAT, _constant(format_)),)
        for name, format_ in FORMATS.items()
    },
}
