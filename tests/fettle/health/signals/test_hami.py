"""What HAMi's device plugin registers of GPUs, as it writes it (Project-HAMi/HAMi
pkg/device/devices.go MarshalNodeDevices, EncodeNodeDevices; docs/develop/protocol.md)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fettle.config import HealthSettings
from fettle.health import HealthBook
from fettle.health.signals import hami
from fettle.health.signals.nodes import report_of_node
from fettle.model import Standing, State, UnitId
from tests.fettle.health.incidents import HOUR, MINUTE, NODE, RULES, tell
from tests.fettle.health.signals.objects import NOW, node

COMMON = '"count":10,"devmem":81559,"devcore":100,"type":"NVIDIA-H100","mode":"hami-core"'
IN_JSON = f'[{{"id":"GPU-a",{COMMON},"health":true}},{{"id":"GPU-b","index":1,{COMMON}}}]'
NINE = "GPU-a,10,81559,100,H100,0,true,0,hami-core:GPU-b,10,81559,100,H100,0,false,1,hami-core:"
SEVEN = "GPU-a,10,81559,100,H100,0,true:GPU-b,10,81559,100,H100,0,false:"
BAD = UnitId("gpu-1", "nvidia.com/gpu", "GPU-b")


def asked(at: float) -> str:
    return f"Requesting_{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def answered(at: float) -> str:
    return (
        f"Reported {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S.434037031 +0000 UTC} m=+9.7"
    )


def registered(register: str, handshake: str = "") -> dict[str, str]:
    return {hami.REGISTER: register, **({hami.HANDSHAKE: handshake} if handshake else {})}


@pytest.mark.parametrize("register", [IN_JSON, NINE, SEVEN])
@pytest.mark.parametrize("handshake", ["", answered(NOW), asked(NOW - 8 * HOUR), "odd"])
def test_a_gpu_that_is_registered_as_unhealthy_is_unhealthy(register: str, handshake: str) -> None:
    said = report_of_node(node(annotations=registered(register, handshake)), RULES, NOW)
    assert [(one.subject, one.weight) for one in said.evidence] == [(BAD, 0.75)]
    assert said.unknown_signals == ()


@pytest.mark.parametrize(
    "register",
    [
        "",
        "[]",
        '[{"id": "GPU-a"}]',
        f'[{{"id":7,{COMMON}}}]',
        f'[{{"id":"a b",{COMMON}}}]',
        "[7",
        "GPU-a,10,81559,100,H100,0,no",
        "GPU-a,false,false",
    ],
)
def test_what_says_nothing_of_health_is_no_fault(register: str) -> None:
    assert report_of_node(node(annotations=registered(register)), RULES, NOW).evidence == ()


@pytest.mark.parametrize("handshake", ["Deleted_2026-09-20 10:00:00", asked(NOW - 25 * HOUR)])
def test_a_register_that_nobody_keeps_up_to_date_neither_blames_nor_clears(handshake: str) -> None:
    outdated = node(annotations=registered(IN_JSON, handshake))
    assert report_of_node(outdated, RULES, NOW).evidence == ()
    book = HealthBook(HealthSettings(), RULES)
    tell(book, node(annotations=registered(IN_JSON)), NOW - MINUTE)
    tell(book, outdated, NOW)
    (weighed,) = book.assess(BAD, (BAD, NODE), NOW).evidence
    assert weighed.evidence.standing is Standing.NOT_REPORTED


@pytest.mark.parametrize(
    ("handshake", "units", "counts"),
    [
        (asked(NOW - 900 * HOUR), "9", True),
        (asked(NOW - 900 * HOUR), "0", False),
        (answered(NOW - 900 * HOUR), "9", False),
        ("Deleted_2026-09-20 10:00:00", "9", False),
    ],
)
def test_a_request_that_plugins_no_longer_answer_says_nothing_while_units_are_allocatable(
    handshake: str, units: str, *, counts: bool
) -> None:
    asks = node(
        annotations=registered(IN_JSON, handshake),
        capacity={"nvidia.com/gpu": "10"},
        allocatable={"nvidia.com/gpu": units},
    )
    assert (BAD in {one.subject for one in report_of_node(asks, RULES, NOW).evidence}) is counts


def test_a_gpu_that_is_registered_as_healthy_again_is_free_at_once() -> None:
    book = HealthBook(HealthSettings(), RULES)
    tell(book, node(annotations=registered(NINE)), NOW)
    assert book.assess(BAD, (BAD, NODE), NOW).state is State.UNHEALTHY
    tell(book, node(annotations=registered(NINE.replace("false", "true"))), NOW + MINUTE)
    assert book.assess(BAD, (BAD, NODE), NOW + MINUTE).state is State.HEALTHY


def test_a_uuid_in_other_case_is_the_same_one() -> None:
    written, meant = "gpu-ABCDEF01-f1f9", "GPU-abcdef01-f1f9"
    for register in (IN_JSON, NINE):
        in_other_case = {hami.REGISTER: register.replace("GPU-b", written)}
        assert hami.unhealthy(in_other_case) == [meant]
        assert (meant, "index:1") in hami.names(in_other_case)
    assert hami.cordoned({hami.CORDON: f"{written},{meant}"}) == ([meant], True)


@pytest.mark.parametrize("handshake", ["Requesting_9999-99-99 99:99:99", "Reported " + "9" * 9999])
def test_a_handshake_of_any_form_is_read_without_harm(handshake: str) -> None:
    assert not hami.is_outdated({hami.HANDSHAKE: handshake}, False, NOW)


def test_many_devices_in_one_register_are_bounded_by_what_is_read_of_it() -> None:
    many = "".join(f"GPU-{n},1,1,1,x,0,false,0,x:" for n in range(100_000))
    assert len(hami.unhealthy({hami.REGISTER: many})) < 2000
