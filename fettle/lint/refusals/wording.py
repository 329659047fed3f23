"""What Kubernetes allows as a name, a label or a list of values: a sentence says what is wrong."""

import re
from collections.abc import Iterable, Iterator

from fettle.lint.manifests import Field
from fettle.lint.names import is_mark

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_LONGEST_LABEL, _LONGEST_NAME = 63, 253
_VALUES_NEEDED = ("In", "NotIn")
_NO_VALUES = ("Exists", "DoesNotExist")
_COMPARISONS = ("Gt", "Lt")


def why_no_label(name: str) -> str:
    """What is wrong with a name such as that of a container; "" if nothing is."""
    if len(name) > _LONGEST_LABEL:
        return f"is longer than {_LONGEST_LABEL} characters"
    if is_mark(name) or _LABEL.fullmatch(name):
        return ""
    return "may have small letters, digits and inner hyphens only"


def why_no_subdomain(name: str) -> str:
    """The same of an object's name, which may have dots."""
    if len(name) > _LONGEST_NAME:
        return f"is longer than {_LONGEST_NAME} characters"
    if is_mark(name) or all(_LABEL.fullmatch(part) for part in name.split(".")):
        return ""
    return "may have small letters, digits, and inner hyphens and dots only"


def why_no_qualified_name(key: str) -> str:
    """The same of a label's key, such as `nvidia.com/gpu.product`."""
    prefix, slash, name = key.rpartition("/")
    if is_mark(key):
        return ""
    if "/" in prefix:
        return "may have one slash only"
    if slash and (why := why_no_subdomain(prefix.lower()) if prefix else "needs a domain"):
        return f"has a domain that {why}" if prefix else why
    return why_no_value(name) if name else "needs a name"


def why_no_value(value: str) -> str:
    """The same of a label's value."""
    if len(value) > _LONGEST_LABEL:
        return f"is longer than {_LONGEST_LABEL} characters"
    if not value or is_mark(value) or _QUALIFIED.fullmatch(value):
        return ""
    return "may have letters, digits, and inner hyphens, dots and underscores only"


def twice(fields: Iterable[tuple[str, Field]]) -> Iterator[tuple[str, Field]]:
    """The names that an earlier field has already, each with its field."""
    seen: set[str] = set()
    for name, field in fields:
        if name and name in seen:
            yield name, field
        seen.add(name)


def operator_errors(expression: Field) -> Iterator[tuple[Field, str]]:
    """What does not fit in an expression on labels: its operator and its values."""
    operator, values = expression.text("operator"), expression.at("values")
    given = len(values.value) if isinstance(values.value, list) else 0
    if operator in _VALUES_NEEDED and not given:
        yield values, f"{operator} needs values"
    if operator in _NO_VALUES and given:
        yield values, f"{operator} takes no values"
    if operator in _COMPARISONS and given != 1:
        yield values, f"{operator} needs exactly one value"
