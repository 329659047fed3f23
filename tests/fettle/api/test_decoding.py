"""JSON to structs: lenient where users store odd JSON, strict where unknown fields matter."""

import json
import re
from enum import StrEnum
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.decoding import MAX_JSON_DEPTH, decode_lenient, describe_error, shallow
from fettle.api.resource import Device, ResourceSlice
from fettle.dra.pools import read_slice

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


class Word(StrEnum):
    ALLOW = "Allow"
    REFUSE = "Refuse"


class Inner(msgspec.Struct, rename="camel"):
    said_so: Word = Word.ALLOW
    number: int = 0


class Outer(msgspec.Struct):
    one: Inner | None = None
    many: tuple[Inner, ...] = ()
    listed: list[Word] = []
    by_name: dict[str, Inner] = {}
    said: tuple[Literal["Allow", "Refuse"], ...] | None = None


@pytest.mark.parametrize(
    "given",
    [
        {"one": {"saidSo": "refuse"}},
        {"many": [{}, {"saidSo": ""}]},
        {"listed": ["Allow", "x - at `$`"]},
        {"by_name": {"a.b[c]": {"saidSo": "Refuse "}}},
        {"said": ["Allow", "refuse"]},
    ],
)
def test_the_values_that_there_are_are_listed(given: Any) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, Outer)
    said = describe_error(raised.value, Outer)
    assert said == f"{raised.value}; expected one of Allow, Refuse"


@pytest.mark.parametrize("given", [{"one": {"number": "x"}}, {"many": 1}, []])
def test_other_errors_stay_as_they_are(given: Any) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, Outer)
    assert describe_error(raised.value, Outer) == str(raised.value)


SLICE = {"driver": "d", "nodeName": "n", "pool": {"name": "p"}}
REQUEST = {"name": "r", "exactly": {"deviceClassName": "c", "count": 1}}


def unknown(kind: kinds.Kind, spec: dict[str, Any]) -> str:
    raw = msgspec.json.encode({"metadata": {"name": "x", "managedFields": []}, "spec": spec})
    decoded: Any = kind.decode(raw)
    inner = decoded.spec.spec if kind is kinds.TEMPLATE else decoded.spec
    assert isinstance(inner.unknown, str)
    return inner.unknown


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        (kinds.SLICE, {**SLICE, "newer": 1}, "newer"),
        (kinds.SLICE, {**SLICE, "devices": [{"name": "a", "newer": {}}]}, "newer"),
        (kinds.SLICE, {**SLICE, "devices": [{"name": "a", "attributes": {"x": {"f": 1}}}]}, "`f`"),
        (kinds.CLASS, {"selectors": [{"wasm": {}}]}, "wasm"),
        (kinds.CLAIM, {"devices": {"requests": [{**REQUEST, "newer": 1}]}}, "newer"),
        (kinds.TEMPLATE, {"spec": {"devices": {"requests": [{"name": "r", "some": {}}]}}}, "some"),
    ],
    ids=str,
)
def test_a_field_that_nobody_reads_is_noticed(
    kind: kinds.Kind, spec: dict[str, Any], field: str
) -> None:
    assert field in unknown(kind, spec)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (
            kinds.SLICE,
            {**SLICE, "devices": [{"name": "a", "attributes": {"any/name": {"int": 1}}}]},
        ),
        (kinds.CLASS, {"config": [{"opaque": {"driver": "d", "parameters": {"any": 1}}}]}),
        (kinds.CLAIM, {"devices": {"requests": [REQUEST], "config": [{"opaque": {"any": 1}}]}}),
        (
            kinds.TEMPLATE,
            {"metadata": {"labels": {}}, "spec": {"devices": {"requests": [REQUEST]}}},
        ),
    ],
    ids=str,
)
def test_what_is_known_or_free_in_form_is_not(kind: kinds.Kind, spec: dict[str, Any]) -> None:
    assert unknown(kind, spec) == ""


def devices(*of: dict[str, Any]) -> tuple[Device, ...]:
    return read(*of).spec.devices or ()


def read(*of: dict[str, Any]) -> ResourceSlice:
    spec = {"driver": "d", "nodeName": "n", "pool": {"name": "n"}, "devices": of}
    raw = msgspec.json.encode({"metadata": {"name": "s"}, "spec": spec})
    found = kinds.SLICE.decode(raw)
    assert isinstance(found, ResourceSlice)
    return found


def partition(name: str, model: str = "H100", memory: object = "10Gi") -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"model": {"string": model}},
        "capacity": {"memory": {"value": memory}},
        "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}],
    }


def test_devices_that_say_alike_share_what_they_say() -> None:
    one, other = devices(partition("a"), partition("b"))
    assert (one.attributes or {})["model"] is (other.attributes or {})["model"]
    assert (one.capacity or {})["memory"] is (other.capacity or {})["memory"]
    first, second = read_slice(read(partition("a"), partition("b"))).devices
    assert first.consumes[0] is second.consumes[0]
    assert first.capacities["memory"] is second.capacities["memory"]


def test_devices_that_differ_keep_what_they_say() -> None:
    one, other = devices(partition("a"), partition("b", model="A100", memory="5Gi"))
    assert one == msgspec.convert(partition("a"), Device)
    assert other == msgspec.convert(partition("b", model="A100", memory="5Gi"), Device)


def test_numbers_that_are_equal_are_still_read_as_each_is_written() -> None:
    whole, fraction = read_slice(read(partition("a", memory=1), partition("b", memory=1.0))).devices
    assert not whole.unclear
    assert "1.0 is written as a fraction" in fraction.unclear
