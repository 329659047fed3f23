"""Which values of a device an expression reads, and the row that is made of them."""

import pytest

from fettle.cel.language.compiler import build, prepare
from fettle.cel.language.reads import driver, needed, reads
from fettle.cel.runtime import rows
from fettle.cel.runtime.rows import AttributeRead
from tests.fettle.cel.devices import AMOUNTS, DRIVER, GPU, MODEL, device

A = f'device.attributes["{DRIVER}"]'


Attr = AttributeRead


@pytest.mark.parametrize(
    ("expression", "seen"),
    [
        ("true", ()),
        ('device.driver == "x" && device.allowMultipleAllocations', ()),
        (f'{A}.model == "x"', (Attr("attributes", DRIVER, "model"),)),
        ('device.attributes.dom["a/b"] == 1', (Attr("attributes", "dom", "a/b"),)),
        (f'has({A}.model) || "index" in {A}',
         (Attr("attributes", DRIVER, "index"), Attr("attributes", DRIVER, "model"))),
        ('"dom" in device.capacity', (Attr("capacity", "dom", ""),)),
        (f"{A}.links.all(x, x > 0)", (Attr("attributes", DRIVER, "links"),)),
        (f"({A}).model == (device).driver", (Attr("attributes", DRIVER, "model"),)),
        (f'{A}.?model.orValue("") == {A}[?"uuid"].orValue("")',
         (Attr("attributes", DRIVER, "model"), Attr("attributes", DRIVER, "uuid"))),
        (f"cel.bind(a, {A}, a.model == a.?uuid.orValue(1))",
         (Attr("attributes", DRIVER, "model"), Attr("attributes", DRIVER, "uuid"))),
        (f"cel.bind(device, {A}, device.model == 1)", (Attr("attributes", DRIVER, "model"),)),
        (f"[1].exists(device, device == 1) && {A}.model == 1",
         (Attr("attributes", DRIVER, "model"),)),
        (f"{A}.?model.optMap(m, m == 1).orValue(false)", (Attr("attributes", DRIVER, "model"),)),
        ('device.capacity["d"].m.isGreaterThan(quantity("1"))', (Attr("capacity", "d", "m"),)),
    ],
)  # fmt: skip
def test_constant_names_are_read_one_by_one(
    expression: str, seen: tuple[AttributeRead, ...]
) -> None:
    assert reads(build(expression).tree) == seen


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes[device.driver].model == 1",
        "device.attributes.exists(d, d == 'x')",
        f"{A}.all(n, n != 'x')",
        f"size({A}) == 1",
        "device == device",
        f"cel.bind(a, {A}, a == a)",
        f"cel.bind(a, {A}, [1].all(a, a == 1)) && {A} == {A}",
        "device.attributes == device.attributes",
        f"device.driver in {A}",
        f"[1].map(x, {A}) == []",
        "has(device.attributes.dom)",
        f'{A}[""] == 1',
        f"{A}.exists(k, v, v == 1)",
    ],
)
def test_any_other_use_reads_the_whole_device(expression: str) -> None:
    assert reads(build(expression).tree) is None


def test_devices_that_differ_in_other_values_share_a_fingerprint() -> None:
    seen = (
        Attr("attributes", DRIVER, "model"),
        Attr("capacity", DRIVER, "memory"),
    )
    twin = device({**MODEL, "uuid": {"string": "GPU-2"}}, {**AMOUNTS, "share": {"value": "1"}})
    other = device({**MODEL, "model": {"string": "H100"}}, AMOUNTS)
    assert rows.row_fingerprint(seen, DRIVER, twin) == rows.row_fingerprint(seen, DRIVER, GPU)
    assert rows.row_fingerprint(seen, DRIVER, other) != rows.row_fingerprint(seen, DRIVER, GPU)
    assert rows.row_fingerprint(None, DRIVER, twin) != rows.row_fingerprint(None, DRIVER, GPU)


def test_the_same_value_of_another_type_has_another_fingerprint() -> None:
    seen = (Attr("attributes", DRIVER, "n"),)
    one, true = device({"n": {"int": 1}}), device({"n": {"bool": True}})
    assert rows.row_fingerprint(seen, DRIVER, one) != rows.row_fingerprint(seen, DRIVER, true)


