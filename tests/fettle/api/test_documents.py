from __future__ import annotations

import json
import threading
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fettle.api.documents import (
    ALIASED_BYTES,
    DEEPEST,
    LocatedObject,
    objects_of_json,
    objects_of_yaml,
)
from fettle.model import SnapshotError

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


def values(text: str) -> list[Any]:
    return [found.value for found in objects_of_yaml(text.encode())]


def test_single_objects_lists_and_several_documents_are_all_found_with_their_lines() -> None:
    text = "kind: A\n---\nkind: List\nitems:\n- kind: B\n- {kind: C}\n---\n- odd\n---\n"
    assert objects_of_yaml(text.encode()) == [
        LocatedObject("line 1", {"kind": "A"}),
        LocatedObject("line 5", {"kind": "B"}),
        LocatedObject("line 6", {"kind": "C"}),
        LocatedObject("line 8", ["odd"]),
    ]


def test_items_of_a_typed_list_take_its_kind() -> None:
    text = '{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{}}]}'
    wanted = {"kind": "Node", "apiVersion": "v1", "metadata": {}}
    assert [found.value for found in objects_of_json(text.encode())] == [wanted]
    assert values(text) == [wanted]


def test_an_empty_list_has_no_objects_and_is_no_error() -> None:
    assert values("kind: List\nitems: []") == []


def test_lists_in_lists_are_flattened() -> None:
    text = "kind: List\nitems:\n- kind: List\n  items:\n  - kind: A\n"
    assert values(text) == [{"kind": "A"}]


def test_times_stay_text() -> None:
    assert values("a: 2026-01-02T03:04:05Z\nb: 2026-01-02") == [
        {"a": "2026-01-02T03:04:05Z", "b": "2026-01-02"}
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: b\nc: [1,\n", "line 3"),
        ("a: b\n\tc: d\n", "line 2"),
        ("kind: A\n---\na: b: c\n", "line 3"),
        ("a: !!int x", "line 1"),
        ("a: !!python/object/apply:os.system [ls]", "line 1"),
        ("a: \x07", "invalid YAML"),
        ("", "no object"),
        ("# nothing\n---\n", "no object"),
        ("a: *b", "line 1: the alias *b"),
        ("a: &a\n- *a\n", "line 2: the alias *a"),
        ("{[1]: 2}", "line 1: a key must be a scalar"),
        ("a: !!binary aGk=", "line 1: the tag"),
        ("a: !!set {x}", "line 1: the tag"),
        ("a: {<<: 5}", "line 1: only mappings can be merged"),
    ],
)
def test_invalid_yaml_is_refused_with_line_and_reason(text: str, said: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        objects_of_yaml(text.encode())
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_invalid_json_is_refused_with_line_and_reason() -> None:
    with pytest.raises(SnapshotError, match="line 3: invalid JSON"):
        objects_of_json(b'{\n"kind": "A",\n"a": ]\n}')


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 100_000], ids=lambda n: n[:9])
def test_a_number_that_is_too_large_leaves_the_rest_readable(number: str) -> None:
    text = f'{{"kind":"List","items":[{{"kind":"A","n":{number}}},{{"kind":"B","n":[1,2.5]}}]}}'
    assert [found.value for found in objects_of_json(text.encode())] == [
        {"kind": "A", "n": number},
        {"kind": "B", "n": [1, 2.5]},
    ]


def test_bytes_that_are_no_text_are_refused() -> None:
    for read in (objects_of_yaml, objects_of_json):
        with pytest.raises(SnapshotError):
            read(b"a: \xff\xfe\xff")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "a:\n" + " "])
