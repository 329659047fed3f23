from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.client.lines import Lines
from fettle.model import Unreachable


@given(st.lists(st.binary(max_size=40)))
def test_lines_are_those_of_the_whole_body_however_it_was_cut(chunks: list[bytes]) -> None:
    lines = Lines()
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    whole = b"".join(chunks)
    assert found == [line for line in whole.split(b"\n")[:-1] if line.strip()]


@given(st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b and b.strip())), st.data())
def test_any_cut_of_well_formed_lines_gives_them_back(
    parts: list[bytes], data: st.DataObject
) -> None:
    body = b"".join(part + b"\n" for part in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)))))
    lines, found = Lines(), []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += lines.feed(body[start:end])
    assert found == parts


def test_a_line_without_an_end_does_not_grow_for_ever() -> None:
    lines = Lines(longest=100)
    lines.feed(b"x" * 100)
    with pytest.raises(Unreachable, match="more than 100 bytes"):
        lines.feed(b"x")


def test_a_line_may_be_large_if_it_comes_in_many_chunks() -> None:
    lines = Lines()
    for _ in range(2000):
        assert lines.feed(b"x" * 1000) == []
    assert lines.feed(b"\n") == [b"x" * 2_000_000]
