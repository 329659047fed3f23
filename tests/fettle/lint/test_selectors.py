"""FTL006: attributes compared with values that they never equal."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.resource import Device
from fettle.cel import OutcomeKind, rows
from fettle.cel.language.compiler import judge, prepare
from fettle.lint.findings import Severity
from fettle.model import Validation
from tests.controlplane import objects as api
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.fleets import GPU
from tests.fettle.lint.tables.case import FLEET, claim, device, exactly


async def said(*selectors: str, known: Any = FLEET, **levels: Any) -> list[tuple[Severity, str]]:
    object_ = claim(exactly(selectors=list(selectors)))
    found = await lint(object_, known, levels=Validation(**levels))
    return [(f.severity, f.message) for f in found if f.rule == "FTL006"]


NEVER = (
    "compares gpu.nvidia.com/index with a string, which it never equals: devices publish a number"
)


async def test_a_comparison_that_is_never_true_is_reported_beside_others_that_are() -> None:
    selector = f"{device('index')} == '3' || {device('index')} == 2"
    assert await said(selector) == [(Severity.WARN, NEVER)]


async def test_a_selector_that_still_matches_devices_is_not_denied_in_strict_mode() -> None:
    selector = f"{device('index')} == '3' || {device('index')} == 2"
    assert await said(selector, strict=True) == [(Severity.WARN, NEVER)]
    assert await said(f"{device('index')} == '3'") == [(Severity.DENY, NEVER)]
    assert await said(f"{device('index')} != '3'", strict=True) == [(Severity.WARN, NEVER)]


async def test_each_comparison_is_reported_once() -> None:
    selector = f"{device('index')} == '3' || '3' == {device('index')} || {device('index')} == '4'"
    assert await said(selector) == [(Severity.DENY, NEVER)]


async def test_an_attribute_that_some_devices_publish_in_that_type_is_not_reported() -> None:
    other = api.device("gpu-9", {"index": "3"})
    known = (*FLEET, api.node("n"), api.resource_slice("n", [other], driver=GPU))
    assert await said(f"{device('index')} == '4' || {device('index')} == 2", known=known) == []


async def test_the_same_name_of_another_driver_is_another_attribute() -> None:
    other = api.device("eth2", {"index": "3"})
    known = (*FLEET, api.resource_slice("net-c", [other], driver="x.example.com", name="x"))
    assert await said(f"{device('index')} == '4' || {device('index')} == 2", known=known) == [
        (Severity.WARN, NEVER)
    ]


LITERALS = ["0", "1", "1u", "1.0", "true", "false", "'1'", "'1.0.0'", "semver('1.0.0')", "[1]"]
VALUES: list[dict[str, Any]] = [
    {"int": 1},
    {"int": 0},
    {"bool": True},
    {"bool": False},
    {"string": "1"},
    {"string": "1.0.0"},
    {"version": "1.0.0"},
    {"ints": [1]},
]


@given(
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
    st.sampled_from(LITERALS),
    st.sampled_from(["{a} == {b}", "{b} == {a}", "{a} in [{b}]"]),
)
async def test_what_is_said_to_be_never_equal_is_equal_on_no_device(
    values: list[dict[str, Any]], literal: str, form: str
) -> None:
    """And where some value of the device's type is equal, nothing is said."""
    devices = [{"name": f"d{i}", "attributes": {"a": v}} for i, v in enumerate(values)]
    selector = form.format(a=device("a"), b=literal)
    known = (
        api.node("n"),
        api.resource_slice("n", devices, driver=GPU),
        api.device_class(GPU, driver=GPU),
    )
    found = await said(f"{selector} || true", known=known)
    prepared = prepare(selector)
    for one in devices:
        raw = msgspec.json.decode(msgspec.json.encode(one), type=Device)
        key = rows.row_fingerprint(prepared.reads, GPU, raw)
        outcome = judge(prepared, rows.row(prepared.reads, key))
        assert not (found and outcome.kind is OutcomeKind.MATCH)
