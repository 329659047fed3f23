"""Whatever a tenant puts into parameters, what stands around them can be read."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.decoding import MAX_JSON_DEPTH, decode_lenient, shallow

ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def depth(value: Any) -> int:
    """Level by level: a test that recurses fails by itself."""
    levels, inner = 0, [value]
    while inner := [each for each in inner if isinstance(each, list | dict)]:
        inner = [x for each in inner for x in (each.values() if isinstance(each, dict) else each)]
        levels += 1
    return levels


@pytest.mark.parametrize("levels", [50, 1000, 5000, 200_000])
def test_what_stands_above_is_read_whatever_lies_below(levels: int) -> None:
    raw = b'{"a":"}]","deep":%b,"b":{"c":[1]}}' % nested(levels)
    read = decode_lenient(ANY, raw)
    assert (read["a"], read["b"]) == ("}]", {"c": [1]})
    assert depth(read) <= max(levels + 1, MAX_JSON_DEPTH)


def test_brackets_and_escaped_quotes_in_text_do_not_nest() -> None:
    text = '\\"[[[{{{\\\\'
    raw = json.dumps({"text": text * 50, "list": [[text]]}).encode()
    assert shallow(raw, 3) == raw
    assert json.loads(shallow(raw, 2)) == {"text": text * 50, "list": [None]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\[]{},:'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('k"\\[]{}'), inner),
    max_leaves=20,
)


def cut(value: Any, levels: int) -> Any:
    if isinstance(value, list | dict) and levels == 0:
        return None
    if isinstance(value, list):
        return [cut(inner, levels - 1) for inner in value]
    if isinstance(value, dict):
        return {key: cut(inner, levels - 1) for key, inner in value.items()}
    return value


@given(JSON, st.integers(0, 6), st.sampled_from([None, 1]))
def test_null_stands_for_what_lies_deeper_and_nothing_else_changes(
    value: Any, levels: int, indent: int | None
) -> None:
    raw = json.dumps(value, indent=indent).encode()
    assert json.loads(shallow(raw, levels)) == cut(value, levels)


@pytest.mark.parametrize(
    "raw",
    [b"[" * 5000, b'{"a":' * 5000, b"[" * 5000 + b'"', nested(5000)[:-1], nested(5000) + b"]"],
)
def test_what_is_no_json_stays_none(raw: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_lenient(ANY, raw)


@given(st.binary(max_size=200), st.integers(0, 5))
def test_wild_bytes_do_not_become_json_by_it(raw: bytes, levels: int) -> None:
    try:
        ANY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    assert ANY.decode(shallow(raw, levels)) == cut(ANY.decode(raw), levels)


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b'"a\xffb\xc3\xa9"', "a\ufffdb\u00e9"),
        (b'"\\ud800"', "\ufffd"),
        (b'"\\udc00\\ud800x"', "\ufffd\ufffdx"),
        (b'"\\ud83d\\ude00\\ude00"', "\U0001f600\ufffd"),
        (b'"\\\\ud800 \\ud800"', "\\ud800 \ufffd"),
        (b'{"\\uDBFF":"\xed\xa0\x80"}', {"\ufffd": "\ufffd" * 3}),
    ],
)
def test_what_is_no_character_is_read_as_go_reads_it(raw: bytes, read: Any) -> None:
    assert decode_lenient(ANY, raw) == read


TEXT = st.lists(
    st.sampled_from(
        ["\\ud800", "\\uDC00", "\\ud83d\\ude00", "\\\\", "\\n", "ud800", "\\u0041", "x"]
    )
)


@given(TEXT)
def test_of_escapes_only_halves_of_pairs_are_changed(parts: list[str]) -> None:
    text = '"' + "".join(parts) + '"'
    halves = re.compile("[\ud800-\udfff]")
    assert decode_lenient(ANY, text.encode()) == halves.sub("\ufffd", json.loads(text))


def test_a_wrong_type_is_not_mended() -> None:
    numbers: msgspec.json.Decoder[Any] = msgspec.json.Decoder(list[int])
    with pytest.raises(msgspec.ValidationError):
        decode_lenient(numbers, b'["\\ud800"]')