def test_a_row_holds_nothing_that_was_not_read() -> None:
    seen = (
        Attr("attributes", DRIVER, "model"),
        Attr("attributes", "dra.net", ""),
    )
    row = rows.row(seen, rows.row_fingerprint(seen, DRIVER, GPU))
    assert [(domain, name) for domain, name, _ in row.attributes] == [(DRIVER, "model")]
    assert row.domains == (("attributes", "dra.net", True),)
    assert not row.capacity


def test_a_domain_ends_at_the_first_slash_of_a_name() -> None:
    odd = device({"dra.net/rdma/on": {"bool": True}}, {"dra.net/rdma/lanes": {"value": "4"}})
    wrong = (
        Attr("attributes", "dra.net/rdma", "on"),
        Attr("capacity", "dra.net/rdma", "lanes"),
    )
    right = (
        Attr("attributes", "dra.net", "rdma/on"),
        Attr("capacity", "dra.net", "rdma/lanes"),
    )
    assert [rows.value_at_read(read, DRIVER, odd) for read in wrong] == [None, None]
    assert None not in [rows.value_at_read(read, DRIVER, odd) for read in right]


def test_the_order_of_attributes_does_not_change_the_fingerprint() -> None:
    turned = device(dict(reversed(MODEL.items())), dict(reversed(AMOUNTS.items())))
    assert rows.row_fingerprint(None, DRIVER, turned) == rows.row_fingerprint(None, DRIVER, GPU)


@pytest.mark.parametrize(
    ("attributes", "word"),
    [
        ({"a": {}}, "no value"),
        ({"a": {"version": "1.0"}}, "semantic version"),
        ({"a": {"versions": ["1.0.0", "x"]}}, "semantic version"),
        ({"a": {"int": 2**63}}, "64 bits"),
        ({"a": {"ints": [1, 2**63]}}, "64 bits"),
        ({"a": {"int": 1}, f"{DRIVER}/a": {"int": 2}}, "twice"),
    ],
)
def test_a_device_that_cannot_be_judged_says_why(attributes: dict[str, object], word: str) -> None:
    assert word in rows.problem(DRIVER, device(attributes))


def test_a_sound_device_has_no_problem() -> None:
    assert rows.problem(DRIVER, GPU) == ""
    assert rows.problem(DRIVER, device()) == ""


@pytest.mark.parametrize(
    ("expression", "only"),
    [
        (f'device.driver == "{DRIVER}"', DRIVER),
        (f'"{DRIVER}" == device.driver', DRIVER),
        (f'device.driver == "{DRIVER}" && {A}.model == "x" && {A}.index > 1', DRIVER),
        (f'{A}.model == "x" && device.driver == "{DRIVER}"', ""),
        (f'device.driver == "{DRIVER}" || {A}.model == "x"', ""),
        (f'device.driver != "{DRIVER}"', ""),
        (f'!(device.driver == "{DRIVER}")', ""),
        (f'{A}.model == "{DRIVER}"', ""),
        ("device.driver == device.driver", ""),
        (f'cel.bind(x, "{DRIVER}", device.driver == x)', ""),
    ],
)  # fmt: skip
def test_the_driver_is_found_if_it_is_compared_first(expression: str, only: str) -> None:
    """What comes before it could fail on a device, and so end the scheduler's attempt."""
    assert driver(build(expression).tree) == only


ATTRIBUTE = 'device.attributes["d"].a'


def found(expression: str) -> list[tuple[str, str, str]]:
    prepared = prepare(expression)
    assert prepared.program is not None, prepared.outcome
    return [(f"{e.read.domain}/{e.read.name}", e.type, e.value) for e in prepared.equations]


