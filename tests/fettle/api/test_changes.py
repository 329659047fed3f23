"""One object's JSON becomes a change, and changes are passed on in batches."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.changes import (
    BATCH_BYTES,
    Bad,
    Batches,
    Change,
    Contact,
    Put,
    read_loosely,
    read_object,
)
from fettle.api.kinds import KINDS, NODE, POD, Kind


def raw(thing: Any) -> bytes:
    return json.dumps(thing).encode()


def test_an_object_is_put() -> None:
    change = read_object(NODE, raw({"metadata": {"name": "a"}}))
    assert isinstance(change, Put)
    assert change.object.metadata.key == "a"


NAMED = {"name": "p", "namespace": "ns"}


@pytest.mark.parametrize(
    ("text", "key", "node"),
    [
        (raw({"metadata": NAMED, "spec": {"nodeName": "n", "containers": "x"}}), "ns/p", "n"),
        (raw({"metadata": NAMED | {"labels": 5}, "spec": {"nodeName": 7}}), "ns/p", ""),
        (raw({"metadata": {"name": 5}}), "", ""),
        (raw({"metadata": {}}), "", ""),
        (raw({"metadata": None}), "", ""),
        (raw([]), "", ""),
        (b"no json", "", ""),
    ],
)
def test_an_object_that_cannot_be_read_is_bad_under_what_can_be(
    text: bytes, key: str, node: str
) -> None:
    change = read_object(POD, text)
    assert isinstance(change, Bad)
    assert (change.key, change.node) == (key, node)
    assert "Pod" not in change.reason, "whoever tells it says of what"


def test_a_bad_node_speaks_for_itself() -> None:
    change = read_object(NODE, raw({"metadata": {"name": "a"}, "status": 1}))
    assert isinstance(change, Bad)
    assert change.node == "a"


@given(st.sampled_from(KINDS), st.binary())
def test_wild_bytes_are_bad(kind: Kind, text: bytes) -> None:
    assert isinstance(read_object(kind, text), Bad)
    assert isinstance(read_loosely(text), dict)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)


@given(st.sampled_from(KINDS), JSON, JSON, JSON)
def test_wild_objects_are_put_or_bad(kind: Kind, metadata: Any, spec: Any, status: Any) -> None:
    text = msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})
    assert isinstance(read_object(kind, text), Put | Bad)


async def test_changes_go_on_in_batches_of_bounded_size() -> None:
    told: list[list[Change]] = []

    class Sink:
        async def send(self, changes: list[Change]) -> None:
            told.append(changes)

    batches = Batches(Sink())
    for _ in range(10):
        await batches.add(Contact(NODE), BATCH_BYTES // 3 + 1)
    await batches.flush()
    await batches.flush()
    assert [len(changes) for changes in told] == [3, 3, 3, 1]
