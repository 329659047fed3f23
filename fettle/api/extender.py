"""kube-scheduler's extender protocol (k8s.io/kube-scheduler/extender/v1): bytes to structs and
back.

The Go types have no JSON tags: keys are PascalCase on the wire, and Go accepts them in any case, so
Fettle does too. The pod and nodes inside are plain API objects. If a key occurs twice, the last one
counts.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import orjson

from fettle.api.core import Pod
from fettle.api.meta import ObjectMeta
from fettle.api.trimming import trim
from fettle.model import BadInput


class Args(msgspec.Struct, frozen=True):
    """ExtenderArgs: either `node_names` or `nodes` is set. `nodes` are pairs of name and JSON."""

    pod: Pod
    node_names: list[str] | None
    nodes: list[tuple[str, msgspec.Raw]] | None


class Victims(msgspec.Struct, frozen=True):
    """One candidate node of a preemption: the UIDs of its victims."""

    uids: tuple[str, ...]
    pdb_violations: int


class PreemptionArgs(msgspec.Struct, frozen=True):
    pod: Pod
    victims: dict[str, Victims]


_ABSENT = msgspec.Raw(b"")


class _Top(msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True):
    pod: msgspec.Raw = _ABSENT
    nodes: msgspec.Raw = _ABSENT
    node_names: msgspec.Raw = _ABSENT


class _Usual(msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True):
    """What kube-scheduler sends with `nodeCacheCapable: true`. Any other key may be one of these in
    another case."""

    pod: Pod
    node_names: list[str]
    nodes: msgspec.Raw = _ABSENT


class _NodeList(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


class _Whole(msgspec.Struct, frozen=True, rename="pascal", forbid_unknown_fields=True):
    """What kube-scheduler sends with `nodeCacheCapable: false`."""

    pod: msgspec.Raw
    nodes: _NodeList
    node_names: None = None


class _MetaPod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    uid: str = msgspec.field(default="", name="UID")


class _MetaVictims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As kube-scheduler spells it. Any other key may be one of these in another case."""

    pods: list[_MetaPod] | None = msgspec.field(default=None, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class _NodeName(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


_USUAL = msgspec.json.Decoder(_Usual, strict=False)
_WHOLE = msgspec.json.Decoder(_Whole, strict=False)
_WITHOUT_NAMES = b'"NodeNames":null}'
_TOP = msgspec.json.Decoder(_Top)
_ANY_CASE = msgspec.json.Decoder(dict[str, msgspec.Raw])
_POD = msgspec.json.Decoder(Pod | None, strict=False)
_NAMES = msgspec.json.Decoder(list[str] | None)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw] | None)
_NODE_NAME = msgspec.json.Decoder(_NodeName)
_META_VICTIMS = msgspec.json.Decoder(dict[str, _MetaVictims])


MAX_NAMES = 200_000
"""Many times the largest cluster. All other requests wait while a list is read."""
MAX_POD_BYTES = 8 * 2**20
"""An API server stores no object of more than 3 MiB."""
MAX_VICTIM_OBJECTS = 500_000
"""JSON objects in the victims of a preemption. A node has some tens of victims, a whole pod some
tens of objects."""
_LARGE_BYTES = 2 * 2**20
"""A smaller body cannot keep others waiting for long, whatever it contains."""


