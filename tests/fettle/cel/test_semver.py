"""Versions are strict semver 2.0, ordered by its precedence."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.cel.library.semver import compare, is_version, parse, parse_normalized
from fettle.cel.library.values import Version

RISING = [
    "0.9.9",
    "1.0.0-1",
    "1.0.0-2",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.0.1",
    "1.2.0",
    "1.10.0",
    "2.0.0",
]


def test_the_order_is_that_of_the_standard() -> None:
    for lower, higher in pairwise(map(parse, RISING)):
        assert compare(lower, higher) == -1
        assert compare(higher, lower) == 1


def test_build_metadata_does_not_count() -> None:
    assert compare(parse("1.0.0+a"), parse("1.0.0+b")) == 0


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0+", "1.0.0-01", "1.0.x", " 1.0.0",
     "1.0.0\n", "18446744073709551616.0.0", "1.0.0-18446744073709551616", "١.0.0"],
)  # fmt: skip
def test_versions_that_are_not_strict_are_refused(text: str) -> None:
    assert not is_version(text)
    with pytest.raises(ValueError, match=r"version|bits"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "strict"),
    [("v1", "1.0.0"), ("1.2", "1.2.0"), ("01.02.03", "1.2.3"), ("v1.2.3-rc.1", "1.2.3-rc.1")],
)
def test_normalizing_accepts_what_kubernetes_normalizes(text: str, strict: str) -> None:
    assert parse_normalized(text) == parse(strict)


@pytest.mark.parametrize("text", ["V1.0.0", "vv1.0.0", "1.", "1.2.3.4", "1.2-rc.1"])
def test_normalizing_does_not_accept_everything(text: str) -> None:
    with pytest.raises(ValueError, match="version"):
        parse_normalized(text)


numbers = st.integers(0, 2**64 - 1)
identifiers = st.integers(0, 99).map(str) | st.from_regex(
    r"[0-9]?[a-z-][0-9a-z-]{0,3}", fullmatch=True
)
versions = st.builds(
    lambda numbers, pre: ".".join(map(str, numbers)) + ("-" + ".".join(pre) if pre else ""),
    st.tuples(numbers, numbers, numbers),
    st.lists(identifiers, max_size=3),
)


@given(versions, versions, versions)
def test_comparison_is_a_total_order(a: str, b: str, c: str) -> None:
    x, y, z = parse(a), parse(b), parse(c)
    assert compare(x, y) == -compare(y, x)
    assert compare(x, x) == 0
    if compare(x, y) <= 0 and compare(y, z) <= 0:
        assert compare(x, z) <= 0


@given(versions)
def test_a_prerelease_comes_before_its_release(text: str) -> None:
    version = parse(text)
    release = Version(version.major, version.minor, version.patch)
    assert compare(version, release) == (-1 if version.pre else 0)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert is_version(text) in (True, False)
