"""Where paths lead in raw objects, and that a place is found again by what it is called."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fettle.lint.wild import ANYTHING
from webhook.places import FieldPath, called, places, value_at

DOCUMENT = {
    "spec": {
        "jobs": [{"name": "a", "template": {"x": 1}}, {"template": {"x": 2}}, "odd"],
        "roles": {"Master": {"template": {}}, "Odd.one": {"template": {}}, "none": None},
    }
}


def test_a_star_stands_for_every_entry_called_by_its_name() -> None:
    found = list(places(DOCUMENT, "spec.jobs.*.template.x"))
    assert [place.path for place in found] == [
        ("spec", "jobs", 0, "template", "x"),
        ("spec", "jobs", 1, "template", "x"),
    ]
    assert [place.name for place in found] == [
        "spec.jobs[a].template.x",
        "spec.jobs[1].template.x",
    ]


def test_a_star_stands_for_every_member_too() -> None:
    found = [place.name for place in places(DOCUMENT, "spec.roles.*.template.metadata")]
    assert found == [
        "spec.roles.Master.template.metadata",
        "spec.roles[Odd.one].template.metadata",
    ]


def test_the_last_field_may_be_absent_what_is_above_it_not() -> None:
    assert [place.name for place in places(DOCUMENT, "spec.new")] == ["spec.new"]
    assert list(places(DOCUMENT, "status.new")) == []


def test_a_place_below_is_called_by_its_fields() -> None:
    place = FieldPath().at("metadata", "annotations", "fettle.dev/policy")
    assert place.name == "metadata.annotations[fettle.dev/policy]"


@pytest.mark.parametrize("path", ["spec.jobs.*.template.x", "spec.roles.*.template.metadata"])
def test_a_place_is_found_again_by_its_name(path: str) -> None:
    for place in places(DOCUMENT, path):
        assert called(DOCUMENT, place.name) == place


def test_an_entry_is_found_by_name_wherever_it_stands() -> None:
    moved = {"jobs": [{"name": "b"}, {"name": "a", "x": 1}]}
    place = called(moved, "jobs[a].x")
    assert place is not None
    assert value_at(moved, place.path) == 1
    assert called(moved, "jobs[c].x") is None
    assert called(moved, "jobs[7].x") is None


@given(document=ANYTHING, name=st.text(max_size=12), path=st.text("ab.*", max_size=8))
def test_nothing_of_any_shape_raises(document: Any, name: str, path: str) -> None:
    for place in places(document, path):
        value_at(document, place.path)
    if (place_called := called(document, name)) is not None:
        value_at(document, place_called.path)
