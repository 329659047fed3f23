"""Texts, lists and mappings are cut before they are decoded, and what was cut is said."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core, kinds, read_object, resource
from fettle.api.changes import Bad, Put
from fettle.api.trimming import (
    LONGEST_ANNOTATION,
    LONGEST_EVENT,
    LONGEST_SPEC,
    LONGEST_TEXT,
    MOST_ENTRIES,
    MOST_OF,
    trim,
)


def raw(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def node(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "status": status}


def read(value: Any) -> core.Node:
    change = read_object(kinds.NODE, raw(value))
    assert isinstance(change, Put)
    assert isinstance(change.object, core.Node)
    return change.object


def condition(message: str, type_: str = "A") -> dict[str, str]:
    return {"type": type_, "status": "True", "message": message}


def test_a_short_object_stays_as_it_is() -> None:
    text = raw(node(conditions=[condition("x" * 1000)] * 7))
    assert trim(text, core.Node).raw is text


@pytest.mark.parametrize("letter", ["x", "é", '"', "\\", "\n", "\U0001f600", "{", ","])
def test_a_long_message_is_cut_and_its_neighbours_are_not(letter: str) -> None:
    long, short = condition(letter * 100_000), condition("fine", "B")
    found = read_object(kinds.NODE, raw(node(conditions=[short, long, short])))
    assert isinstance(found, Put)
    assert isinstance(found.object, core.Node)
    assert found.object.status is not None
    before, cut, after = found.object.status.conditions or ()
    assert before.message == after.message == "fine"
    assert cut.message == f"{letter * LONGEST_TEXT} (cut after {LONGEST_TEXT} characters)..."
    assert found.cut == ("status.conditions[1].message: 8192 of 100000 characters are read",)


def test_an_annotation_may_be_longer_and_an_event_is_read_less_far() -> None:
    annotated = {"metadata": {"name": "n", "annotations": {"a": "x" * 100_000}}}
    assert len((read(annotated).metadata.annotations or {})["a"]) < LONGEST_ANNOTATION + 50
    event = {"metadata": {"name": "e", "namespace": "d"}, "message": "x" * 2000}
    found = read_object(kinds.NODE_EVENT, raw(event))
    assert isinstance(found, Put)
    assert isinstance(found.object, core.WatchedEvent)
    assert found.object.message.startswith("x" * LONGEST_EVENT + " (cut")


def test_a_selector_as_long_as_the_api_server_takes_is_read_whole() -> None:
    longest = f"'{'x' * (10 * 1024 - 2)}' == ''"[: 10 * 1024]
    assert len(longest) < LONGEST_SPEC
    spec = {"selectors": [{"cel": {"expression": longest}}]}
    found = read_object(kinds.CLASS, raw({"metadata": {"name": "c"}, "spec": spec}))
    assert isinstance(found, Put)
    assert not found.cut
    assert isinstance(found.object, resource.DeviceClass)
    assert found.object.spec is not None
    assert not found.object.spec.unknown


def test_a_spec_that_was_cut_is_not_understood() -> None:
    spec = {"selectors": [{"cel": {"expression": "x" * 20_000}}]}
    found = read_object(kinds.CLASS, raw({"metadata": {"name": "c"}, "spec": spec}))
    assert isinstance(found, Put)
    assert isinstance(found.object, resource.DeviceClass)
    assert found.object.spec is not None
    assert found.object.spec.unknown.startswith("spec.selectors[0].cel.expression: 16384 of 20000")


OPAQUE = {
    "numbers": {"a": [1] * 4900},
    "keys": {f"{i}": 1 for i in range(1200)},
    "a text": {"a": "x" * 10_000},
    "a number": {"a": "HUGE"},
    "nested": json.loads('{"a":' * 300 + "[[],[]]" + "}" * 300),
}


@pytest.mark.parametrize("parameters", OPAQUE.values(), ids=OPAQUE)
def test_a_claim_is_understood_whatever_its_opaque_parameters_are(parameters: Any) -> None:
    config = [
        {"requests": ["r"], "opaque": {"driver": f"d{i}", "parameters": parameters}} for i in "ab"
    ]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"config": config}}}
    found = read_object(kinds.CLAIM, raw(claim).replace(b'"HUGE"', b"1e999"))
    assert isinstance(found, Put)
    assert not found.cut
    assert isinstance(found.object, resource.ResourceClaim)
    assert not found.object.spec.unknown


def test_many_large_entries_are_no_many_entries() -> None:
    """Each of 128 devices has as many attributes as the API server takes, and many signs."""
    attributes = {f"a{i}": {"string": "{," * 32} for i in range(32)}
    devices = [{"name": f"d{i}", "attributes": attributes} for i in range(128)]
    spec = {"driver": "d", "pool": {"name": "p"}, "devices": devices}
    found = read_object(kinds.SLICE, raw({"metadata": {"name": "s"}, "spec": spec}))
    assert isinstance(found, Put)
    assert not found.cut
    assert isinstance(found.object, resource.ResourceSlice)
    assert len(found.object.spec.devices or ()) == 128


def test_fields_that_nobody_reads_may_be_of_any_length() -> None:
    text = raw(node(images=[{"names": ["x" * 1000]}] * 1000, conditions=[condition("fine")]))
    assert trim(text, core.Node) == (text, ())


@pytest.mark.parametrize("count", [MOST_OF["Condition"], MOST_OF["Condition"] + 1, 30_000, 200_000])
def test_the_first_entries_of_a_long_list_are_read(count: int) -> None:
    given = [condition("", f"T{i}") for i in range(count)]
    found = read_object(kinds.NODE, raw(node(conditions=given)))
    assert isinstance(found, Put)
    assert isinstance(found.object, core.Node)
    assert found.object.status is not None
    types = [one.type for one in found.object.status.conditions or ()]
    assert types == [f"T{i}" for i in range(min(count, 256))]
    assert bool(found.cut) == (count > 256)


@pytest.mark.parametrize("count", [MOST_ENTRIES, MOST_ENTRIES + 1, 100_000])
def test_the_first_entries_of_a_large_mapping_are_read(count: int) -> None:
    labels = {f"label-{i}": "x" * 8 for i in range(count)}
    found = read({"metadata": {"name": "n", "labels": labels}})
    assert list(found.metadata.labels or ()) == list(labels)[:MOST_ENTRIES]


@pytest.mark.parametrize("length", [100_000, 300_000])
def test_the_first_entries_beside_long_ones_are_read(length: int) -> None:
    short = {f"label-{i}": "x" * 8 for i in range(30_000)}
    labels = {"first": "y" * length} | short
    found = read({"metadata": {"name": "n", "labels": labels}})
    assert list(found.metadata.labels or ()) == list(labels)[:MOST_ENTRIES]


def test_a_long_key_is_left_out() -> None:
    found = read(node(capacity={"a": "1", "x" * 10_000: "2", "b": "3"}))
    assert found.status is not None
    assert found.status.capacity == {"a": "1", "b": "3"}


def test_a_long_value_of_a_wrong_type_is_bad_as_a_short_one_is() -> None:
    short, long = ({"metadata": "x" * length} for length in (10, 100_000))
    bad = [read_object(kinds.NODE, raw(each)) for each in (short, long)]
    assert all(isinstance(each, Bad) for each in bad)
    assert len({each.reason for each in bad if isinstance(each, Bad)}) == 1


@pytest.mark.parametrize(
    "text",
    [b'{"metadata":{"name":"n","labels":{"a":"%s' % (b"\\" * 20_001), b"[" * 20_000, b'"' * 9_001],
    ids=["no end", "deep", "odd"],
)
def test_what_is_no_json_is_left_to_the_decoder(text: bytes) -> None:
    assert isinstance(read_object(kinds.NODE, text), Bad)


texts = st.one_of(st.text(max_size=20), st.text('"\\{}[],: ', min_size=1, max_size=6)).flatmap(
    lambda piece: st.integers(0, 3000).map(lambda times: piece * times)
)


@given(st.lists(texts, max_size=6), st.dictionaries(st.text(max_size=9), texts, max_size=6))
def test_what_is_not_too_long_reads_as_if_nothing_were_cut(
    messages: list[str], annotations: dict[str, str]
) -> None:
    messages = [text[:LONGEST_TEXT] for text in messages]
    annotations = {key: text[:LONGEST_ANNOTATION] for key, text in annotations.items()}
    given_ = node(conditions=[condition(text) for text in messages])
    given_["metadata"]["annotations"] = annotations
    whole = msgspec.convert(json.loads(raw(given_)), core.Node)
    assert read(given_) == whole


@given(st.lists(texts, min_size=1, max_size=6))
def test_no_text_is_longer_than_what_is_read(messages: list[str]) -> None:
    found = read(node(conditions=[condition(text * 3) for text in messages]))
    assert found.status is not None
    for given_, kept in zip(messages, found.status.conditions or (), strict=True):
        assert len(kept.message) < LONGEST_TEXT + 50
        assert kept.message[:LONGEST_TEXT] == (given_ * 3)[:LONGEST_TEXT]