@pytest.mark.parametrize(
    ("expression", "equations"),
    [
        (f"{ATTRIBUTE} == '3'", [("d/a", "string", "3")]),
        (f"3 != {ATTRIBUTE}", [("d/a", "int", "3")]),
        ("device.attributes['d']['a'] in [1, 2]", [("d/a", "int", "1"), ("d/a", "int", "2")]),
        (
            f"!({ATTRIBUTE} == true && {ATTRIBUTE} == 1.5)",
            [("d/a", "bool", "True"), ("d/a", "double", "1.5")],
        ),
        (f"{ATTRIBUTE} == semver('1.0.0')", [("d/a", "kubernetes.Semver", "")]),
        (f"['x'].exists(v, {ATTRIBUTE} == v + 'y')", [("d/a", "string", "")]),
        (f"{ATTRIBUTE} == device.attributes['d'].b", [("d/a", "dyn", ""), ("d/b", "dyn", "")]),
    ],
)
def test_attributes_are_found_with_the_type_of_what_they_are_compared_with(
    expression: str, equations: list[tuple[str, str, str]]
) -> None:
    assert found(expression) == equations


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        (f"{ATTRIBUTE} == 1", [1]),
        (f"has({ATTRIBUTE}) && {ATTRIBUTE} == 1", [2]),
        (f"{ATTRIBUTE} in [1, 2] && ({ATTRIBUTE} == 1 || 2 == {ATTRIBUTE})", [1, 1, 2, 2]),
        (f"{ATTRIBUTE} == 1 || true", [0]),
        (f"!({ATTRIBUTE} == 1)", [0]),
        (f"{ATTRIBUTE} != 1", [0]),
        (f"{ATTRIBUTE} == 1 ? true : false", [0]),
        (f"{ATTRIBUTE} == 1 || {ATTRIBUTE} > 2", [0]),
        (f"{ATTRIBUTE} == device.attributes['d'].b", [0, 0]),
    ],
)
def test_equations_that_must_hold_for_a_match_are_numbered_by_the_part_they_satisfy(
    expression: str, parts: list[int]
) -> None:
    assert [e.part for e in prepare(expression).equations] == parts


OTHER = 'device.attributes["d"].b'


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (f"{ATTRIBUTE} == 1", "a"),
        (f"{ATTRIBUTE} == 1 && {OTHER} < 2", "ab"),
        (f"{ATTRIBUTE} == 1 || {OTHER} < 2", ""),
        (f"{ATTRIBUTE} == 1 || {ATTRIBUTE} == 2", "a"),
        (f"!({ATTRIBUTE} == 1 && {OTHER} < 2)", ""),
        (f"!({ATTRIBUTE} == 1 || {OTHER} < 2)", "ab"),
        (f"{ATTRIBUTE} == 1 ? {OTHER} == 1 : {OTHER} == 2", "ab"),
        (f"{ATTRIBUTE} == 1 ? {OTHER} == 1 : true", "a"),
        (f"has({ATTRIBUTE}) ? {OTHER} == 1 : true", ""),
        (f"has({ATTRIBUTE}) && {ATTRIBUTE} == 1", "a"),
        (f"!has({ATTRIBUTE})", ""),
        ("'a' in device.attributes['d']", "a"),
        ("device.attributes['d'].?a.orValue(1) == 1", ""),
        (f"device.attributes['d'].?a.orValue({OTHER}) == 1", ""),
        (f"[1, 2].exists(v, {ATTRIBUTE} == v)", ""),
        (f"{ATTRIBUTE}.startsWith({OTHER})", "ab"),
        (f"({ATTRIBUTE} == 1 || true) == true", ""),
        ("cel.bind(d, device.attributes['d'], d.a == 1)", "a"),
        ("device.capacity['d'].a.compareTo(quantity('1')) > 0", "a"),
        ("device.driver == 'd'", ""),
    ],
)
def test_what_a_device_must_have_for_a_match_is_found(expression: str, names: str) -> None:
    assert [read.name for read in needed(build(expression).tree)] == list(names)


@pytest.mark.parametrize(
    "expression",
    [
        f"{ATTRIBUTE} > 3",
        f"has({ATTRIBUTE}) == true",
        "device.attributes['d'].?a.orValue('x') == 'x'",
        "device.attributes['d'].?a == optional.of('x')",
        "device.driver == 'x'",
        "device.capacity['d'].a == quantity('1')",
        f"type({ATTRIBUTE}) == string && {ATTRIBUTE} == 'x'",
        f"cel.bind(v, {ATTRIBUTE}, v == 'x')",
        f"dyn({ATTRIBUTE}) == 'x'",
    ],
)
def test_other_comparisons_are_left_out(expression: str) -> None:
    assert found(expression) == []
