"""What is said of a certificate's validity, and when."""

from datetime import UTC, datetime

import pytest

from certs import issuing, validity
from certs.issuing import CLOCK_SKEW_S, DAY_S
from certs.validity import Validity
from fettle.model import CertificateError

NOON_S = datetime(2026, 8, 1, 12, 0, tzinfo=UTC).timestamp()
HOUR_S = 3600.0


def lasting(seconds: float) -> Validity:
    return Validity(NOON_S, NOON_S + seconds)


def test_it_is_read_from_the_first_certificate() -> None:
    root = issuing.root("test CA", now_s=NOON_S, lifetime_s=365 * DAY_S)
    leaf = issuing.leaf(root, ["localhost"], now_s=NOON_S, lifetime_s=DAY_S)
    chain = leaf.certificate + root.certificate
    assert validity.read(chain) == Validity(NOON_S - CLOCK_SKEW_S, NOON_S + DAY_S)


def test_what_is_no_certificate_is_refused() -> None:
    with pytest.raises(CertificateError, match="not a readable PEM certificate"):
        validity.read(b"nothing")


def test_callers_are_said_to_reject_it_before_its_first_and_after_its_last_second() -> None:
    day = lasting(DAY_S)
    assert day.lapse(NOON_S - 1) == "is not valid before 2026-08-01 12:00 UTC"
    assert day.lapse(NOON_S) == day.lapse(NOON_S + DAY_S) == ""
    assert day.lapse(NOON_S + DAY_S + 1) == "expired on 2026-08-02 12:00 UTC"


@pytest.mark.parametrize(
    ("lifetime_s", "soon_s"),
    [(365 * DAY_S, 7 * DAY_S), (70 * DAY_S, 7 * DAY_S), (10 * DAY_S, DAY_S), (HOUR_S, 360.0)],
)
def test_its_end_is_told_in_its_last_seven_days_or_tenth(lifetime_s: float, soon_s: float) -> None:
    some, ends_at = lasting(lifetime_s), NOON_S + lifetime_s
    assert some.ending(ends_at - soon_s - 1) == ""
    assert some.ending(ends_at - soon_s + 1).startswith("expires on 202")
    assert some.ending(ends_at) != ""


def test_of_several_the_longest_that_holds_counts_else_the_last_to_hold() -> None:
    short, long, later = lasting(HOUR_S), lasting(DAY_S), Validity(NOON_S + HOUR_S, NOON_S + 9e9)
    assert validity.longest([long, short], NOON_S) == long
    assert validity.longest([later, short], NOON_S) == short
    assert validity.longest([short, long], NOON_S + 2 * DAY_S) == long
    assert validity.longest([], NOON_S) is None


def test_an_end_that_has_come_is_no_longer_told_as_one_to_come() -> None:
    assert lasting(DAY_S).ending(NOON_S + DAY_S + 1) == ""
