"""When a listener was last called."""

from __future__ import annotations

from fettle.observing.last_requests import LastRequests


def test_a_note_says_how_many_seconds_ago_each_was_called() -> None:
    asked = LastRequests("extender", ("filter", "prioritize", "preempt"), "nobody has asked yet")
    assert asked.note() == "extender: nobody has asked yet"
    asked.at["filter"] = 100.0
    asked.at["preempt"] = 40.25
    note = "extender: last asked: filter 3 s ago, prioritize never, preempt 63 s ago"
    assert asked.note(103.4) == note
