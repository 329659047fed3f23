"""Patterns: what both makers of RE2 refuse is refused, and only what they may read differently is
undecided."""

import pytest

from fettle.selectors.regexes import compiled
from fettle.selectors.values import CelError, Undecidable


@pytest.mark.parametrize(
    "pattern",
    [r"\p{L+", r"\p{", r"\p{L}[", r"(\p{L}", r"\p{L}*?+*", r"\pL{2,1}", r"\p{L}\8", r"[z-\pL]"],
)
def test_a_mistake_is_one_though_the_pattern_has_a_class_of_unicode(pattern: str) -> None:
    with pytest.raises(CelError, match="cannot be read"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", [r"\p{Nope}", r"\pX", r"[\P{Nope}a]"])
def test_a_class_whose_name_the_other_maker_may_know_is_undecided(pattern: str) -> None:
    with pytest.raises(Undecidable, match="read otherwise"):
        compiled(pattern)
