from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import Gone, Put, key_of, kinds, read
from fettle.api.kinds import Kind
from fettle.client.events import Events, Plain, UnreadEvent
from fettle.model import BadInput

POD = {"metadata": {"name": "p", "namespace": "ns", "resourceVersion": "7"}, "spec": {}}

ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
METADATA = st.fixed_dictionaries(
    {}, optional={"name": ANY, "namespace": ANY, "resourceVersion": ANY, "labels": ANY}
)
OBJECTS = ANY | st.fixed_dictionaries(
    {}, optional={"metadata": METADATA | ANY, "spec": ANY, "status": ANY, "kind": ANY}
)
TYPES = st.sampled_from(("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")) | st.text(max_size=5)


def line(type_: object, thing: object) -> bytes:
    return json.dumps({"type": type_, "object": thing}).encode()


@pytest.mark.parametrize("type_", ["ADDED", "MODIFIED"])
def test_a_sound_object_is_read_whole_with_its_version(type_: str) -> None:
    event = Events(kinds.POD).read(line(type_, POD))
    assert isinstance(event, Plain)
    assert isinstance(event.change, Put)
    assert event.change.object == kinds.POD.decode(json.dumps(POD).encode())
    assert event.version == "7"


def test_a_deletion_is_known_by_its_key() -> None:
    assert Events(kinds.POD).read(line("DELETED", POD)) == Plain(Gone(kinds.POD, "ns/p"), "7")


@pytest.mark.parametrize("type_", ["BOOKMARK", "ERROR", "SOMETHING"])
def test_what_is_no_object_is_left_as_it_came(type_: str) -> None:
    event = Events(kinds.POD).read(line(type_, POD))
    assert isinstance(event, UnreadEvent)
    assert (event.type, json.loads(bytes(event.object))) == (type_, POD)


def test_a_kind_of_which_every_field_matters_is_left_to_the_reading_that_notices_them() -> None:
    assert isinstance(
        Events(kinds.SLICE).read(line("ADDED", {"metadata": {"name": "s"}})), UnreadEvent
    )


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{}", b'{"type":"ADDED"}', b"\xff{", b"{"])
def test_what_is_no_event_is_said_so(raw: bytes) -> None:
    with pytest.raises(BadInput):
        Events(kinds.POD).read(raw)


@given(type_=TYPES, thing=OBJECTS, kind=st.sampled_from(kinds.KINDS))
def test_one_pass_says_what_two_say(type_: str, thing: Any, kind: Kind) -> None:
    event = Events(kind).read(line(type_, thing))
    if isinstance(event, UnreadEvent):
        assert json.loads(bytes(event.object)) == thing
    elif isinstance(event.change, Put):
        assert event.change == read(kind, json.dumps(thing).encode())
    else:
        assert event.change.key == key_of(thing["metadata"])


@pytest.mark.parametrize("kind", [kinds.POD, kinds.CLAIM])
@pytest.mark.parametrize("type_", ["ADDED", "DELETED"])
@pytest.mark.parametrize("odd", [b"[" * 5000 + b"]" * 5000, b'"\xff"', b'"\\ud800"'])
def test_an_object_that_holds_odd_json_is_an_event_like_others(
    kind: Kind, type_: str, odd: bytes
) -> None:
    thing = b'{"metadata":{"name":"c","resourceVersion":"7"},"spec":{"odd":%b}}' % odd
    event = Events(kind).read(b'{"type":"%b","object":%b}' % (type_.encode(), thing))
    if isinstance(event, UnreadEvent):
        change = read(kind, bytes(event.object))
        assert isinstance(change, Put)
        assert (event.type, change.object.metadata.key) == (type_, "c")
    else:
        assert event.version == "7"
