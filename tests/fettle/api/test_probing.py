from typing import Any

import msgspec
import pytest

from fettle.api import kinds

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
