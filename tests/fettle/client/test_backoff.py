from __future__ import annotations

from fettle.client.backoff import ErrorBackoff
from fettle.model import Forbidden, Unreachable


def test_a_server_that_is_away_is_asked_quickly_and_never_rarely() -> None:
    backoff = ErrorBackoff()
    waits = [backoff.next_s(Unreachable("away")) for _ in range(50)]
    assert waits[0] <= 0.1
    assert sum(waits[:3]) < 1.0
    assert 0.7 < max(waits) <= 1.5


def test_a_server_that_says_how_long_to_wait_is_left_alone_for_so_long_within_reason() -> None:
    backoff, busy = ErrorBackoff(), Unreachable("too many requests")
    busy.retry_after_s = 8.0
    assert all(8.0 <= backoff.next_s(busy) <= 10.0 for _ in range(50))
    busy.retry_after_s = 86400.0
    assert backoff.next_s(busy) == 30.0


def test_a_refusal_is_asked_about_ever_more_rarely() -> None:
    backoff = ErrorBackoff()
    waits = [backoff.next_s(Forbidden("no")) for _ in range(50)]
    assert waits[0] <= 0.1
    assert all(15.0 <= wait <= 30.0 for wait in waits[20:])


def test_another_failure_and_success_begin_anew() -> None:
    backoff = ErrorBackoff()
    for _ in range(20):
        backoff.next_s(Unreachable("away"))
    assert backoff.next_s(Forbidden("not yet")) <= 0.1
    for _ in range(20):
        backoff.next_s(Forbidden("no"))
    backoff.succeeded()
    assert backoff.next_s(Forbidden("no")) <= 0.1
