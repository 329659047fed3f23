"""What Kubernetes allows as a name, a label or a list of values: a sentence says what is wrong."""

import re
from collections.abc import Iterable, Iterator

from fettle.lint.manifests import Field
from fettle.lint.names import is_mark, is_shouted

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


def why_in_doubt(name: str) -> str:
    """What is said of one word in capitals, which is no name: a marker looks the same."""
    return "may have no capitals, unless a name is put in for it" if is_shouted(name) else ""


def why_no_qualified_name(key: str) -> str:
    """The same of a label's key, such as `nvidia.com/gpu.product`."""
    prefix, slash, name = key.rpartition("/")
    if is_mark(key):
        return ""
    if "/" in prefix:
        return "may have one slash only"
    if slash and (why := why_no_subdomain(prefix) if prefix else "needs a domain"):
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


_CRON: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    (
        "month",
        1,
        12,
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"),
    ),
    ("day of the week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_CRON_WORDS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_CRON_PART = re.compile(r"(\*|\?|[0-9a-z]{1,9})(?:-([0-9a-z]{1,9}))?(?:/([0-9]{1,9}))?")


def why_no_schedule(schedule: str) -> str:
    """What is wrong with the time of a CronJob, as robfig/cron v3 reads it."""
    if schedule.startswith("@"):
        sound = schedule in _CRON_WORDS or schedule.startswith("@every ")
        return "" if sound else f"{schedule[:80]!r} is no schedule"
    fields = schedule.split()
    if len(fields) != len(_CRON):
        return ""  # FTL234
    for said, (what, least, most, names) in zip(fields, _CRON, strict=True):
        for part in said.split(","):
            if part and not _is_cron_part(part.lower(), least, most, names):
                return f"{part[:80]!r} is no {what}"
    return ""


def _is_cron_part(part: str, least: int, most: int, names: tuple[str, ...]) -> bool:
    if not (found := _CRON_PART.fullmatch(part)):
        return False
    first, last, step = found.groups()
    if step is not None and int(step) == 0:
        return False
    if first in ("*", "?"):
        return last is None
    numbers = [_cron_number(one, least, names) for one in (first, last) if one is not None]
    known = [number for number in numbers if number is not None]
    return (
        len(known) == len(numbers)
        and known == sorted(known)
        and least <= known[0]
        and (known[-1] <= most)
    )


def _cron_number(said: str, least: int, names: tuple[str, ...]) -> int | None:
    if said in names:
        return names.index(said) + least
    return int(said) if said.isdecimal() else None
