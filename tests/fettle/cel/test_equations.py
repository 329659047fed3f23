"""Which attributes an expression compares for equality, with values of which type."""

import pytest

from fettle.cel.language.evaluating import prepare

A = 'device.attributes["d"].a'


def found(expression: str) -> list[tuple[str, str, str]]:
    prepared = prepare(expression)
    assert prepared.program is not None, prepared.outcome
    return [(f"{e.read.domain}/{e.read.name}", e.type, e.value) for e in prepared.equations]


@pytest.mark.parametrize(
    ("expression", "equations"),
    [
        (f"{A} == '3'", [("d/a", "string", "3")]),
        (f"3 != {A}", [("d/a", "int", "3")]),
        ("device.attributes['d']['a'] in [1, 2]", [("d/a", "int", "1"), ("d/a", "int", "2")]),
        (f"!({A} == true && {A} == 1.5)", [("d/a", "bool", "True"), ("d/a", "double", "1.5")]),
        (f"{A} == semver('1.0.0')", [("d/a", "kubernetes.Semver", "")]),
        (f"['x'].exists(v, {A} == v + 'y')", [("d/a", "string", "")]),
        (f"{A} == device.attributes['d'].b", [("d/a", "dyn", ""), ("d/b", "dyn", "")]),
    ],
)
def test_attributes_are_found_with_the_type_of_what_they_are_compared_with(
    expression: str, equations: list[tuple[str, str, str]]
) -> None:
    assert found(expression) == equations


@pytest.mark.parametrize(
    "expression",
    [
        f"{A} > 3",
        f"has({A}) == true",
        "device.attributes['d'].?a.orValue('x') == 'x'",
        "device.attributes['d'].?a == optional.of('x')",
        "device.driver == 'x'",
        "device.capacity['d'].a == quantity('1')",
        f"type({A}) == string && {A} == 'x'",
        f"cel.bind(v, {A}, v == 'x')",
        f"dyn({A}) == 'x'",
    ],
)
def test_other_comparisons_are_left_out(expression: str) -> None:
    assert found(expression) == []
