"""What an unreadable object is about, and what can be read of a Node that is broken in part."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.api import core, kinds
from fettle.api.changes import Bad, Put, read_object
from fettle.api.kinds import KINDS, NODE, Kind
from fettle.api.meta import Condition, ObjectMeta
from fettle.api.salvage import ANY_POOLS, Pools, SalvagedNode, complete_node
from tests.fettle.api.test_changes import raw

POOL = {"name": "p", "generation": "x", "resourceSliceCount": 1}
OWNED = {"ownerReferences": [5, {"kind": "Pod", "name": "no"}, {"kind": "Node", "name": "n"}]}


def result(**fields: Any) -> dict[str, Any]:
    return {"request": 5, "driver": "d", "pool": "p", "device": "x"} | fields


def allocated(results: Any) -> dict[str, Any]:
    return {"spec": {}, "status": {"allocation": {"devices": {"results": results}}}}


@pytest.mark.parametrize(
    ("kind", "object_", "node", "pools"),
    [
        (
            kinds.SLICE,
            {"spec": {"driver": "d", "nodeName": "n", "pool": POOL}},
            "n",
            (Pools("d", "p"),),
        ),
        (
            kinds.SLICE,
            {"metadata": OWNED, "spec": {"nodeName": 5, "pool": POOL}},
            "n",
            (Pools(None, "p"),),
        ),
        (kinds.SLICE, {"metadata": OWNED, "spec": 5}, "n", (ANY_POOLS,)),
        (
            kinds.SLICE,
            {"spec": {"driver": "d", "nodeName": 5, "pool": POOL}},
            "p",
            (Pools("d", "p", anywhere=True),),
        ),
        (
            kinds.SLICE,
            {"spec": {"driver": "d", "allNodes": True, "pool": POOL}},
            "",
            (Pools("d", "p", anywhere=True),),
        ),
        (kinds.SLICE, {"spec": 5}, "", (Pools(anywhere=True),)),
        (kinds.CLAIM, {"spec": 5}, "", ()),
        (kinds.CLAIM, {"spec": 5, "status": {"reservedFor": []}}, "", ()),
        (kinds.CLAIM, {"spec": 5, "status": {"allocation": {}}}, "", ()),
        (kinds.CLAIM, allocated([result(), result(device="y")]), "", (Pools("d", "p"),)),
        (
            kinds.CLAIM,
            allocated([result(pool=None), 7]),
            "",
            (Pools("d", None), ANY_POOLS),
        ),
        (kinds.CLAIM, allocated("none"), "", (ANY_POOLS,)),
        (kinds.CLAIM, {"spec": {}, "status": {"allocation": "a"}}, "", (ANY_POOLS,)),
        (kinds.CLAIM, {"spec": {}, "status": "s"}, "", (ANY_POOLS,)),
        (kinds.TAINT_RULE, {"spec": {"taint": 5}}, "", ()),
        (
            kinds.TAINT_RULE,
            {"spec": {"taint": 5, "deviceSelector": {"driver": "d", "device": 7}}},
            "",
            (Pools("d"),),
        ),
        (kinds.TAINT_RULE, {"spec": {"taint": {}, "deviceSelector": "x"}}, "", (ANY_POOLS,)),
        (kinds.TAINT_RULE, {"spec": 5}, "", (ANY_POOLS,)),
    ],
)
def test_it_speaks_of_a_node_or_of_pools(
    kind: Kind, object_: dict[str, Any], node: str, pools: tuple[Pools, ...]
) -> None:
    object_["metadata"] = {"name": "o", **object_.get("metadata", {})}
    change = read_object(kind, raw(object_))
    assert isinstance(change, Bad)
    assert (change.key, change.node, change.pools) == ("o", node, pools)


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_number_that_is_too_large_hides_nothing_else(number: str) -> None:
    request = {"name": "r", "exactly": {"count": "HERE"}}
    object_ = allocated([result(request="r")]) | {"spec": {"devices": {"requests": [request]}}}
    object_["metadata"] = {"name": "o"}
    change = read_object(kinds.CLAIM, raw(object_).replace(b'"HERE"', number.encode()))
    assert isinstance(change, Bad)
    assert (change.key, change.pools) == ("o", (Pools("d", "p"),))


def left(raw: dict[str, Any]) -> SalvagedNode:
    change = read_object(NODE, json.dumps(raw).encode())
    assert isinstance(change, Bad)
    assert change.salvaged is not None
    return change.salvaged


def node(**sections: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n"} | sections.pop("metadata", {}), **sections}


def test_a_condition_that_cannot_be_read_costs_no_other() -> None:
    conditions = [{"type": 3}, {"type": "Ready", "status": "True"}, "x"]
    info = {"bootID": "b", "kubeletVersion": 5}
    found = left(
        node(
            metadata={"annotations": {"fettle.dev/hold": "mine"}, "uid": "u"},
            spec={"taints": [{"key": "a"}]},
            status={"conditions": conditions, "capacity": {"x/gpu": "8"}, "nodeInfo": info},
        )
    )
    assert found.broken == {"status.conditions", "status.nodeInfo"}
    assert found.node.metadata.annotations == {"fettle.dev/hold": "mine"}
    assert found.node.spec is not None
    assert found.node.status is not None
    assert [t.key for t in found.node.spec.taints or ()] == ["a"]
    assert [c.type for c in found.node.status.conditions or ()] == ["Ready"]
    assert found.node.status.capacity == {"x/gpu": "8"}
    assert found.node.status.node_info is not None
    assert found.node.status.node_info.boot_id == "b"


@pytest.mark.parametrize("section", ["spec", "status"])
@pytest.mark.parametrize("value", [5, "x", [1]])
def test_a_section_that_is_no_object_is_left_out(section: str, value: Any) -> None:
    found = left(node(**{section: value}, metadata={"labels": {"a": "b"}}))
    assert found.broken == {section}
    assert found.node.metadata.labels == {"a": "b"}


def test_labels_are_read_one_by_one() -> None:
    found = left(node(metadata={"labels": {"a": "b", "c": 5}, "annotations": 7}))
    assert found.broken == {"metadata.labels", "metadata.annotations"}
    assert (found.node.metadata.labels, found.node.metadata.annotations) == ({"a": "b"}, None)


@pytest.mark.parametrize("broken", [{"x/gpu": None}, "oops"])
def test_amounts_are_read_together_or_not_at_all(broken: Any) -> None:
    """What is lost of one would look like devices that were withdrawn."""
    found = left(node(status={"capacity": {"x/gpu": "8"}, "allocatable": broken}))
    assert found.node.status is not None
    assert (found.node.status.capacity, found.node.status.allocatable) == (None, None)


@pytest.mark.parametrize("metadata", [{}, {"name": 5}, 5])
def test_without_a_name_there_is_nothing_left(metadata: Any) -> None:
    change = read_object(NODE, json.dumps({"metadata": metadata}).encode())
    assert isinstance(change, Bad)
    assert change.salvaged is None


def test_only_nodes_are_salvaged() -> None:
    for kind in KINDS:
        change = read_object(kind, b'{"metadata": {"name": "x", "labels": 5}}')
        assert isinstance(change, Bad)
        assert (change.salvaged is not None) == (kind is NODE)


WHOLE = core.Node(
    metadata=ObjectMeta(name="n", labels={"a": "b"}),
    spec=core.NodeSpec(taints=(core.Taint(key="k"),)),
    status=core.NodeStatus(conditions=(Condition(type="Ready"),), capacity={"x/gpu": "8"}),
)


def test_what_cannot_be_read_stays_as_it_was_known() -> None:
    taints = [{"key": 5}]
    status = {"capacity": {"x/gpu": "4"}, "allocatable": 7, "conditions": [5, {"type": "X"}]}
    found = complete_node(left(node(spec={"taints": taints}, status=status)), WHOLE)
    assert (found.metadata.labels, found.spec) == (None, WHOLE.spec)
    assert found.status is not None
    assert found.status.capacity == {"x/gpu": "8"}
    assert [c.type for c in found.status.conditions or ()] == ["Ready", "X"]
    assert complete_node(left(node(status=5)), WHOLE).status == WHOLE.status


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["labels", "taints", "conditions", "type", "key", "capacity", "uid"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(ANY, ANY, ANY)
@example({"uid": None}, None, None)
def test_any_node_with_a_name_is_put_or_leaves_something(
    metadata: Any, spec: Any, status: Any
) -> None:
    metadata = metadata if isinstance(metadata, dict) else {}
    raw = msgspec.json.encode(
        {"metadata": metadata | {"name": "n"}, "spec": spec, "status": status}
    )
    change = read_object(NODE, raw)
    if isinstance(change, Put):
        assert change.object.metadata.name == "n"
    else:
        assert isinstance(change, Bad)
        assert change.salvaged is not None
        assert change.salvaged.broken
        assert change.salvaged.node.metadata.name == "n"
        assert complete_node(change.salvaged, WHOLE).metadata.name == "n"
