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

TEXTS = st.text(max_size=8).filter(
    lambda text: text[:1] not in tuple("0123456789+-.") and text not in tuple("yYnN")
)
"""PyYAML writes some texts without quotes that kubectl reads as numbers, such as 1e3."""
TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
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
        ("a: !!binary a-", "line 1: 'a-' does not match its tag"),
        ("a: !!null x", "line 1: 'x' does not match its tag"),
        ("a: !Ref x", "line 1: the tag"),
        ("a: 1\n~: x", "line 2: a key must be text, and is null"),
        ("18446744073709551615: x", "line 1: a key must be text, and is too large"),
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
    text = "a: &a {x: 1, w: 1}\nb: &b {w: 2, z: 2}\nc: {<<: [*a, *b], x: 0}\n"
    assert values(text)[0]["c"] == {"x": 0, "w": 1, "z": 2}


@pytest.mark.parametrize(
    "text", ["~", "null", "true", "No", "1", "-0x1F", "1_000", "010", "1.5", ".inf", "'1'", '"~"']
)
def test_plain_values_mean_what_they_mean_to_pyyaml(text: str) -> None:
    assert values(f"a: {text}") == [{"a": yaml.safe_load(text)}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0o400", 256),
        ("-0o17", -15),
        ("0400", 256),
        ("0b101", 5),
        ("0X1f", 31),
        ("+0x_1F", 31),
        ("08", 8),
        ("1e1", 10),
        ("1E+3", 1000),
        ("1e-1", 0.1),
        ("1_0.5", 10.5),
        ("+.5", 0.5),
        ("On", True),
        ("y", True),
        ("Y", True),
        ("n", False),
        ("N", False),
        ("yES", "yES"),
        ("1e400", "1e400"),
        ("1e", "1e"),
        (".5_0", ".5_0"),
        ("0o8", "0o8"),
        ("٣", "٣"),
        ("1٣", "1٣"),
    ],
)
def test_plain_values_mean_what_they_mean_to_kubectl(text: str, value: Any) -> None:
    """goyaml.v2/resolve.go of sigs.k8s.io/yaml, which kubectl reads with."""
    (found,) = values(f"a: {text}")
    assert (found, type(found["a"])) == ({"a": value}, type(value))


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("on", "true"),
        ("off", "false"),
        ("y", "true"),
        ("'on'", "on"),
        ("2024", "2024"),
        ("0x10", "16"),
        ("-1", "-1"),
        ("1.50", "1.5"),
        ("1.0", "1"),
        ("0.1", "0.1"),
        ("-0.00012", "-0.00012"),
        ("0.00001", "1e-05"),
        ("123456.5", "123456.5"),
        ("1234567.5", "1.2345675e+06"),
        ("16777217.5", "1.6777218e+07"),
        ("1.5e+40", ".inf"),
        ("-.inf", "-.inf"),
        (".nan", ".nan"),
    ],
)
def test_keys_are_text_as_kubectl_makes_them(written: str, key: str) -> None:
    """yaml.go of sigs.k8s.io/yaml: floats as Go's strconv.FormatFloat(x, 'g', -1, 32)."""
    assert values(f"a: {{{written}: x}}") == [{"a": {key: "x"}}]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("!!binary aGk=", "hi"),
        ("!!binary |\n  aG\n  k=\n", "hi"),
        ("!!binary /w==", "\ufffd"),
        ("!!str 5", "5"),
        ("!!int '0o17'", 15),
        ("!!float 5", 5),
        ("!!bool 'on'", True),
        ("!!null ''", None),
        ("!!timestamp 2026-01-02", "2026-01-02"),
        ("!!set {x}", {"x": None}),
        ("!!omap [x: 1]", [{"x": 1}]),
        ("!!map {x: 1}", {"x": 1}),
    ],
)
def test_standard_tags_mean_what_they_mean_to_kubectl(written: str, value: Any) -> None:
    assert values(f"a: {written}") == [{"a": value}]


@pytest.mark.parametrize("text", ["0b_", "-0b_", "0x_", "22:22", "1:30:45.5"])
def test_text_that_only_looks_like_a_number_is_text(text: str) -> None:
    assert values(f"a: {text}") == [{"a": text}]


def test_modest_aliases_and_merges_are_read() -> None:
    text = "base: &base {x: 1}\nmore:\n  <<: *base\n  z: 2\n"
    assert values(text) == [{"base": {"x": 1}, "more": {"x": 1, "z": 2}}]


def test_a_merge_key_in_quotes_is_an_ordinary_key() -> None:
    assert values("'<<': null\n") == [{"<<": None}]
    assert values('"<<": {x: 1}\n') == [{"<<": {"x": 1}}]


@given(st.lists(st.dictionaries(TEXTS, TREES, min_size=1), min_size=1, max_size=3))
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
