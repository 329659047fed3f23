"""What the nearest of several devices lacks, in words."""

import re
from collections.abc import Iterable
from itertools import permutations
from operator import eq, ge, gt, le, lt, ne
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fettle.api.resource import Device
from fettle.cel.language.compiler import prepare
from fettle.cel.misses import nearest as inspecting
from fettle.cel.misses.nearest import nearest
from fettle.cel.runtime.protocol import OutcomeKind
from tests.fettle.cel.devices import DRIVER, device, judged
from tests.oracle.expressions import Grammar
from tests.oracle.expressions import device as random_device

A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'


def gpu(
    model: str | dict[str, object] = "A100", memory: str = "80Gi", **more: object
) -> tuple[str, Device]:
    named = {"string": model} if isinstance(model, str) else model
    attributes = {"model": named, "index": {"int": 3}, "sound": {"bool": True}, **more}
    return DRIVER, device(attributes, {"memory": {"value": memory}})


FLEET = [gpu(), gpu("H100"), gpu("L4", "24Gi"), (DRIVER, device({}))]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the words enough time, however slow the machine is."""
    monkeypatch.setattr(inspecting, "_LONGEST_S", 60.0)


def missing(expression: str, devices: Iterable[tuple[str, Device]]) -> str:
    return nearest([expression], devices)


def test_a_device_that_cannot_be_judged_is_left_out() -> None:
    expression = f'{A}.model == "B200"'
    assert missing(expression, [gpu("L4", odd={})]) == ""
    assert missing(expression, [gpu("L4", odd={}), gpu()]) == 'model "A100" != "B200"'


def test_an_expression_that_does_not_compile_is_left_out() -> None:
    assert missing(f'{C}.memory > "1Gi"', FLEET) == ""


WELL_KNOWN = gpu(links={"int": 8}, tags={"strings": ["a", "b"]}, fw={"version": "535.1.2-rc.1"})


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f'{C}.memory.compareTo(quantity("96Gi")) >= 0', "memory 80Gi < 96Gi"),
        (f'{C}.memory.isGreaterThan(quantity("80Gi"))', "memory 80Gi <= 80Gi"),
        (f'{C}.memory == quantity("1Ti")', "memory 80Gi != 1Ti"),
        (f'{C}.memory.compareTo(quantity("96Gi")) != -1', "memory 80Gi < 96Gi"),
        (f'{C}.memory.compareTo(quantity("80Gi")) >= 1', "memory 80Gi <= 80Gi"),
        (f'{C}.memory.compareTo(quantity("80Gi")) == 1', "memory 80Gi <= 80Gi"),
        (f'{C}.memory.compareTo(quantity("80Gi")) != 0', "memory 80Gi == 80Gi"),
        (f'0 <= {C}.memory.compareTo(quantity("96Gi"))', "memory 80Gi < 96Gi"),
        (f'quantity("96Gi").compareTo({C}.memory) < 0', "memory 80Gi <= 96Gi"),
        (f'1 == quantity("8Gi").compareTo({C}.memory)', "memory 80Gi >= 8Gi"),
        (f'!quantity("96Gi").isGreaterThan({C}.memory)', "memory 80Gi < 96Gi"),
        (f'{C}.memory.compareTo(quantity("1Gi")) > 1',
         'memory.compareTo(quantity("1Gi")) 1 <= 1'),
        (f'{C}.memory.compareTo(quantity("1Gi")) == {A}.index',
         'index 3 != memory.compareTo(quantity("1Gi")) 1'),
        (f"5 < {A}.index", "index 3 <= 5"),
        (f"{A}.index > {A}.links", "index 3 <= links 8"),
        (f"!({A}.index < 5)", "index 3 < 5"),
        (f'!({A}.model in ["A100"])', 'model "A100" is in ["A100"]'),
        (f'{A}.model == "B200" || {A}.index > 5',
         'neither model "A100" == "B200" nor index 3 > 5'),
        (f"{A}.index == 1 || {A}.nope == 1 || {A}.index == 1 || {A}.index == 2 || !{A}.sound",
         f"neither index 3 == 1 nor attribute {DRIVER}/nope present nor index 3 == 2 nor …"),
        (f"{A}.index == 7 || {A}.index == 7", "index 3 != 7"),
        (f'{A}.model == "A100" && {A}.index > 5 || {A}.index < 2 && {A}.links < 3',
         "neither index 3 > 5 nor (index 3 < 2 and links 8 < 3)"),
        (f'{A}.model == "A100" && {A}.index > 5 || {A}.model == "L4" && !({A}.index < 5)',
         'neither index 3 > 5 nor (model "A100" == "L4" and index 3 >= 5)'),
        (f'!({A}.index < 5 || {A}.model == "L4")', "index 3 < 5"),
        (f'!({A}.index < 5 && {A}.model == "A100")',
         'neither index 3 >= 5 nor model "A100" != "A100"'),
        (f'({A}.index > 5 || {A}.sound == false) && {A}.model == "L4"',
         'neither index 3 > 5 nor sound true == false, and model "A100" != "L4"'),
        (f"has({A}.nope) ? {A}.nope > 1 : {A}.index > 7",
         f"no attribute {DRIVER}/nope and index 3 <= 7"),
        (f"has({A}.nope) ? {A}.nope > 1 : false", f"no attribute {DRIVER}/nope"),
        (f'["a"].filter(x, {A}.model == x).size() > 0',
         '["a"].filter(x, (model == x)).size() 0 <= 0'),
        (f'{A}.model == "B200"', 'model "A100" != "B200"'),
        (f'{A}.model in ["B200", "B100"]', 'model "A100" is not in ["B200", "B100"]'),
        (f"{A}.index > 5", "index 3 <= 5"),
        (f"!{A}.sound", "sound true"),
        (f"{A}.nope == 1", f"no attribute {DRIVER}/nope"),
        (f"{C}.nope == quantity('1')", f"no capacity {DRIVER}/nope"),
        (f'{A}.?nope.orValue("x") == "y"', 'nope (none, so "x") != "y"'),
        (f'{A}.?model.orValue("x") == "y"', 'model "A100" != "y"'),
        (f'device.attributes[?"{DRIVER}"].model == dyn("A100")',
         'model optional.of("A100") != "A100"'),
        (f'{A}.?nope == optional.of("x")', 'nope (none) != optional.of("x")'),
        (f'{A}.model.startsWith("B")', 'model "A100" does not start with "B"'),
        (f'{A}.model.endsWith("B")', 'model "A100" does not end with "B"'),
        (f'!{A}.model.contains("1")', 'model "A100" contains "1"'),
        (f'{A}.model.matches(r"^H\\d+$")', 'model "A100" does not match "^H\\\\d+$"'),
        (f'matches({A}.model, "^H")', 'model "A100" does not match "^H"'),
        (f'{A}.tags.includes("c")', 'tags ["a", "b"] does not include "c"'),
        (f'"c" in {A}.tags', '"c" is not in tags ["a", "b"]'),
        (f'{A}.model.lowerAscii().startsWith("h")',
         'model.lowerAscii() "a100" does not start with "h"'),
        (f'{A}.model.lowerAscii() == "h100"', 'model.lowerAscii() "a100" != "h100"'),
        (f"{C}.memory.asInteger() > 100000000000",
         "memory.asInteger() 85899345920 <= 100000000000"),
        (f"560 <= {A}.fw.major()", "fw.major() 535 < 560"),
        (f"{A}.index + 1 > 2 * 3", "(index + 1) 4 <= 6"),
        (f'{C}.memory.sub(quantity("1Gi")).compareTo(quantity("96Gi")) >= 0',
         'memory.sub(quantity("1Gi")) 79Gi < 96Gi'),
        (f'{A}.fw.isGreaterThan(semver("v560", true))', "fw 535.1.2-rc.1 <= v560"),
        (f'[{A}.fw].map(v, v)[0].isGreaterThan(semver("560.0.0"))',
         "[fw].map(v, v)[0] 535.1.2-rc.1 <= 560.0.0"),
        (f'{A}.fw == semver("1.2.3" + "-rc.1")', "fw 535.1.2-rc.1 != 1.2.3-rc.1"),
        (f'{A}.tags.exists(t, t == "c")',
         'tags.exists(t, (t == "c")) is not true with tags ["a", "b"]'),
        (f"double({A}.index) / 2.0 < 1.0", "(double(index) / 2.0) 1.5 >= 1"),
        ('device.driver == "x"', f'driver "{DRIVER}" != "x"'),
        (f'{A}.model == "A100" && {A}.index == 7 && device.driver != ""', "index 3 != 7"),
        (f'!(has({A}.model))', f"attribute {DRIVER}/model present"),
        (f"has({A}.nope) == true", "has(nope) false != true"),
        (f'"nope" in {A}', f"no attribute {DRIVER}/nope"),
        ('"x.io" in device.capacity', "no capacity of x.io"),
        ("device.allowMultipleAllocations", "allowMultipleAllocations false"),
        (f'{A}.index > 7 && {A}.model == "L4"', 'index 3 <= 7 and model "A100" != "L4"'),
        (" && ".join(f"{A}.index > {n}" for n in range(3, 9)),
         "index 3 <= 3 and index 3 <= 4 and index 3 <= 5 and index 3 <= 6 and 2 more"),
        # of what ends in an error, beside something that is false
        (f'{A}.model > 3 && {A}.index == 7',
         'model "A100" cannot be compared with 3 and index 3 != 7'),
        (f'{A}.fw == "535" && {A}.index == 7',
         'fw 535.1.2-rc.1 cannot be compared with "535" and index 3 != 7'),
        (f"{A}.model && {A}.index == 7", 'model "A100" is not a bool and index 3 != 7'),
        (f'{A}.index.startsWith("a") && {A}.index == 7',
         'index.startsWith("a") ends in an error (no such overload) with index 3 and index 3 != 7'),
        (f"{A}.index == 7 && 1 / ({A}.index - 3) > 0",
         "index 3 != 7 and "
         "((1 / (index - 3)) > 0) ends in an error (division by zero) with index 3"),
    ],
)  # fmt: skip
def test_a_miss_is_put_in_words(expression: str, words: str) -> None:
    assert missing(expression, [WELL_KNOWN]) == words


ORDERS = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
numbers, orders = st.integers(0, 6), st.sampled_from(sorted(ORDERS))


class Condition(NamedTuple):
    """`claims`: what the words may say, and whether it is so on the well-known device."""

    text: str
    claims: dict[str, bool]


def said_of(text: str, claim: str, opposite: str, *, holds: bool) -> Condition:
    return Condition(text, {claim: holds, opposite: not holds})


def compared(text: str, shown: str, value: int, order: str, number: int) -> Condition:
    claim, opposite = f"{shown} {order} {number}", f"{shown} {OPPOSITE[order]} {number}"
    return said_of(f"{text} {order} {number}", claim, opposite, holds=ORDERS[order](value, number))


def model_begins(letter: str) -> Condition:
    return said_of(
        f'{A}.model.startsWith("{letter}")',
        f'model "A100" starts with "{letter}"',
        f'model "A100" does not start with "{letter}"',
        holds=letter == "A",
    )


def attribute_is_there(name: str) -> Condition:
    place = f"attribute {DRIVER}/{name}"
    return said_of(f"has({A}.{name})", f"{place} present", f"no {place}", holds=name != "nope")


simple = st.one_of(
    st.builds(compared, st.just(f"{A}.index"), st.just("index 3"), st.just(3), orders, numbers),
    st.builds(
        compared, st.just(f"({A}.index + 1)"), st.just("(index + 1) 4"), st.just(4), orders, numbers
    ),
    st.builds(model_begins, st.sampled_from("AB")),
    st.builds(attribute_is_there, st.sampled_from(["nope", "model"])),
    st.just(said_of(f"{A}.sound", "sound true", "sound false", holds=True)),
)


def joined(operator: str, parts: list[Condition]) -> Condition:
    text = f" {operator} ".join(f"({part.text})" for part in parts)
    return Condition(text, {k: v for part in parts for k, v in part.claims.items()})


conditions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from(["&&", "||"]), st.lists(inner, min_size=2, max_size=5)),
        st.builds(lambda part: part._replace(text=f"!({part.text})"), inner),
    ),
    max_leaves=12,
)


def is_so(words: str, claims: dict[str, bool]) -> bool:
    for claim in sorted(claims, key=len, reverse=True):
        words = words.replace(claim, str(claims[claim]))
    words = re.sub(r",? (?:and|or|nor) (?:…|\d more)", "", words)
    facts = words.split(", and ") if "neither" in words else [words]
    return all(_is_so(fact) for fact in facts)


def _is_so(fact: str) -> bool:
    alternatives = fact.removeprefix("neither ").split(" nor ")
    assert all(re.fullmatch(r"(?:True|False|and|or|[() ])+", each) for each in alternatives), fact
    truths = [bool(eval(each)) for each in alternatives]
    return not any(truths) if fact.startswith("neither ") else all(truths)


B, NOT_SOUND = model_begins("B"), said_of(f"!{A}.sound", "sound false", "sound true", holds=False)
NEITHER = joined("||", [compared(f"{A}.index", "index 3", 3, "!=", 3), B])


@given(conditions)
@example(joined("&&", [B, NOT_SOUND, NOT_SOUND, NEITHER, B]))
def test_the_words_are_true_of_the_device_whatever_the_conditions(condition: Condition) -> None:
    words = missing(condition.text, [WELL_KNOWN])
    assert bool(words) is not judged(condition.text, WELL_KNOWN[1]).matches
    assert not words or is_so(words, condition.claims)


@given(st.integers(0, 2**32))
@example(20149)  # of an attribute whose domain is "True"
@settings(max_examples=20)
def test_every_miss_is_explained_without_words_of_python(seed: int) -> None:
    random, grammar = Random(seed), Grammar()
    for _ in range(20):
        made = random_device(random)
        of = device(made["attributes"], made["capacity"])
        expression = grammar.expression(random)
        prepared = prepare(expression)
        kind = judged(expression, of).kind
        if prepared.program is None or kind not in (OutcomeKind.NO_MATCH, OutcomeKind.WOULD_ABORT):
            continue
        words = missing(expression, [(made["driver"], of)])
        assert words, expression
        unquoted = re.sub(r'"(?:[^"\\]|\\.)*"|\w*…', "", words)
        pythons = set(re.findall(r"\b(?:True|False|None|NoneType|str|nan|inf)\b", unquoted))
        assert pythons <= set(re.findall(r"\w+", expression)), words


def test_all_conditions_that_the_nearest_device_fails_are_named() -> None:
    wanted = f'{C}.memory.compareTo(quantity("96Gi")) >= 0 && {A}.model == "H100" && {A}.index == 9'
    fleet = [gpu(memory=memory) for memory in ("16Gi", "80Gi", "40Gi")]
    said = 'memory 80Gi < 96Gi and model "A100" != "H100" and index 3 != 9'
    assert missing(wanted, fleet) == said
    assert nearest(wanted.split(" && "), fleet) == said


def test_one_device_must_meet_all_expressions() -> None:
    large = f'{C}.memory.compareTo(quantity("96Gi")) >= 0'
    fleet = [gpu("L4", "40Gi"), gpu(memory="94Gi"), gpu(memory="96Gi")]
    assert nearest([large, f'{A}.model == "H100"'], fleet) == 'model "A100" != "H100"'
    assert nearest([large, f'{A}.model == "A100"'], fleet) == ""
    assert nearest(["1", large], fleet[:2]) == "memory 94Gi < 96Gi"


def test_the_nearest_device_fails_the_fewest_conditions() -> None:
    expression = f'{A}.model == "L4" && {C}.memory.compareTo(quantity("48Gi")) >= 0'
    assert missing(expression, FLEET) == 'model "A100" != "L4"'
    assert missing(f"{expression} && {A}.index == 3 && {A}.model != 'A100'", FLEET) == (
        'model "H100" != "L4"'
    )


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f'{C}.memory.compareTo(quantity("10Gi")) <= 0', "memory 24Gi > 10Gi"),
        (f'{C}.memory.isGreaterThan(quantity("1Ti"))', "memory 100G <= 1Ti"),
        (f"{A}.index < 0", "index 1 >= 0"),
        (f"{A}.index > 9 && {A}.model != ''", "index 7 <= 9"),
        (f"{A}.model == 'B200' && {A}.index > 9", "index 7 <= 9"),
    ],
)
def test_of_devices_that_fail_the_same_condition_the_closest_to_meeting_it_is_nearest(
    expression: str, words: str
) -> None:
    fleet = [
        (DRIVER, device({})),
        gpu("B200", "80Gi", index={"int": 5}),
        gpu("B200", "24Gi", index={"int": 7}),
        gpu("B200", "100G", index={"int": 1}),
    ]
    for order in permutations(fleet):
        assert missing(expression, order) == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f"{A}.index < 1", "index 1 >= 1"),
        (f"!({A}.index >= 1)", "index 1 >= 1"),
        (f"!!({A}.index < 1)", "index 1 >= 1"),
        (f"!({A}.index != 6)", "index 5 != 6"),
        (f"{A}.index == 6 || {A}.index == 7", "neither index 5 == 6 nor index 5 == 7"),
        (f"{A}.index == 100 || {A}.index == 6", "neither index 5 == 100 nor index 5 == 6"),
        (f"{A}.index < 0 || {A}.index > 100", "neither index 1 < 0 nor index 1 > 100"),
        (f"!({A}.index != 6 && {A}.index != -9)", "neither index 5 == 6 nor index 5 == -9"),
        (f"!({A}.index > 6 || {A}.index < 6)", "index 5 < 6"),
        (f"!({A}.index >= 1 || {A}.sound)", "index 9 >= 1"),
        (f"{A}.index in [6, 3]", "index 5 is not in [6, 3]"),
        (f"({A}.index == 8 && {A}.sound) || {A}.index == 20",
         "neither index 5 == 8 nor index 5 == 20"),
        (f"({A}.index > 6 && {A}.sound) || ({A}.index > 6 && {A}.index < 9)",
         "neither sound true nor index 9 < 9"),
    ],
)  # fmt: skip
def test_numbers_are_nearest_by_the_alternative_they_are_closest_to_and_under_negations(
    expression: str, words: str
) -> None:
    fleet = [gpu(index={"int": n}, sound={"bool": n < 9}) for n in (1, 5, 9)]
    for order in permutations(fleet):
        assert missing(expression, order) == words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f'{A}.model == "h200"', 'model "h100" != "h200"'),
        (f'"h200" == {A}.model', 'model "h100" != "h200"'),
        (f'{A}.model == "L40"', 'model "l4" != "L40"'),
        (f'!({A}.model != "h200")', 'model "h100" != "h200"'),
        (f'{A}.model == "h200" || {A}.model == "b200"',
         'neither model "h100" == "h200" nor model "h100" == "b200"'),
        (f'{A}.model in ["b300", "h200"]', 'model "h100" is not in ["b300", "h200"]'),
        (f'{A}.model.startsWith("h2")', 'model "h100" does not start with "h2"'),
        (f'{A}.model.lowerAscii() == "h200"', 'model.lowerAscii() "h100" != "h200"'),
        (f'{A}.model == "h200" && {A}.index == 9', 'model "h100" != "h200" and index 3 != 9'),
    ],
)  # fmt: skip
def test_the_most_similar_text_is_nearest(expression: str, words: str) -> None:
    for order in permutations([gpu("a100"), gpu("h100"), gpu("l4")]):
        assert missing(expression, order) == words


def test_of_equally_similar_texts_the_first_is_named() -> None:
    for order in permutations([gpu("h100"), gpu("h300"), gpu("l4")]):
        first = next(each for each in order if each != gpu("l4"))[1].attributes
        assert first is not None
        said = f'model "{first["model"].string}" != "h200"'
        assert missing(f'{A}.model == "h200"', order) == said


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f'{A}.model == "h200"', 'model "L4" != "h200"'),
        (f"{A}.model == 9", "model 7 != 9"),
        (f"{A}.model == true", "model false != true"),
        (f'{A}.model == "h200" || {A}.model == "b200"',
         'neither model "L4" == "h200" nor model "L4" == "b200"'),
        (f'{A}.model in ["h200"]', 'model "L4" is not in ["h200"]'),
        (f"!({A}.model != 9)", "model 7 != 9"),
    ],
)  # fmt: skip
def test_values_of_the_wanted_type_are_nearest(expression: str, words: str) -> None:
    others = [gpu(model={"int": 7}), gpu(model={"bool": False}), gpu(model={"version": "1.2.3"})]
    for order in permutations([gpu("L4"), *others]):
        assert missing(expression, order) == words


def test_nothing_is_missing_if_one_device_matches() -> None:
    assert missing(f'{A}.model == "H100"', FLEET) == ""


def test_a_hostile_expression_ends_within_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "_LONGEST_S", 0.1)
    hostile = f"{A}.map(k, k).exists(a, lists.range(20000).exists(b, a == string(b)))"
    assert missing(hostile, [gpu(uuid={"string": str(n)}) for n in range(2000)]) == ""
