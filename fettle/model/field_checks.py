"""Checks that the API server would accept the values that a policy injects into objects.

The API server refuses a whole object for one bad value, and with it every object whose author names
the policy. So Fettle checks these values where the policy is written. A bad value raises
ValueError.
"""

import re
from collections.abc import Hashable, Sequence
from functools import lru_cache

MAX_SECONDS = 9_223_372_036
"""The largest number of seconds that a Go duration holds. More overflows, and the pod is evicted at
once."""
MAX_INT32 = 2**31 - 1

_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_KEY = re.compile(f"({_DOMAIN}/)?{_LABEL}")
_VALUE = re.compile(f"({_LABEL})?")
_LABELS = r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)"
_DEVICE = re.compile(rf"{_LABELS}*/[A-Za-z0-9._-]+|{_LABELS}+", re.ASCII)
LONGEST_PATTERN = 256
_SHOWN = 80
_LONGEST_DOMAIN, _LONGEST_KEY = 253, 317
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?")
_DURATION = re.compile(r"(?=.)(?:([0-9]{1,5})h)?(?:([0-9]{1,7})m)?(?:([0-9]{1,8})s)?", re.ASCII)
_SCHEDULER = re.compile(r"\S{1,253}", re.ASCII)
_REPLICATED_JOB = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def between(field: str, value: int | None, least: int, most: int) -> None:
    """Raises ValueError with the sentence that users read.

    >>> between("backoffLimit", 12, 0, 10)
    Traceback (most recent call last):
        ...
    ValueError: backoffLimit must be 10 or less
    """
    if value is not None and value < least:
        raise ValueError(f"{field} must be {least} or more, not {shown(value)}")
    if value is not None and value > most:
        raise ValueError(f"{field} must be {most} or less")


def each_once(field: str, values: Sequence[Hashable], most: int) -> None:
    if len(values) > most:
        raise ValueError(f"{field} must have {most} entries or fewer, not {len(values)}")
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise ValueError(f"{field} must list each entry once, but {twice} is listed twice")


def exit_codes(field: str, codes: tuple[int, ...]) -> None:
    if wrong := [code for code in codes if not 1 <= code <= 255]:
        raise ValueError(f"{field}: exit codes are 1 to 255, not {shown(wrong[0])}")
    each_once(field, codes, 32)


def taint_key(key: str) -> None:
    domain, _, _ = key.rpartition("/")
    short = len(key) <= _LONGEST_KEY and len(domain) <= _LONGEST_DOMAIN
    if not short or _KEY.fullmatch(key) is None:
        raise ValueError(
            f"key {shown(key)} must be a taint's key, name or example.com/name: at most 63 "
            "letters, digits, '-', '_' and '.', after a domain of at most 253"
        )


def taint_value(value: str) -> None:
    if _VALUE.fullmatch(value) is None:
        raise ValueError(
            f"value {shown(value)} must be at most 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )


@lru_cache(maxsize=256)
def is_label(key: str, value: str) -> bool:
    """Whether an object may have this label."""
    return (
        len(key) <= _LONGEST_KEY
        and _KEY.fullmatch(key) is not None
        and _VALUE.fullmatch(value) is not None
    )


def is_device_name(name: str) -> bool:
    """Whether a resource or driver may be called so. People read it in a terminal."""
    return len(name) <= _LONGEST_KEY and _DEVICE.fullmatch(name) is not None


def seconds(field: str, duration: str) -> int:
    """How many seconds a duration such as `90s`, `30m` or `1h30m` is.

    >>> seconds("patience", "1h30m")
    5400
    """
    if (found := _DURATION.fullmatch(duration)) is None:
        raise ValueError(
            f"{field} must be a duration in hours, minutes and seconds, such as 90s, 30m or 1h30m, "
            f"not {shown(duration)}"
        )
    hours, minutes, rest = (int(number or 0) for number in found.groups())
    return 3600 * hours + 60 * minutes + rest


def scheduler_name(name: str) -> None:
    if _SCHEDULER.fullmatch(name) is None:
        raise ValueError(f"scheduler must be a pod's spec.schedulerName, not {shown(name)}")


def rule_name(name: str) -> None:
    """Checks the name of a rule in a JobSet's failurePolicy."""
    if why := why_no_rule_name(name):
        raise ValueError(f"name {shown(name)} {why}")


def why_no_rule_name(name: str) -> str:
    """What JobSet's webhook requires of the name of a rule that this one is not; "" if it is."""
    if _RULE_NAME.fullmatch(name) is not None:
        return ""
    return (
        "must be at most 128 letters, digits, '_', ',' and ':', starting with a letter and not "
        "ending with ',' or ':'"
    )


def expressions(field: str, patterns: Sequence[str]) -> None:
    """Checks regular expressions as Go reads them."""
    for pattern in patterns:
        if not 0 < len(pattern) <= LONGEST_PATTERN:
            raise ValueError(
                f"{field}: {shown(pattern)} must have 1 to {LONGEST_PATTERN} characters"
            )
        if why_no_expression(pattern):
            raise ValueError(f"{field}: {shown(pattern)} is no regular expression")


def why_no_expression(pattern: str) -> str:
    """Why Go does not read it as a regular expression; "" if it does."""
    import re2  # type: ignore[import-untyped]  # late: few policies have any

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0]
        return said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return ""


def replicated_jobs(names: Sequence[str]) -> None:
    for name in names:
        if _REPLICATED_JOB.fullmatch(name) is None:
            raise ValueError(
                f"targetReplicatedJobs: {shown(name)} is not a valid replicated Job name: use "
                "at most 63 lower-case letters, digits and '-'"
            )


def shown(value: object) -> str:
    """The value as text of bounded length, for messages."""
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of more than 64 bits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