def decode_args(body: bytes) -> Args:
    """ExtenderArgs in either form. Raises BadInput with the field and what is wrong."""
    try:
        if body.endswith(_WITHOUT_NAMES):
            whole = _WHOLE.decode(body)
            return Args(_pod({"pod": whole.pod}), None, _named(whole.nodes.items))
        if len(body) <= _LARGE_BYTES:
            usual = _USUAL.decode(body)
            return Args(usual.pod, usual.node_names, None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # read it field by field, to find the bad field
    fields = _fields(body)
    pod = _pod(fields)
    raw_names = fields.get("nodenames", b"null")
    _raise_if_many(bytes(raw_names).count(b'"') // 2, "NodeNames", "names")
    names = _read(_NAMES, raw_names, "NodeNames")
    nodes = None
    if names is None and (raw_nodes := fields.get("nodes")) is not None:
        nodes = _nodes(raw_nodes)
    if names is None and nodes is None:
        raise BadInput(
            "request body: NodeNames and Nodes.items are both missing; send one of them, as "
            "kube-scheduler does"
        )
    return Args(pod, names, nodes)


def _raise_if_many(count: int, where: str, what: str) -> None:
    if count > MAX_NAMES:
        raise BadInput(
            f"{where}: more than {MAX_NAMES} {what}; a request is about nodes of one cluster",
            status=413,
        )


def decode_preemption(body: bytes) -> PreemptionArgs:
    """ExtenderPreemptionArgs in either form. Raises BadInput."""
    fields = _fields(body)
    pod = _pod(fields)
    if not {"nodenametovictims", "nodenametometavictims"} & fields.keys():
        raise BadInput(
            "request body: NodeNameToVictims and NodeNameToMetaVictims are both missing; send one "
            "of them, as kube-scheduler does"
        )
    victims: dict[str, Victims] = {}
    for key, name in (
        ("nodenametovictims", "NodeNameToVictims"),
        ("nodenametometavictims", "NodeNameToMetaVictims"),
    ):
        victims |= _victims_by_node(fields.get(key, b"null"), name)
    return PreemptionArgs(pod, victims)


def _victims_by_node(raw: Any, where: str) -> dict[str, Victims]:
    objects = bytes(raw).count(b"{")
    if objects > MAX_VICTIM_OBJECTS:
        raise BadInput(f"{where}: more than {MAX_VICTIM_OBJECTS} nodes and victims", status=413)
    try:
        usual = _META_VICTIMS.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        by_node = _read(_ANY_CASE_OR_NULL, raw, where) or {}
        return {node: _victims(each, f"{where}[{node}]") for node, each in by_node.items()}
    return {
        node: Victims(tuple(p.uid for p in each.pods or () if p.uid), each.violations)
        for node, each in usual.items()
    }


_ANY_CASE_OR_NULL = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def _victims(raw: msgspec.Raw, where: str) -> Victims:
    fields = {k.lower(): v for k, v in (_read(_ANY_CASE_OR_NULL, raw, where) or {}).items()}
    uids = []
    for item in _read(_ITEMS, fields.get("pods", b"null"), f"{where}.Pods") or ():
        pod = {k.lower(): v for k, v in (_read(_ANY_CASE_OR_NULL, item, where) or {}).items()}
        if (raw_uid := pod.get("uid")) is None and (metadata := pod.get("metadata")) is not None:
            raw_uid = (_read(_ANY_CASE_OR_NULL, metadata, where) or {}).get("uid")
        uid = _read(_STRING, raw_uid, f"{where}.Pods[].UID") if raw_uid is not None else None
        if uid:
            uids.append(uid)
    violations = _read(_INT, fields.get("numpdbviolations", b"null"), f"{where}.NumPDBViolations")
    return Victims(tuple(uids), violations or 0)


_STRING = msgspec.json.Decoder(str | None)
_INT = msgspec.json.Decoder(int | None)


def _fields(body: bytes) -> dict[str, Any]:
    """The top-level values, not yet decoded, under lower-case keys."""
    try:
        top = _TOP.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        top = _Top()  # keys in another case, or unreadable
    if top.pod is not _ABSENT and (top.node_names is not _ABSENT or top.nodes is not _ABSENT):
        found = {"pod": top.pod, "nodes": top.nodes, "nodenames": top.node_names}
        return {k: v for k, v in found.items() if v is not _ABSENT}
    return {k.lower(): v for k, v in _read(_ANY_CASE, body, "request body").items()}


def _pod(fields: dict[str, Any]) -> Pod:
    if "pod" not in fields:
        raise BadInput("request body: Pod is missing; send ExtenderArgs as kube-scheduler does")
    if len(fields["pod"]) > MAX_POD_BYTES:
        raise BadInput(
            f"Pod: larger than {MAX_POD_BYTES // 2**20} MiB, more than any API server stores",
            status=413,
        )
    # As of the pod that the watch brings, no more is read than anybody needs.
    pod: Pod | None = _read(_POD, trim(bytes(fields["pod"]), Pod).raw, "Pod")
    if pod is None:
        raise BadInput("request body: Pod is null; send ExtenderArgs as kube-scheduler does")
    return pod


def _nodes(raw: msgspec.Raw) -> list[tuple[str, msgspec.Raw]] | None:
    node_list = {k.lower(): v for k, v in (_read(_ANY_CASE_OR_NULL, raw, "Nodes") or {}).items()}
    if "items" not in node_list:
        return None
    return _named(_read(_ITEMS, node_list["items"], "Nodes.items") or [])


def _named(items: list[msgspec.Raw]) -> list[tuple[str, msgspec.Raw]]:
    _raise_if_many(len(items), "Nodes.items", "nodes")
    try:
        return [(_NODE_NAME.decode(item).metadata.name, item) for item in items]
    except (msgspec.DecodeError, UnicodeDecodeError):  # again one by one, to say which is bad
        return [
            (_read(_NODE_NAME, item, f"Nodes.items[{i}]").metadata.name, item)
            for i, item in enumerate(items)
        ]


def _read(decoder: Any, raw: Any, where: str) -> Any:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise BadInput(f"{where}: {error}", status=422) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{where}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise BadInput(f"{where}: nested too deeply") from error


def filter_reply(
    names: list[str] | None,
    refused: Iterable[str] = (),
    text: str = "",
    *,
    nodes: list[msgspec.Raw] | None = None,
    error: str = "",
) -> bytes:
    """ExtenderFilterResult. All refusals are unresolvable and share one text.

    Written by orjson, which needs a third of msgspec's time for many strings.

    >>> msgspec.json.decode(filter_reply(["a"], ["b"], "held"))["FailedAndUnresolvableNodes"]
    {'b': 'held'}
    """
    listed = {"metadata": {}, "items": nodes} if nodes is not None else None
    return orjson.dumps(
        {
            "Nodes": orjson.Fragment(msgspec.json.encode(listed)),
            "NodeNames": names,
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": dict.fromkeys(refused, text),
            "Error": error,
        }
    )


def host_priority(name: str, score: int) -> bytes:
    """One element of a HostPriorityList. The score is an integer; a float would invalidate the
    whole list.

    >>> host_priority("gpu-01", 7)
    b'{"Host":"gpu-01","Score":7}'
    """
    return b'{"Host":%b,"Score":%d}' % (msgspec.json.encode(name), score)


def prioritize_reply(entries: Iterable[bytes]) -> bytes:
    """HostPriorityList."""
    return b"".join((b"[", b",".join(entries), b"]"))


def preemption_reply(kept: dict[str, Victims]) -> bytes:
    """ExtenderPreemptionResult, always in meta form."""
    return msgspec.json.encode(
        {
            "NodeNameToMetaVictims": {
                node: {
                    "Pods": [{"UID": uid} for uid in victims.uids],
                    "NumPDBViolations": victims.pdb_violations,
                }
                for node, victims in kept.items()
            }
        }
    )
