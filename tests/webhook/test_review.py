"""AdmissionReview v1, in and out."""

import gc
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.model import BadInput
from tests.hostile.pauses import slowness
from tests.webhook.reviews import UID, Object, encoded, patch_of, pod, review
from webhook.patches import Operation
from webhook.review import (
    WARNING_LENGTH,
    WARNINGS_LENGTH,
    AdmissionResponse,
    decode,
    encode,
    presentable,
)


def response(answer: AdmissionResponse) -> Object:
    reply: Object = msgspec.json.decode(encode("some-uid", answer))
    assert (reply["apiVersion"], reply["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert reply["response"]["uid"] == "some-uid"
    made: Object = reply["response"]
    return made


def test_a_request_is_read_with_its_object_as_it_came() -> None:
    request = decode(encoded(review(pod())))
    assert (request.uid, request.operation, request.kind.kind) == (UID, "CREATE", "Pod")
    assert request.object == pod()


def test_a_deletion_has_no_object() -> None:
    request = decode(encoded(review(None, "DELETE", oldObject=pod())))
    assert request.object is None
    assert request.old_object == pod()


def without(part: str) -> Object:
    whole = review(pod())
    del whole["request"][part]
    return whole


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b"null", "Expected `object`"),
        (b'{"kind": "AdmissionReview\xff"}', "AdmissionReview\ufffd"),
        (b'{"request":' + b"[" * 100_000, "truncated"),
        (b"{}", "not an AdmissionReview of admission.k8s.io/v1"),
        (encoded({**review(pod()), "kind": "Pod"}), "'Pod'"),
        (
            encoded({**review(pod()), "apiVersion": "admission.k8s.io/v1beta1"}),
            "admissionReviewVersions: [v1]",
        ),
        (encoded({**review(pod()), "kind": 5}), "`$.kind`"),
        (encoded({**review(pod()), "request": None}), "no request"),
        (encoded({**review(pod()), "request": "x"}), "Expected `object`"),
        (encoded(without("uid")), "missing required field `uid`"),
        (encoded(without("operation")), "missing required field `operation`"),
        (encoded(review(pod(), uid="")), "request.uid is empty"),
        (encoded(review(pod(), uid=7)), "`$.uid`"),
        (encoded(review(pod(), object=["x"])), "`$.object`"),
    ],
)
def test_what_is_no_review_is_bad_input_that_says_why(body: bytes, says: str) -> None:
    with pytest.raises(BadInput) as error:
        decode(body)
    assert says in str(error.value)
    assert error.value.status == 400
    assert len(str(error.value)) < 300


@given(st.binary())
def test_no_bytes_crash_the_decoder(body: bytes) -> None:
    with pytest.raises(BadInput):
        decode(body)


def test_the_garbage_collector_does_not_look_through_a_large_review_while_it_is_read() -> None:
    parts = [{"name": f"c{number}", "list": [1]} for number in range(20_000)]
    body = encoded(review(pod() | {"other": parts}))
    phases: list[str] = []
    gc.collect()
    gc.callbacks.append(lambda phase, _: phases.append(phase))
    try:
        read = decode(body)
    finally:
        gc.callbacks.pop()
    # Of what was made before, or once it is enabled again.
    assert len(phases) <= 4
    assert read.object is not None
    assert len(read.object["other"]) == 20_000
    assert gc.isenabled()


def test_an_answer_without_a_patch_has_no_patch_type() -> None:
    assert response(AdmissionResponse()) == {"uid": "some-uid", "allowed": True}


def test_a_patch_comes_with_its_type() -> None:
    patch = [Operation(op="add", path="/a", value=None), Operation(op="remove", path="/b")]
    assert patch_of(response(AdmissionResponse(patch=patch))) == [
        {"op": "add", "path": "/a", "value": None},
        {"op": "remove", "path": "/b"},
    ]


def test_a_denial_has_a_code_and_a_message_of_one_line_and_no_patch() -> None:
    patch = [Operation(op="remove", path="/b")]
    denied = response(AdmissionResponse(allowed=False, message="no:\nnever", patch=patch))
    assert denied == {
        "uid": "some-uid",
        "allowed": False,
        "status": {
            "code": 422,
            "message": "no: never",
            "reason": "Invalid",
            "status": "Failure",
        },
    }


def test_a_long_warning_is_one_line_that_keeps_what_to_do() -> None:
    (line,) = presentable([f"FTL004 {'x' * 500}; did you mean y?"], "Pod a/b")
    assert len(line) == WARNING_LENGTH
    assert line.startswith("Pod a/b: FTL004 xxx")
    assert line.endswith("x…; did you mean y?")


def test_a_warning_is_given_once() -> None:
    assert presentable(["a", "b", "a"]) == ["a", "b"]


def test_each_warning_begins_with_the_object() -> None:
    """Else kubectl would show a warning about two objects of one file once."""
    assert presentable(["a\n b", "c"], "Pod team/worker") == [
        "Pod team/worker: a b",
        "Pod team/worker: c",
    ]


@pytest.mark.parametrize(
    ("metadata", "named", "about"),
    [
        ({"name": "a"}, {"name": "a", "namespace": "team"}, "Pod team/a"),
        ({"generateName": "a-"}, {"name": "", "namespace": "team"}, "Pod team/a-*"),
        ({"name": "a"}, {"name": "a", "namespace": ""}, "Pod a"),
        ({"name": "a" * 253}, {"name": "a" * 253, "namespace": "team"}, f"Pod team/{'a' * 90}…"),
    ],
)
def test_an_object_is_named_by_kind_namespace_and_name(
    metadata: Object, named: Object, about: str
) -> None:
    made = {**pod(), "metadata": metadata}
    assert decode(encoded(review(made, **named))).about == about


def test_where_there_is_no_room_for_all_warnings_the_last_one_says_so() -> None:
    lines = presentable(f"warning number {i}" for i in range(1000))
    assert lines[0] == "warning number 0"
    assert lines[-1] == "fettle: 985 more warnings than can be shown"


@pytest.mark.parametrize(
    "warnings",
    [[f"FTL036 claim {i} is idle\u2028; remove it" for i in range(15_000)], ["x\n" * 450_000]],
)
def test_very_many_or_long_warnings_are_shown_in_a_moment(warnings: list[str]) -> None:
    began = time.process_time()
    assert presentable(warnings, "Pod team/worker")
    took_s = time.process_time() - began
    assert took_s < 0.05 * slowness()


@given(st.lists(st.text(), max_size=60) | st.lists(st.text("ab \n\x85\u2028", min_size=200)))
def test_warnings_are_such_that_the_api_server_passes_them_on(warnings: list[str]) -> None:
    lines = presentable(warnings)
    assert sum(len(line) for line in lines) <= WARNINGS_LENGTH
    for line in lines:
        assert 0 < len(line) <= WARNING_LENGTH
        line.encode()
        assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in line)


@given(st.text(), st.booleans())
def test_any_text_can_be_answered_with(text: str, allowed: bool) -> None:
    raw: Any = msgspec.json.decode(
        encode("u", AdmissionResponse(allowed=allowed, message=text, warnings=[text]))
    )
    assert raw["response"]["allowed"] is allowed
