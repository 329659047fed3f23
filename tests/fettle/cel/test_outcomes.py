"""The four outcomes of expressions on a device, case by case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.cel.language.compiler import UNFORESEEN, Prepared, Program, judge
from fettle.cel.language.syntax import Literal
from fettle.cel.library.values import Frame, Value
from fettle.cel.runtime.protocol import OutcomeKind
from tests.fettle.cel.devices import DRIVER, GPU, MODEL, device, judged, whole_row

A = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'

MATCHING = [
    "true",
    f'device.driver == "{DRIVER}"',
    f'{A}.model == "A100"',
    f'{A}["model"] == \'A100\'',
    'device.attributes["dra.net"].numa == 1',
    f"{A}.mig",
    f"!!{A}.mig",
    "!device.allowMultipleAllocations",
    f"{A}.index >= 3 && {A}.index < 4 && {A}.index-1 == 2",
    f'{A}.model in ["A100", "H100"]',
    f'{A}.model.lowerAscii().matches("^a[0-9]+$")',
    f'{A}.model.startsWith("A") && {A}.model.endsWith("0") && {A}.model.contains("10")',
    # presence
    f'has({A}.model) && !has({A}.nope) && "model" in {A} && !("nope" in {A})',
    f'"{DRIVER}" in device.attributes && !("nope" in device.attributes)',
    'has(device.attributes["absent"].x) == false',
    # errors that do not matter
    f"{A}.nope || true",
    f"true || {A}.nope",
    f"!({A}.nope && false)",
    f"{A}.links.exists(x, 1 / (x - 3) == 7 || x == 2)",
    f"cel.bind(x, {A}.nope, true)",
    # quantities
    f'{C}.memory.compareTo(quantity("40Gi")) == 0',
    f'{C}.memory.isGreaterThan(quantity("39Gi")) && {C}.memory.isLessThan(quantity("41Gi"))',
    f'{C}.memory == quantity("40960Mi")',
    f'{C}.share.isLessThan(quantity("1"))',
    'device.capacity["other.example.com"].slots.asInteger() - 3 == 1',
    'quantity("3").add(2).compareTo(quantity("5")) == 0',
    'isQuantity("1Gi") && !isQuantity("1gi")',
    # versions
    f'{A}.driverVersion.isGreaterThan(semver("550.9.0"))',
    f'{A}.pre.isLessThan(semver("1.2.3")) && {A}.pre == semver("1.2.3-rc.1")',
    f"{A}.driverVersion.major() == 550",
    'semver("v1.2", true) == semver("1.2.0")',
    # types
    f"{A}.index == 3.0",
    f"!({A}.mig == 1)",
    f"!({A}.index in device.attributes)",
    f"!({A}.driverVersion in [[1], [2]])",
    f"cel.bind(x, [1], {A}.mig ? {A}.mig : x)",
    f'{A}.index != "3"',
    f'{A}.driverVersion != "550.54.15"',
    # lists and macros
    f'{A}.links.all(x, x > 0) && {A}.tags.exists_one(t, t == "new")',
    f"{A}.links.map(x, x * 2) == [6, 2, 4] && {A}.links.filter(x, x > 1) == [3, 2]",
    f"{A}.links[0] == 3 && {A}.links.size() == 3",
    f'{A}.tags.includes("new") && {A}.model.includes("A100")',
    f"device.attributes.exists(d, d == \"dra.net\") && {A}.all(n, n != \"\")",
    f'cel.bind(m, {A}.model, m == "A100" ? true : false)',
    # texts and numbers
    '"a\\u0041\\x41\\101" == "aAAA" && r"\\d" == "\\\\d" && """x""" == "x"',
    '"a b".split(" ").join("-") == "a-b" && "abc".substring(1, 2) == "b"',
    "7 / -2 == -3 && -7 % 3 == -1 && 0x10 == 16 && 1e3 == 1000.0",
    'size("dévice") == 6 && int("12") == 12 && string(1) == "1"',
    f"true // {A}.nope",
]  # fmt: skip


@pytest.mark.parametrize("expression", MATCHING)
def test_the_expression_matches(expression: str) -> None:
    assert judged(expression) == (OutcomeKind.MATCH, "")


def test_the_negation_of_a_match_does_not_match() -> None:
    for expression in MATCHING:
        negated = f"!({expression.partition(' //')[0]})"
        assert judged(negated).kind is OutcomeKind.NO_MATCH, negated


ABORTING = [
    f"{A}.nope",
    'device.attributes["absent"].x == 1',
    f"{A}.model",
    f"{A}.tags",
    f'{A}.driverVersion == "550.54.15"',
    f'{A}.driverVersion in ["550.54.15"]',
    f"{A}.model > 3",
    f'{A}.model.isGreaterThan(semver("1.0.0"))',
    f'{A}.model.exists(x, x == "A")',
    f"{A}.links[3] == 1",
    f"{A}.links.exists_one(x, 1 / (x - 3) == 7)",
    f"{A}.nope.y || false",
    f"has({A}.nope.y)",
    "7 / 0 == 2",
    "9223372036854775807 + 1 > 0",
    'quantity("much") == quantity("3")',
    'semver("1.2").major() == 1',
    f"cel.bind(x, {A}.nope, x == 1)",
    # what the API server would have refused
    "1",
    "device",
    "2 == 2.0",
    '[1, "a"] == [1]',
    "device.model",
    'device["driver"] == "gpu"',
    f"{C}.memory >= 40",
    f'{C}.memory == "40Gi"',
    f'{C}.memory.compareTo("40Gi") >= 0',
    "device.driver.startsWith(7)",
    f"{A}.model + 1 == \"A1001\"",
    'true || int("x") == 1',
    f'cel.bind(x, [1], {A}.mig ? {A}.model : x)',
]  # fmt: skip


@pytest.mark.parametrize("expression", ABORTING)
def test_the_expression_would_abort_and_says_why(expression: str) -> None:
    outcome = judged(expression)
    assert outcome.kind is OutcomeKind.WOULD_ABORT
    assert outcome.reason


BOUNDED = {
    "brackets": "(" * 2000 + "true" + ")" * 2000,
    "sums": "+".join(["1"] * 4000) + " > 0",
    "ternaries": "true ? true : " * 600 + "true",
    "lists": "[" * 300 + "1" + "]" * 300 + " == [1]",
    "an endless string": '"' + "\\n" * 4000,
    "escapes without an end": '"' + "\\101" * 2000,
    "nested loops": f"{A}.links.all(a, " * 12 + "true" + ")" * 12,
    "large lists": f"[{','.join(['1'] * 500)}].all(a, [{','.join(['1'] * 500)}].all(b, a == b))",
    "growing strings": "cel.bind(a, 'x', " + "cel.bind(a, a + a, " * 40 + "a == ''" + ")" * 41,
    "growing lists": "cel.bind(a, [1], " + "cel.bind(a, a + a, " * 40 + "a == [1]" + ")" * 41,
    "a huge exponent": 'quantity("1e999999999") == quantity("1")',
    "length": "true" + " " * 20_000,
}


REFUSED = ("brackets", "sums", "ternaries", "lists", "an endless string", "escapes without an end")


@pytest.mark.parametrize("what", sorted(BOUNDED))
def test_hostile_expressions_end_without_a_match(what: str) -> None:
    expected = OutcomeKind.WOULD_ABORT if what in REFUSED else OutcomeKind.UNDECIDED
    assert judged(BOUNDED[what]).kind is expected


def test_long_chains_of_and_and_or_do_not_count_as_nesting() -> None:
    assert judged(" && ".join(["true"] * 1000)).matches
    assert judged(" || ".join(["false"] * 1000)).kind is OutcomeKind.NO_MATCH


def test_a_name_without_a_domain_has_the_driver_as_its_domain() -> None:
    of = device({"model": {"string": "a"}, "other.io/model": {"string": "b"}})
    assert judged('device.attributes["x.io"].model == "a"', of, "x.io").matches
    assert judged('device.attributes["other.io"].model == "b"', of, "x.io").matches
    assert (
        judged('device.attributes["x.io"].model == "a"', of, "y.io").kind is OutcomeKind.WOULD_ABORT
    )


def test_multiple_allocations_are_false_by_default() -> None:
    expression = "device.allowMultipleAllocations"
    assert judged(expression, device(allowMultipleAllocations=True)).matches
    assert judged(expression, device()).kind is OutcomeKind.NO_MATCH


@given(st.text(max_size=60))
def test_any_text_has_an_outcome(expression: str) -> None:
    assert not judged(expression).reason.startswith(UNFORESEEN)


parts = st.sampled_from(
    [A, C, f"{A}.model", f"{A}.links", "(", ")", "[", "]", ".", ",", "&&", "||", "!", "-", "==",
     "<", "in", "?", ":", "+", '"a"', "1", "2.5", "x", "all", "exists", "size", "has", "true",
     f"{C}.memory", 'quantity("1")', "matches", " ", '"', "'", "\\", "//", "\n", "null"]
)  # fmt: skip


@given(st.lists(parts, max_size=14).map("".join))
def test_any_jumble_of_tokens_has_an_outcome(expression: str) -> None:
    assert not judged(expression).reason.startswith(UNFORESEEN)


def test_an_unforeseen_exception_is_undecided_and_is_named() -> None:
    def broken(_frame: Frame) -> Value:
        raise TypeError("no length")

    program = Program(broken, 0, Literal(None))
    outcome = judge(Prepared((), program, None), whole_row(DRIVER, GPU))
    assert outcome == (OutcomeKind.UNDECIDED, f"{UNFORESEEN}: TypeError: no length")


integers = st.integers(-(2**63), 2**63 - 1)


@given(integers, integers)
def test_integer_arithmetic_is_that_of_64_bits(a: int, b: int) -> None:
    total = judged(f"({a}) + ({b}) == ({a}) - (-1) * ({b})")
    if -(2**63) <= a + b < 2**63 and b != -(2**63):
        assert total.matches
    else:
        assert total.kind is OutcomeKind.WOULD_ABORT


@given(st.text(max_size=12).filter(lambda t: "\r" not in t))
def test_texts_of_attributes_are_compared_literally(text: str) -> None:
    of = device({**MODEL, "t": {"string": text}})
    escaped = "".join(f"\\U{ord(c):08x}" for c in text if not 0xD800 <= ord(c) <= 0xDFFF)
    if len(escaped) == 10 * len(text):
        assert judged(f'{A}.t == "{escaped}"', of).matches
