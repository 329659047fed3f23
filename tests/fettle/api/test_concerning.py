"""What a broken object still says of where it belongs."""

from typing import Any

import pytest

from fettle.api import kinds
from fettle.api.changes import Bad, read_object
from fettle.api.kinds import Kind
from fettle.api.salvage import ANY_POOLS, Pools
from tests.fettle.api.test_reading import raw

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
    config = [{"opaque": {"driver": "d", "parameters": {"x": "HERE"}}}]
    object_ = allocated([result(request="r")]) | {"spec": {"devices": {"config": config}}}
    object_["metadata"] = {"name": "o"}
    change = read_object(kinds.CLAIM, raw(object_).replace(b'"HERE"', number.encode()))
    assert isinstance(change, Bad)
    assert (change.key, change.pools) == ("o", (Pools("d", "p"),))
