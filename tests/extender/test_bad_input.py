"""Whatever a client sends: a status and a sentence, no traceback, no effect on others."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fettle.api import extender as wire
from fettle.config import ExtenderSettings
from fettle.model import BadInput
from tests.extender.conftest import Extender, listening
from tests.fettle import building as b

POD = b.gpu_pod()
VERBS = ("filter", "prioritize", "preempt")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "request body"),
        (b"{", 400, "not valid JSON"),
        (b"null", 422, "request body"),
        (b"[]", 422, "request body"),
        (b'"pod"', 422, "request body"),
        (b"{}", 400, "Pod is missing"),
        (b'{"Pod":null}', 400, "Pod is null"),
        (b'{"Pod":7}', 422, "Pod"),
        (b'{"Pod":{}}', 422, "metadata"),
        (b'{"Pod":{"metadata":null}}', 422, "metadata"),
        (b'{"Pod":{"metadata":{"name":7}}}', 422, "$.metadata.name"),
        (b'{"Pod":{"metadata":{"name":"\xff"}}}', 400, "Pod"),
        (b"[" * 100_000, 422, "request body"),
        (b'{"Pod":' + b"[" * 100_000, 400, ""),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else "",
)
async def test_what_cannot_be_read_is_said_and_where(
    extender: Extender, verb: str, body: bytes, status: int, says: str
) -> None:
    answered, reply = await extender.post(verb, body)
    assert answered == status
    assert says in reply["error"]
    assert "Traceback" not in reply["error"]


async def test_wrong_types_in_the_lists_are_said(extender: Extender) -> None:
    status, reply = await extender.post("filter", {"Pod": POD, "NodeNames": [1]})
    assert (status, reply["error"]) == (422, "NodeNames: Expected `str`, got `int` - at `$[0]`")
    for names in ({}, {"NodeNames": None}):
        body = {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "n"}}, {}]}, **names}
        status, reply = await extender.post("filter", body)
        assert status == 422
        assert "Nodes.items[1]" in reply["error"]
    body = {"Pod": POD, "NodeNameToMetaVictims": {"n": {"Pods": 3}}}
    status, reply = await extender.post("preempt", body)
    assert status == 422
    assert "NodeNameToMetaVictims[n].Pods" in reply["error"]


async def test_a_preempt_call_without_victims_is_said_to_lack_them(extender: Extender) -> None:
    status, reply = await extender.post("preempt", {"Pod": POD})
    assert (status, reply["error"]) == (
        400,
        "request body: NodeNameToVictims and NodeNameToMetaVictims are both missing; send one of "
        "them, as kube-scheduler does",
    )


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_a_request_about_no_nodes_is_said_to_lack_them(extender: Extender, verb: str) -> None:
    for rest in ({}, {"NodeNames": None}, {"Nodes": None}, {"Nodes": {"kind": "NodeList"}}):
        status, reply = await extender.post(verb, {"Pod": POD, **rest})
        assert (status, reply["error"]) == (
            400,
            "request body: NodeNames and Nodes.items are both missing; send one of them, as "
            "kube-scheduler does",
        )


@pytest.mark.parametrize("rest", [{"NodeNames": []}, {"Nodes": {"items": None}}], ids=repr)
async def test_an_empty_list_of_nodes_is_answered(extender: Extender, rest: dict[str, Any]) -> None:
    status, reply = await extender.post("filter", {"Pod": POD, **rest})
    assert (status, reply["Error"]) == (200, "")
    assert await extender.post("prioritize", {"Pod": POD, **rest}) == (200, [])


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_a_whole_node_with_bytes_that_are_no_text_is_said(
    extender: Extender, verb: str
) -> None:
    named = b'{"metadata":{"name":"a"}},{"metadata":{"name":"n\xc5"}}'
    body = b'{"Pod":{"metadata":{"name":"x"}},"Nodes":{"items":[' + named + b']},"NodeNames":null}'
    status, reply = await extender.post(verb, body)
    assert status == 400
    assert reply["error"].startswith("Nodes.items[1]: not valid JSON")


async def test_a_body_over_the_limit_is_a_413_that_names_the_limit() -> None:
    async with listening(Extender(ExtenderSettings(max_body_mebibytes=1))) as small:
        status, reply = await small.post("filter", b" " * (2**20 + 1))
        assert status == 413
        assert "1 MiB" in reply["error"]
        assert (await small.filter(POD, "n"))["NodeNames"] == ["n"]


async def test_sixty_four_megabytes_of_nonsense_are_a_400(extender: Extender) -> None:
    status, _ = await extender.post("filter", b"[" + b"1," * 31_000_000 + b"1")
    assert status in (400, 422)
    assert (await extender.filter(POD, "n"))["NodeNames"] == ["n"]


async def test_a_hundred_thousand_names_are_answered(extender: Extender) -> None:
    extender.show(b.node("n7", gpus=8, own=b.health(0.1)))
    reply = await extender.filter(POD, *(f"n{i}" for i in range(100_000)))
    assert len(reply["NodeNames"]) == 99_999
    assert "n7" not in reply["NodeNames"]


async def test_a_get_is_no_verb(extender: Extender) -> None:
    async with extender.client.get(f"http://127.0.0.1:{extender.port}/filter") as reply:
        assert reply.status == 405


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Pod",
                    "pod",
                    "Nodes",
                    "NodeNames",
                    "items",
                    "metadata",
                    "name",
                    "spec",
                    "uid",
                    "NodeNameToMetaVictims",
                    "NodeNameToVictims",
                    "Pods",
                    "resourceClaims",
                    "containers",
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_no_json_gets_anything_but_arguments_or_bad_input(value: Any) -> None:
    body = json.dumps(value).encode()
    for decode in (wire.decode_args, wire.decode_preemption):
        with contextlib.suppress(BadInput):
            decode(body)


@given(st.binary(max_size=60))
def test_no_bytes_get_anything_but_bad_input(body: bytes) -> None:
    for decode in (wire.decode_args, wire.decode_preemption):
        with pytest.raises(BadInput):
            decode(body)


@pytest.mark.long
@settings(max_examples=50)
@given(JSON)
async def test_no_request_is_ever_a_server_error(extender: Extender, value: Any) -> None:
    pods: list[Any] = [value, {**POD, "spec": value}, {"metadata": value}]
    for pod in pods:
        for verb in VERBS:
            body = {"Pod": pod, "NodeNames": ["n"], "NodeNameToMetaVictims": value}
            # A connection that is kept pauses after an error.
            status, _ = await extender.post(verb, json.dumps(body).encode(), Connection="close")
            assert status < 500


@given(st.lists(st.text(max_size=6)))
def test_names_come_back_to_the_letter(names: list[str]) -> None:
    body = msgspec.json.encode({"Pod": POD, "NodeNames": names})
    args = wire.decode_args(body)
    assert args.node_names == names
    assert msgspec.json.decode(wire.filter_reply(args.node_names))["NodeNames"] == names


def many(count: int, each: bytes) -> bytes:
    return b"[" + b", ".join([each] * count) + b"]"


@pytest.mark.parametrize(
    ("verb", "fields", "says"),
    [
        (
            "filter",
            b'"NodeNames":' + many(200_001, b'"node-12345"'),
            "NodeNames: more than 200000 names",
        ),
        (
            "filter",
            b'"Nodes":{"items":' + many(200_001, b'{"metadata":{"name":"n"}}') + b"}",
            "Nodes.items: more than 200000 nodes",
        ),
        (
            "preempt",
            b'"NodeNameToMetaVictims":{"n":{"Pods":' + many(500_000, b'{"UID":"u"}') + b"}}",
            "NodeNameToMetaVictims: more than 500000 nodes and victims",
        ),
    ],
)
async def test_more_than_any_cluster_has_is_refused_before_it_is_read(
    extender: Extender, verb: str, fields: bytes, says: str
) -> None:
    status, reply = await extender.post(verb, b'{"Pod":%b,%b}' % (msgspec.json.encode(POD), fields))
    assert status == 413
    assert says in reply["error"]


async def test_a_pod_larger_than_any_that_is_stored_is_refused_before_it_is_read(
    extender: Extender,
) -> None:
    containers = many(600_000, b'{"resources":{}}')
    pod = b'{"metadata":{"name":"p"},"spec":{"containers":%b}}' % containers
    for rest in (b'"NodeNames":["n"]', b'"Nodes":{"items":[]},"NodeNames":null'):
        status, reply = await extender.post("filter", b'{"Pod":%b,%b}' % (pod, rest))
        assert status == 413
        assert "Pod: larger than 8 MiB" in reply["error"]


@pytest.mark.parametrize("spelled", [("Pods", "UID"), ("pods", "uid")])
async def test_victims_are_read_in_any_spelling(
    extender: Extender, spelled: tuple[str, str]
) -> None:
    pods, uid = spelled
    extender.show(b.node("n", gpus=8))
    victims = {"n": {pods: [{uid: "u"}, {uid: ""}]}, "m": {pods: None}}
    status, reply = await extender.post("preempt", {"Pod": POD, "NodeNameToMetaVictims": victims})
    assert status == 200
    assert reply["NodeNameToMetaVictims"]["n"]["Pods"] == [{"UID": "u"}]
