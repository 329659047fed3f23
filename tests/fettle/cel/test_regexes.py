"""Patterns: what Go and RE2 refuse is an error, and only what they may read differently is
undecided."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.cel.library.regexes import compiled
from fettle.cel.library.values import CelError, Undecidable


@pytest.mark.parametrize(
    "pattern",
    [r"\p{L+", r"\p{", r"\p{L}[", r"(\p{L}", r"\p{L}*?+*", r"\pL{2,1}", r"\p{L}\8", r"[z-\pL]"],
)
def test_a_wrong_pattern_is_an_error_even_if_it_has_a_class_of_unicode(pattern: str) -> None:
    with pytest.raises(CelError, match="cannot be read"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", [r"\p{Nope}", r"\pX", r"[\P{Nope}a]"])
def test_a_class_of_unicode_that_go_may_know_is_undecided(pattern: str) -> None:
    with pytest.raises(Undecidable, match="read otherwise"):
        compiled(pattern)


def nested(levels: int, before: str, after: str) -> str:
    return before * levels + "a" + after * levels


@pytest.mark.parametrize(
    ("before", "after", "levels"),
    [
        ("(", ")", 999),
        ("(?:", ")+", 999),
        ("((?i:", ")?)", 499),
        ("(b", r"[)\]])", 499),
        ("(?:", r")*\Q(\E", 499),
    ],
)  # fmt: skip
def test_a_pattern_that_is_nested_deeper_than_go_allows_is_an_error(
    before: str, after: str, levels: int
) -> None:
    assert compiled(nested(levels, before, after))
    with pytest.raises(CelError, match="nested too deeply"):
        compiled(nested(levels + 2, before, after))


def test_groups_that_add_nothing_to_the_tree_are_not_counted() -> None:
    assert compiled(nested(3000, "(?:", ")b"))


def test_the_depth_is_undecided_where_go_may_factor_out_common_prefixes() -> None:
    with pytest.raises(Undecidable, match="read otherwise"):
        compiled(nested(400, "(a|ab", "|b)"))
    assert compiled(nested(100, "(a|ab", "|b)"))
    assert compiled("|".join(f"gpu-{n}" for n in range(900)))


PIECES = [
    *("a", "(", "(?:", "(?i:", "(?P<n>", ")", ")*", "|", "[b-d]", "[]x]", "[^[:alpha:]]"),
    *(r"\Q", r"\E", r"\[", r"\x{61}", r"\pL", "{2}", "{01}", "*", "+?", "^", "[", "]", "{", "}"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.integers(0, 300))
def test_any_pattern_is_accepted_refused_or_undecided(pieces: list[str], levels: int) -> None:
    with suppress(CelError, Undecidable):
        compiled("(?:b" * levels + "".join(pieces) + ")?" * levels)
