"""The named formats, such as `format.dns1123Label()`, and why a text is not of one.

The reasons have the words of Kubernetes 1.36 and 1.37, and for `uri` those of Go. Where Go's words
about a host are not known, only the number of reasons is.
"""

import re
from collections.abc import Callable
from datetime import date

from fettle.cel.library import addresses
from fettle.cel.library.strings import quoted
from fettle.cel.library.values import (
    FORMAT,
    NOTHING,
    STRING,
    CelError,
    Format,
    Frame,
    Functions,
    Optional,
    Unworded,
    Value,
    function,
    list_of,
    method,
    optional_of,
)

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_NAME})?"
_START_AND_END = "and must start and end with an alphanumeric character"
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[^\n][0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_UUID = r"(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"

Problems = Callable[[str], list[str]]


def _mismatch(rule: str, pattern: str, *examples: str) -> str:
    """The words of Kubernetes for a text that does not match a pattern."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(text: str, longest: int, unit: str) -> list[str]:
    """Kubernetes always counts bytes, although some of its messages say characters."""
    return [f"must be no more than {longest} {unit}"] if len(text.encode()) > longest else []


def _pattern(pattern: str, longest: int, unit: str, reason: str) -> Problems:
    """Reasons: one for more bytes than allowed, and one for the wrong characters."""
    compiled = re.compile(pattern)

    def problems(text: str) -> list[str]:
        mismatch = [] if compiled.fullmatch(text) else [reason]
        return _too_long(text, longest, unit) + mismatch

    return problems


def _one_reason(reason: str, is_of: Callable[[str], bool]) -> Problems:
    return lambda text: [] if is_of(text) else [reason]


def _prefix(problems: Problems) -> Problems:
    """A prefix, to which more is appended, may end in a dash."""
    return lambda text: problems(text[:-2] + "a" if len(text) > 1 and text[-1] == "-" else text)


_label_1123 = _pattern(
    _LABEL,
    63,
    "characters",
    _mismatch(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
        + _START_AND_END,
        _LABEL,
        "my-name",
        "123-abc",
    ),
)
_label_1035 = _pattern(
    _LABEL_1035,
    63,
    "characters",
    _mismatch(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
        "start with an alphabetic character, and end with an alphanumeric character",
        _LABEL_1035,
        "my-name",
        "abc-123",
    ),
)
_NO_SUBDOMAIN = _mismatch(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    f"'-' or '.', {_START_AND_END}",
    _SUBDOMAIN,
    "example.com",
)
_subdomain = _pattern(_SUBDOMAIN, 253, "characters", _NO_SUBDOMAIN)
_prefix_part = _pattern(_SUBDOMAIN, 253, "bytes", _NO_SUBDOMAIN)
_NO_NAME = _mismatch(
    f"must consist of alphanumeric characters, '-', '_' or '.', {_START_AND_END}",
    _NAME,
    "MyName",
    "my.name",
    "123-abc",
)
_name_part = _pattern(_NAME, 63, "bytes", _NO_NAME)
_label_value = _pattern(
    _LABEL_VALUE,
    63,
    "bytes",
    _mismatch(
        "a valid label must be an empty string or consist of alphanumeric characters, "
        f"'-', '_' or '.', {_START_AND_END}",
        _LABEL_VALUE,
        "MyValue",
        "my_value",
        "12345",
    ),
)


def _label(text: str) -> list[str]:
    if "." in text and re.fullmatch(_SUBDOMAIN, text):
        return [*_too_long(text, 63, "characters"), "must not contain dots"]
    return _label_1123(text)


def _qualified_name(text: str) -> list[str]:
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_NO_NAME} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    empty = ["must be non-empty"]
    of_prefix = (_prefix_part(prefix) if prefix else empty) if slash else []
    of_name = ([] if name else empty) + _name_part(name)
    return [f"prefix part {problem}" for problem in of_prefix] + [
        f"name part {problem}" for problem in of_name
    ]


def _uri(text: str) -> list[str]:
    try:
        addresses.require_url(text)
    except addresses.GoUrlError as error:
        shown = quoted(text)
        return Unworded([""]) if shown is None else [f"parse {shown}: {error}"]
    except CelError:
        return Unworded([""])
    return []


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    try:
        return match is not None and bool(date(max(int(match[1]), 1), int(match[2]), int(match[3])))
    except ValueError:
        return text == "0000-02-29"  # the year 0 is a leap year


def _is_datetime(text: str) -> bool:
    day, t, rest = text.lower().partition("t")
    match = _TIME.fullmatch(rest.partition("t")[0])
    if len(text.encode()) < 4 or not t or not _is_date(day) or match is None:
        return False
    return match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


_FORMATS: dict[str, tuple[str, Problems]] = {
    "dns1123Label": ("DNS1123Label", _label),
    "dns1123Subdomain": ("DNS1123Subdomain", _subdomain),
    "dns1035Label": ("DNS1035Label", _label_1035),
    "qualifiedName": ("QualifiedName", _qualified_name),
    "dns1123LabelPrefix": ("DNS1123LabelPrefix", _prefix(_label)),
    "dns1123SubdomainPrefix": ("DNS1123SubdomainPrefix", _prefix(_subdomain)),
    "dns1035LabelPrefix": ("DNS1035LabelPrefix", _prefix(_label_1035)),
    "labelValue": ("LabelValue", _label_value),
    "uri": ("URI", _uri),
    "uuid": ("uuid", _one_reason("does not match the UUID format", _matches(_UUID))),
    "byte": ("byte", _one_reason("invalid base64", _matches(_BASE64))),
    "date": ("date", _one_reason("invalid date", _is_date)),
    "datetime": ("datetime", _one_reason("invalid datetime", _is_datetime)),
}
FORMATS = {name: Format(*parts) for name, parts in _FORMATS.items()}


def _validate(frame: Frame, format_: Format, text: str) -> Optional:
    frame.spend(6 * (1 + len(text)))  # counted like a pattern of up to 2,083 characters
    problems = format_.problems(text)
    return Optional((problems,)) if problems else NOTHING


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
