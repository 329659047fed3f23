"""What the text of a selector shows, and the texts in it that are no quantity or version."""

import pytest

from fettle.lint.checks import holds_only_with_all, literals_of, meant_literal
from tests.fettle.cli.linted import findings

MEMORY = 'device.capacity["d"].memory'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('quantity("64GB")', [("quantity", '"64GB"')]),
        (" quantity ( '1' ) ", [("quantity", "'1'")]),
        (
            'a.isLessThan(semver("5")) && quantity("1Gi") == b',
            [("semver", '"5"'), ("quantity", '"1Gi"')],
        ),
        ('myquantity("x")', []),
        ('isQuantity("x")', []),
        ('a.quantity("x")', []),
        ('semver("v1", true)', []),
        ('quantity("a" + "b")', []),
        ("a == 'quantity(\"64GB\")'", []),
        ('quantity(r"64GB")', []),
        ('quantity("""64GB""")', []),
        ('quantity("64\\GB")', []),
        ('// quantity("64GB")', []),
        ('quantity("64GB', []),
        ("", []),
    ],
)
def test_the_texts_of_quantities_and_versions_are_found(
    text: str, found: list[tuple[str, str]]
) -> None:
    assert list(literals_of(text)) == found


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("a == 1", True),
        ("a && (b == 1) && c != 2", True),
        ("a == '||' && b", True),
        ("a || b", False),
        ("a ? b : c", False),
        ("a.?b == 1", False),
        ("!(a && b)", False),
        ("(a && b) == c", False),
        ("a == false", False),
        ("[].all(x, x)", False),
        ("", False),
    ],
)
def test_an_expression_of_which_a_part_may_be_left_out_is_told_apart(text: str, only: bool) -> None:
    assert holds_only_with_all(text) is only


@pytest.mark.parametrize(
    ("call", "literal", "fix"),
    [
        ("quantity", '"64GB"', "write 64G"),
        ("quantity", '"much"', ""),
        ("semver", '"570"', "write 570.0.0"),
        ("semver", '"v570.1"', "write 570.1.0"),
        ("semver", '"570.01.0"', "write 570.1.0"),
        ("semver", '"new"', "write three numbers, such as 570.0.0"),
    ],
)
def test_what_is_meant_is_said(call: str, literal: str, fix: str) -> None:
    assert meant_literal(call, literal) == fix


def claim(expression: str, kind: str = "exactly") -> str:
    selectors = f"selectors: [{{cel: {{expression: '{expression}'}}}}]"
    one = f"deviceClassName: c, {selectors}"
    request = (
        f"exactly: {{{one}}}" if kind == "exactly" else f"firstAvailable: [{{name: a, {one}}}]"
    )
    return (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n"
        f"spec: {{devices: {{requests: [{{name: g, {request}}}]}}}}\n"
    )


def test_a_literal_that_is_none_is_denied_where_the_selector_needs_it() -> None:
    (one,) = findings("-", stdin=claim(f'{MEMORY}.compareTo(quantity("64GB")) >= 0'))
    assert (one["rule"], one["severity"], one["fix"]) == ("FTL116", "Deny", "write 64G")
    assert one["message"] == '"64GB" is no quantity, so quantity("64GB") always fails'
    (one,) = findings("-", stdin=claim('device.attributes["d"].v.isLessThan(semver("570"))'))
    assert (one["rule"], one["fix"]) == ("FTL116", "write 570.0.0")


def test_it_only_warns_where_the_selector_may_hold_without_it() -> None:
    either = f'device.driver == "x" || {MEMORY}.compareTo(quantity("64GB")) >= 0'
    (one,) = findings("-", stdin=claim(either))
    assert (one["rule"], one["severity"]) == ("FTL116", "Warn")
    sure = f'{MEMORY}.compareTo(quantity("64GB")) >= 0'
    (one,) = findings("-", stdin=claim(sure, "firstAvailable"))
    assert (one["rule"], one["severity"]) == ("FTL116", "Warn")


@pytest.mark.parametrize(
    "expression",
    [
        f'{MEMORY}.compareTo(quantity("64Gi")) >= 0',
        f'{MEMORY}.compareTo(quantity("1.5")) >= 0',
        'device.attributes["d"].v.isLessThan(semver("570.0.0"))',
        'device.attributes["d"].v.isLessThan(semver("570.0.0-rc.1"))',
        'device.attributes["d"].v.isLessThan(semver("v570", true))',
    ],
)
def test_sound_literals_pass(expression: str) -> None:
    assert findings("-", stdin=claim(expression)) == []
