"""Whoever writes Events, only so much is kept of them."""

from fettle.api import core
from fettle.api.meta import ObjectMeta
from fettle.cluster.inventory.kept_events import (
    EARLY_BYTES,
    EARLY_BYTES_OF_ONE,
    MOST_ABOUT_NODES,
    MOST_OF_ONE_NODE,
    NodeEvents,
    PodEvents,
)


def event(
    name: str, about: str, namespace: str = "d", message: str = "m", of: str | None = None
) -> core.WatchedEvent:
    return core.WatchedEvent(
        metadata=ObjectMeta(name=name, namespace=namespace),
        involved_object=core.ObjectReference(
            kind="Pod", name=about, namespace=namespace if of is None else of
        ),
        message=message,
    )


def test_the_oldest_events_of_one_node_give_way() -> None:
    events = NodeEvents()
    for i in range(MOST_OF_ONE_NODE):
        assert events.add(event(f"e{i}", "n")) == []
    assert events.add(event("e0", "n")) == [], "it is added again, and the latest now"
    assert events.add(event("more", "n")) == ["d/e1"]
    assert events.add(event("other", "m")) == []


def test_the_oldest_events_of_one_namespace_give_way_and_others_stay() -> None:
    events = NodeEvents()
    for i in range(MOST_ABOUT_NODES):
        assert events.add(event(f"e{i}", f"n{i}")) == []
    assert events.add(event("e", "n", namespace="other")) == []
    assert events.add(event("more", "n")) == ["d/e0"]


def test_events_that_are_gone_make_room() -> None:
    events = NodeEvents()
    for i in range(MOST_OF_ONE_NODE):
        events.add(event(f"e{i}", "n"))
    events.gone("d/e5")
    events.gone("d/unknown")
    assert events.add(event("more", "n")) == []


def test_what_was_said_of_a_pod_before_it_was_seen_is_known_once_it_comes() -> None:
    events = PodEvents()
    events.add(event("e", "p"), lambda _: False)
    assert events.of("d/p", "uid") == "m"
    events.gone("d/p")
    assert events.of("d/p", "uid") == ""


def test_an_event_speaks_of_pods_of_its_own_namespace_only() -> None:
    events = PodEvents()
    assert events.add(event("e", "p", namespace="evil", of="d"), lambda _: True) == ""
    assert events.of("d/p", "") == ""


def test_pods_that_nobody_has_seen_take_bounded_memory() -> None:
    events = PodEvents()
    text = "x" * 1024
    events.add(event("e", "early", namespace="quiet"), lambda _: False)
    for i in range(1000):
        events.add(event("e", f"p{i}", message=text), lambda _: False)
    kept = [i for i in range(1000) if events.of(f"d/p{i}", "")]
    assert 0 < len(kept) <= EARLY_BYTES_OF_ONE // 1024
    assert kept[-1] == 999
    assert events.of("quiet/early", "") == "m", "another namespace has its own room"
    for i in range(10 * EARLY_BYTES // EARLY_BYTES_OF_ONE):
        events.add(event("e", "p", namespace=f"ns{i}"), lambda _: False)
    left = sum(bool(events.of(f"ns{i}/p", "")) for i in range(1000))
    assert left <= EARLY_BYTES // EARLY_BYTES_OF_ONE


def test_what_was_said_of_pods_that_a_list_lacks_is_forgotten() -> None:
    events = PodEvents()
    for name in ("there", "ended"):
        events.add(event("e", name), lambda _: True)
    events.keep({"d/there"})
    assert (events.of("d/there", ""), events.of("d/ended", "")) == ("m", "")


def test_no_flood_takes_away_what_was_said_of_pods_that_are_there() -> None:
    events = PodEvents()
    events.add(event("e", "there"), lambda key: key == "d/there")
    for i in range(1000):
        events.add(event("e", f"p{i}", message="x" * 1000), lambda _: False)
    assert events.of("d/there", "") == "m"
