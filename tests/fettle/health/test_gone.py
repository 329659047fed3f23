"""Nodes and devices that are gone: what goes with them, and what counts again when they return."""

import msgspec

from fettle.health import HealthBook
from fettle.health.signals.reports import SignalReport
from fettle.model import SOUND, EvidenceKind, Family, State
from tests.fettle.health.signals.objects import NOW
from tests.fettle.health.test_book import DEVICE, NODE, UNIT, fault, of


def test_a_node_that_is_forgotten_takes_its_units_with_it(book: HealthBook) -> None:
    book.report(
        SignalReport("Node gpu-1", (fault(UNIT), fault(NODE, kind=EvidenceKind.LATCHED))), NOW
    )
    of(book, UNIT)
    of(book, NODE)
    book.vanish("Node gpu-1", NOW)
    book.forget({NODE}, NOW)
    assert of(book, UNIT) is SOUND
    assert of(book, NODE) is SOUND
    assert book.units("gpu-1") == set()
    assert book.changed_by_time(NOW + 1e6) == set()


def test_what_a_messenger_still_says_of_a_subject_that_was_gone_counts_again(
    book: HealthBook,
) -> None:
    event = fault(UNIT, 0.4, EvidenceKind.DECAYING, reporter="pod a", source="event")
    book.report(SignalReport("pod a", (event,)), NOW)
    book.report(SignalReport("pod b", (msgspec.structs.replace(event, reporter="pod b"),)), NOW)
    book.report(
        SignalReport("pod c", (fault(UNIT, 0.5, family=Family.BUS, reporter="pod c"),)), NOW
    )
    assert of(book, UNIT).score == 0.1
    book.vanish("pod b", NOW)
    assert of(book, UNIT).score == 0.1  # bad news outlives its messenger,
    book.forget({NODE}, NOW)
    assert of(book, UNIT).score == 0.3  # but not what it was about as well
    assert book.units("gpu-1") == {UNIT}
    book.vanish("pod a", NOW)
    book.vanish("pod c", NOW)
    book.forget({NODE}, NOW)
    assert of(book, UNIT) is SOUND
    assert book.units("gpu-1") == set()


def test_what_was_latched_of_a_device_that_is_gone_goes_with_its_messenger(
    book: HealthBook,
) -> None:
    book.report(SignalReport("claim", (fault(kind=EvidenceKind.LATCHED),)), NOW)
    of(book)
    book.forget({DEVICE}, NOW)
    book.changed_by_time(NOW + 3600)
    assert of(book, now=NOW + 3600).state is State.UNHEALTHY  # its messenger is still there
    book.forget({DEVICE}, NOW + 3600)
    book.vanish("claim", NOW + 3600)
    book.changed_by_time(NOW + 7200)
    assert of(book, now=NOW + 7200) is SOUND


def test_what_fades_of_a_unit_that_is_gone_is_let_go(book: HealthBook) -> None:
    book.report(SignalReport("pod", (fault(UNIT),)), NOW)
    book.forget({NODE}, NOW)
    book.vanish("pod", NOW)
    book.changed_by_time(NOW + 86_400)
    assert book.units("gpu-1") == set()
    assert of(book, UNIT, NOW) is SOUND  # not even what it would weigh if it had not faded


def test_a_device_is_judged_afresh_once_its_node_is_another(book: HealthBook) -> None:
    book.report(SignalReport("Node gpu-1", (fault(NODE, 0.9),)), NOW)
    assert book.assess(DEVICE, (DEVICE, NODE), NOW).state is State.UNHEALTHY
    book.vanish("Node gpu-1", NOW)
    book.forget({NODE}, NOW)
    assert book.assess(DEVICE, (DEVICE, NODE), NOW) is SOUND
