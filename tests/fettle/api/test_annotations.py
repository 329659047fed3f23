"""Of annotations only those are kept that somebody reads."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from fettle.api import core, kinds, read_object
from fettle.api.annotations import COMPLETION_INDEX, KEPT, LONGEST_NAME, ApiObject
from fettle.api.changes import Put
from fettle.api.extender import decode_args
from fettle.api.kinds import Kind
from fettle.api.meta import ObjectMeta
from fettle.model import ANNOTATION, FURTHER_HOLD, HOLD

ALL_KINDS = (
    *kinds.BY_NAME.values(),
    kinds.NODE_EVENT,
    kinds.PARTIAL,
    *kinds.WEBHOOK_CONFIGURATIONS,
)
LARGE = {"tool/note": "x" * 250_000}
SMALL = {"tool/note": "x"}


def raw(kind: Kind, annotations: dict[str, str]) -> bytes:
    metadata = {"name": "o", "namespace": "n", "annotations": annotations}
    device = {"driver": "d", "pool": {"name": "p"}, "devices": []}
    taint = {"taint": {"key": "k", "effect": "NoSchedule"}}
    specs: dict[str, Any] = {
        "ResourceSlice": device,
        "DeviceTaintRule": taint,
        "ResourceClaimTemplate": {"spec": {}},
    }
    return json.dumps({"metadata": metadata, "spec": specs.get(kind.name, {})}).encode()


def read(kind: Kind, annotations: dict[str, str]) -> Put:
    found = read_object(kind, raw(kind, annotations))
    assert isinstance(found, Put), found
    return found


def kept(kind: Kind, annotations: dict[str, str]) -> dict[str, str] | None:
    return read(kind, annotations).object.metadata.annotations


@pytest.mark.parametrize(
    "kind", [k for k in ALL_KINDS if k is not kinds.NODE], ids=lambda k: k.name
)
@pytest.mark.parametrize("others", [SMALL, LARGE], ids=["small", "large"])
def test_what_nobody_reads_is_not_kept_and_not_said_to_be_cut(
    kind: Kind, others: dict[str, str]
) -> None:
    found = read(kind, others)
    assert found.object.metadata.annotations is None
    assert not found.cut
    for key in KEPT[kind.struct.__name__].keys:
        assert kept(kind, {**others, key: "a"}) == {key: "a"}


def test_of_every_object_it_is_written_down_what_is_kept() -> None:
    found = {one.__name__ for one in ApiObject.__subclasses__() if one.__module__[:7] == "fettle."}
    assert "StoredPolicyStatus" in found
    assert found == KEPT.keys()


def test_any_annotation_of_a_node_may_be_named_by_a_rule() -> None:
    assert kept(kinds.NODE, SMALL) == SMALL
    assert len((kept(kinds.NODE, LARGE) or {})["tool/note"]) > 32_000


@pytest.mark.parametrize("others", [SMALL, LARGE], ids=["small", "large"])
def test_all_holds_of_a_slice_are_kept_whole(others: dict[str, str]) -> None:
    holds = {HOLD: "fan", f"{FURTHER_HOLD}2": "x" * 30_000}
    assert kept(kinds.SLICE, {**others, **holds}) == holds


@pytest.mark.parametrize("length", [LONGEST_NAME + 1, 100_000])
def test_no_name_is_kept_that_is_longer_than_any_name(length: int) -> None:
    (name,) = (kept(kinds.POD, {ANNOTATION: "x" * length}) or {}).values()
    assert name == "x" * LONGEST_NAME


def test_a_thousand_annotations_do_not_hide_the_one_that_is_read() -> None:
    many = {f"tool/{i}": "x" * 100 for i in range(2000)}
    assert kept(kinds.POD, {**many, COMPLETION_INDEX: "3"}) == {COMPLETION_INDEX: "3"}


def test_a_pod_is_the_same_whether_the_api_server_or_the_scheduler_tells_of_it() -> None:
    annotations = {**LARGE, ANNOTATION: "training"}
    body = b'{"Pod":%b,"NodeNames":["n"]}' % raw(kinds.POD, annotations)
    assert decode_args(body).pod.metadata.annotations == {ANNOTATION: "training"}


def test_to_ask_for_an_annotation_that_is_not_kept_is_an_error() -> None:
    pod = core.Pod(metadata=ObjectMeta(name="p", annotations={**SMALL, ANNOTATION: "a"}))
    assert pod.annotation(ANNOTATION) == "a"
    assert pod.annotation(COMPLETION_INDEX) is None
    with pytest.raises(LookupError, match="tool/note is not kept of a Pod"):
        pod.annotation("tool/note")
    changed = msgspec.structs.replace(pod, metadata=ObjectMeta(name="p", annotations=SMALL))
    assert changed.metadata.annotations is None, "however it was made"


def test_four_hundred_pods_of_250_kb_take_no_more_than_without_annotations() -> None:
    """They took 13 MB, besides what was read and let go."""

    def bytes_of(annotations: dict[str, str]) -> int:
        pods = [raw(kinds.POD, annotations)] * 400
        tracemalloc.start()
        found = [read_object(kinds.POD, one) for one in pods]
        taken = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(found) == 400
        return taken

    assert bytes_of(LARGE) < bytes_of({}) + 20_000
