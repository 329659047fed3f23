"""Field paths, and the part of RFC 6902 that patches need."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.model import BadInput
from tests.fettle.lint.wild import ANYTHING
from webhook.patches import (
    Editing,
    Operation,
    apply,
    field_at,
    fields_matching,
    parts,
    pointer,
)

KEYS = st.text(max_size=5)


def op(op: Any, path: str, *value: Any) -> Operation:
    return Operation(op=op, path=path, value=value[0]) if value else Operation(op=op, path=path)


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a": 1}, op("add", "/b", 2), {"a": 1, "b": 2}),
        ({"a": 1}, op("add", "/a", 2), {"a": 2}),
        ({"a": 1}, op("replace", "/a", None), {"a": None}),
        ({"a": 1, "b": 2}, op("remove", "/a"), {"b": 2}),
        ({"a": {"b": 1}}, op("test", "/a/b", 1), {"a": {"b": 1}}),
        ([1, 3], op("add", "/1", 2), [1, 2, 3]),
        ([1, 2], op("add", "/2", 3), [1, 2, 3]),
        ([1, 2], op("add", "/-", 3), [1, 2, 3]),
        ([1, 2, 3], op("remove", "/1"), [1, 3]),
        ([1, 2], op("replace", "/0", 9), [9, 2]),
        ({"a/b": {"m~n": 1}}, op("replace", "/a~1b/m~0n", 2), {"a/b": {"m~n": 2}}),
        ({"~1": 1}, op("remove", "/~01"), {}),
        ({"": {"": 1}}, op("replace", "//", 2), {"": {"": 2}}),
        ({"a": 1}, op("replace", "", {"b": 2}), {"b": 2}),
        ({"a": None}, op("add", "/a", {}), {"a": {}}),
    ],
)
def test_operations_that_fit(document: Any, operation: Operation, expected: Any) -> None:
    before = copy.deepcopy(document)
    assert apply(document, [operation]) == expected
    assert document == before


@pytest.mark.parametrize(
    ("document", "operation", "reason"),
    [
        ({}, op("replace", "/a", 1), "no member 'a'"),
        ({}, op("remove", "/a"), "no member 'a'"),
        ({}, op("add", "/a/b", 1), "no member 'a'"),
        ({"a": None}, op("add", "/a/b", 1), "no 'b' in a NoneType"),
        ({"a": "text"}, op("add", "/a/0", 1), "no '0' in a str"),
        ([1], op("add", "/2", 1), "no entry 2 in a list of 1"),
        ([1], op("replace", "/1", 1), "no entry 1 in a list of 1"),
        ([1], op("replace", "/-", 1), "not a list index"),
        ([1], op("remove", "/01"), "not a list index"),
        ([1], op("remove", "/-1"), "not a list index"),
        ([1], op("remove", "/x"), "not a list index"),
        ({"a": True}, op("test", "/a", 1), "different"),
        ({"a": 1}, op("test", "/a", 2), "different"),
        ({"a": 1}, op("add", "a", 2), "must begin with /"),
        ({"a": 1}, op("remove", ""), "cannot be removed"),
    ],
)
def test_operations_that_do_not_fit_are_named(
    document: Any, operation: Operation, reason: str
) -> None:
    with pytest.raises(BadInput, match="patch does not fit") as error:
        apply(document, [operation])
    assert reason in str(error.value)
    assert str(operation) in str(error.value)


@given(st.lists(KEYS))
def test_a_pointer_names_the_path_it_was_made_of(path: list[str]) -> None:
    assert parts(pointer(path)) == path


@given(st.dictionaries(KEYS, ANYTHING), st.lists(KEYS, min_size=1, max_size=4), ANYTHING)
def test_an_edit_fits_the_object_or_is_refused_when_it_is_made(
    document: dict[str, Any], path: list[str], value: Any
) -> None:
    before = copy.deepcopy(document)
    editing = Editing(document)
    try:
        editing.set(path, value)
    except BadInput:
        assert editing.operations == []
        return
    assert apply(before, editing.operations) == editing.document
    found: Any = editing.document
    for key in path:
        found = found[int(key)] if isinstance(found, list) else found[key]
    assert found == value
    assert document == before


def test_missing_parent_objects_are_created_in_one_operation() -> None:
    editing = Editing({"metadata": {}})
    editing.set(("metadata", "annotations", "a/b"), "1")
    editing.set(("metadata", "annotations", "c"), "2")
    assert [str(o) for o in editing.operations] == [
        "add /metadata/annotations",
        "add /metadata/annotations/c",
    ]
    assert editing.document == {"metadata": {"annotations": {"a/b": "1", "c": "2"}}}


@pytest.mark.parametrize("absent", [{}, {"list": None}])
def test_an_absent_list_is_created_and_then_appended_to(absent: dict[str, Any]) -> None:
    editing = Editing(absent)
    editing.append(("list",), 1)
    editing.append(("list",), 2)
    assert editing.document == {"list": [1, 2]}


def test_absent_list_entries_are_not_created() -> None:
    with pytest.raises(BadInput):
        Editing({}).set(("containers", 0, "name"), "x")
    with pytest.raises(BadInput):
        Editing({"containers": []}).set(("containers", 0, "name"), "x")


DOCUMENT = {
    "spec": {
        "jobs": [{"name": "a", "template": {"x": 1}}, {"template": {"x": 2}}, "odd"],
        "roles": {"Master": {"template": {}}, "Odd.one": {"template": {}}, "none": None},
    }
}


JOBS = ("spec", "jobs", "*", "template", "x")
ROLES = ("spec", "roles", "*", "template", "metadata")


def test_a_star_matches_every_list_entry_by_name() -> None:
    found = [*fields_matching(DOCUMENT, JOBS)]
    assert [field.keys for field in found] == [
        ("spec", "jobs", 0, "template", "x"),
        ("spec", "jobs", 1, "template", "x"),
    ]
    assert [field.path for field in found] == [
        "spec.jobs[a].template.x",
        "spec.jobs[1].template.x",
    ]


def test_a_star_matches_every_member_of_a_map() -> None:
    found = [field.path for field in fields_matching(DOCUMENT, ROLES)]
    assert found == [
        "spec.roles.Master.template.metadata",
        "spec.roles[Odd.one].template.metadata",
    ]


def test_only_the_last_field_of_a_path_may_be_absent() -> None:
    assert [field.path for field in fields_matching(DOCUMENT, ("spec", "new"))] == ["spec.new"]
    assert [*fields_matching(DOCUMENT, ("status", "new"))] == []


@pytest.mark.parametrize("path", [JOBS, ROLES])
def test_a_field_is_found_again_by_its_path(path: tuple[str, ...]) -> None:
    for field in fields_matching(DOCUMENT, path):
        assert field_at(DOCUMENT, field.path) == field


def test_an_entry_is_found_by_name_wherever_it_stands() -> None:
    moved = {"jobs": [{"name": "b"}, {"name": "a", "x": 1}]}
    field = field_at(moved, "jobs[a].x")
    assert field is not None
    assert field.value == 1
    assert field_at(moved, "jobs[c].x") is None
    assert field_at(moved, "jobs[7].x") is None


@given(document=ANYTHING, name=st.text(max_size=12), path=st.text("ab.*", max_size=8))
def test_no_document_of_any_shape_raises(document: Any, name: str, path: str) -> None:
    assert all(field.keys for field in fields_matching(document, path.split(".")))
    if (found := field_at(document, name)) is not None:
        assert field_at(document, found.path) is not None