def test_deep_nesting_is_refused_before_it_can_overflow_the_stack(opening: str) -> None:
    """Also in a thread, whose stack is smaller: there, the parser would end the process."""
    text = (opening * 50_000).encode()
    if opening.startswith("a:"):
        text = b"".join(b" " * i + b"a:\n" for i in range(DEEPEST + 2))
    said: list[str] = []

    def read() -> None:
        with pytest.raises(SnapshotError) as caught:
            objects_of_yaml(text)
        said.append(str(caught.value))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert said == [said[0]]
    assert f"more than {DEEPEST} levels" in said[0]


def test_deeply_nested_json_is_refused() -> None:
    with pytest.raises(SnapshotError, match="line 1: invalid JSON: Input data was truncated"):
        objects_of_json(b"[" * 100_000)


def test_json_that_breaks_off_does_so_at_its_last_line() -> None:
    with pytest.raises(SnapshotError, match="line 3: invalid JSON"):
        objects_of_json(b'{\n"kind":\n"No\n\n')


def test_aliases_that_multiply_are_refused() -> None:
    lines = ["a0: &a0 [" + ",".join(["lol"] * 9) + "]"]
    lines += [f"a{i}: &a{i} [" + ",".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 12)]
    with pytest.raises(SnapshotError, match=f"more than {ALIASED_BYTES} bytes"):
        objects_of_yaml("\n".join(lines).encode())


def test_an_alias_of_a_large_text_counts_by_its_size() -> None:
    text = "a: &a " + "x" * 1_000_000 + "\nb: [" + ",".join(["*a"] * 40) + "]"
    with pytest.raises(SnapshotError, match="aliases expand to more"):
        objects_of_yaml(text.encode())


def test_own_keys_win_over_merges_and_earlier_merges_over_later() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 0}\n"
    assert values(text)[0]["c"] == {"x": 0, "y": 1, "z": 2}


@pytest.mark.parametrize(
    "text", ["~", "null", "true", "No", "1", "-0x1F", "1_000", "1e3", "1.5", ".inf", "'1'", '"~"']
)
def test_plain_values_mean_what_they_mean_to_pyyaml(text: str) -> None:
    assert values(f"a: {text}") == [{"a": yaml.safe_load(text)}]


@pytest.mark.parametrize("text", ["0b_", "-0b_", "0x_", "22:22", "1:30:45.5"])
def test_text_that_only_looks_like_a_number_is_text(text: str) -> None:
    assert values(f"a: {text}") == [{"a": text}]


def test_modest_aliases_and_merges_are_read() -> None:
    text = "base: &base {x: 1}\nmore:\n  <<: *base\n  y: 2\n"
    assert values(text) == [{"base": {"x": 1}, "more": {"x": 1, "y": 2}}]


def test_a_merge_key_in_quotes_is_an_ordinary_key() -> None:
    assert values("'<<': null\n") == [{"<<": None}]
    assert values('"<<": {x: 1}\n') == [{"<<": {"x": 1}}]


@given(st.lists(st.dictionaries(st.text(max_size=8), TREES, min_size=1), min_size=1, max_size=3))
def test_written_yaml_is_read_back(trees: list[dict[str, Any]]) -> None:
    text = yaml.safe_dump_all(trees)
    found = [f.value for tree in trees for f in objects_of_json(json.dumps(tree).encode())]
    assert [f.value for f in objects_of_yaml(text.encode())] == found
    msgspec.json.encode(found)


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (objects_of_yaml, objects_of_json):
        said = ""
        try:
            read(text.encode())
        except SnapshotError as error:
            said = str(error)
        assert len(said.splitlines()) <= 1


def test_json_in_a_file_of_yaml_may_escape_characters_as_json_does() -> None:
    """As pairs of surrogates, which are no YAML."""
    text = rb'{"kind": "Node", "metadata": {"annotations": {"a": "party \ud83c\udf89"}}}'
    (found,) = objects_of_yaml(text)
    assert found.value["metadata"]["annotations"] == {"a": "party \N{PARTY POPPER}"}
    with pytest.raises(SnapshotError, match="line 1: invalid YAML"):
        objects_of_yaml(text[:-2])
