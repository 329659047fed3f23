from datetime import UTC, datetime

import msgspec

from fettle.api import DeviceHealth, kinds
from fettle.api.meta import ObjectMeta
from fettle.api.own_group import NOTHING_KNOWN
from fettle.cluster import EMPTY, Publisher, readiness
from fettle.cluster.view import SourceStatus

SYNCED = SourceStatus("Node", synced=True, served=True, contact_at=100.0)


def test_a_quiet_source_is_ready_and_a_silent_one_is_not() -> None:
    assert readiness.problems([SYNCED], 100.0 + 150, silent_after_s=150) == []
    (problem,) = readiness.problems([SYNCED], 100.0 + 151, silent_after_s=150)
    assert "silent" in problem


def test_a_source_that_was_never_synced_says_what_keeps_it() -> None:
    waiting = SourceStatus("Node", False, True, 0.0, "grant list on nodes to alice")
    assert readiness.problems([waiting], 0.0, 150) == [
        "Node is not synced: grant list on nodes to alice"
    ]
    assert readiness.problems([waiting], 0.0, 150, notes=False) == ["Node is not synced"]


def test_what_the_cluster_does_not_serve_keeps_nothing_from_being_ready() -> None:
    absent = SourceStatus("DeviceTaintRule", True, False, 0.0, "404")
    assert readiness.problems([absent], 10_000.0, 150) == []
    assert readiness.report([absent], 0.0) == ["DeviceTaintRule: not served by this cluster (404)"]


def test_a_source_that_is_lost_but_fresh_is_ready_and_says_so_in_the_report() -> None:
    lost = SYNCED._replace(note="connection refused")
    assert readiness.problems([lost], 110.0, 150) == []
    assert "lost: connection refused" in readiness.report([lost], 110.0)[0]


def test_what_is_dated_ahead_of_our_clock_is_named_and_by_how_much() -> None:
    status = msgspec.structs.replace(NOTHING_KNOWN, observed_time=datetime.fromtimestamp(5000, UTC))
    one = DeviceHealth(metadata=ObjectMeta(name="n"), status=status)
    publisher = Publisher()
    view = msgspec.structs.replace(EMPTY, generation=1, synced=True, device_healths={"n": one})
    publisher.publish(view, frozenset())
    publisher.sources[kinds.DEVICE_HEALTH.name] = SYNCED
    (note,) = readiness.memory_notes(publisher, lambda: 1400.0)
    assert "dated 3600 s ahead of our clock" in note
    assert readiness.memory_notes(publisher, lambda: 4950.0) == []
    assert readiness.dated_ahead_s(publisher, 4950.0) == 0.0
