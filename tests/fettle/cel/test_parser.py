"""The grammar: what is read as what, what is refused, and bounds on nesting and time."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.cel.language.parser import MAX_BYTES, MAX_NESTING, parse
from fettle.cel.language.syntax import Expr, Literal, Refused, Unsupported
from fettle.cel.library.values import Uint
from fettle.cel.misses.shortfalls import written

NESTED = MAX_NESTING - 1


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)"),
        ("a || b && c == d", "(a || (b && (c == d)))"),
        ("a < b == c", "((a < b) == c)"),
        ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
        ("-a.b[0].c(1)", "-a.b[0].c(1)"),
        ("-1.size()", "-1.size()"),
        ("!!!a", "!a"),
        ("--a", "a"),
        ("a.?b[?'c']", 'a.?b[?"c"]'),
        ("a.`b-c`", "a.b-c"),
        ("x in [1, 2,]", "x in [1, 2]"),
        ("{'a': 1,}", '{"a": 1}'),
        ("cel.bind(x, 1, x)", "cel.bind(x, 1, x)"),
        ("has(a.b)", "has(a.b)"),
        ("has(has(a.b))", "has(has(a.b))"),
        ("a.filter(x, x > 1)", "a.filter(x, (x > 1))"),
        ("a.map(x, x > 1, -x)", "a.map(x, (x > 1), -x)"),
        ("a.transformMap(k, v, v)", "a.transformMap(k, v, v)"),
        ("a.existsOne(k, v, v.all(w, w))", "a.existsOne(k, v, v.all(w, w))"),
        ("a.?b.optMap(x, x + 1)", "a.?b.optMap(x, (x + 1))"),
        ("a.optFlatMap(x, x.?y)", "a.optFlatMap(x, x.?y)"),
        ("a.sortBy(x, x.y)[0]", "a.sortBy(x, x.y)[0]"),
    ],
)
def test_operators_bind_as_the_grammar_says(text: str, meaning: str) -> None:
    assert written(parse(text)) == meaning


def value(text: str) -> object:
    node = parse(text)
    assert isinstance(node, Literal)
    return node.value


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_are_read_as_they_are_written(number: int) -> None:
    assert value(str(number)) == number


@given(st.integers(0, 2**64 - 1), st.sampled_from("uU"))
def test_unsigned_integers_are_read_as_they_are_written(number: int, suffix: str) -> None:
    for text in (f"{number}{suffix}", f"{number:#x}{suffix}"):
        read = value(text)
        assert type(read) is Uint
        assert read == number


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=0))
def test_doubles_are_read_as_they_are_written(number: float) -> None:
    text = repr(number)
    assert value(text) == number


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_strings_are_read_as_they_are_written(text: str) -> None:
    escaped = "".join(f"\\U{ord(c):08x}" for c in text)
    assert value(f'"{escaped}"') == text
    if "\\" not in text and "'" not in text and "\r" not in text:
        assert value(f"'''{text}'''") == text
        assert value(f"r'''{text}'''") == text


@given(st.binary(max_size=40))
def test_bytes_are_read_as_they_are_written(content: bytes) -> None:
    assert value('b"' + "".join(f"\\x{octet:02x}" for octet in content) + '"') == content


MARKS = """( ) [ ] { } . , ? : ! - + && || == ' " ` // \\ @ .? [?"""
WORDS = """a 1 1u 2.5 r' b true in é as `x` has( .all(x,"""
PIECES = st.sampled_from([*MARKS.split(), *WORDS.split(), " ", "\n", "\x00"])


@given(st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(Refused, Unsupported):
        assert isinstance(parse(text), Expr)


NESTS = {
    "brackets": lambda n: "(" * n + "1" + ")" * n,
    "lists": lambda n: "[" * n + "1" + "]" * n,
    "maps": lambda n: "{1: " * n + "1" + "}" * n,
    "calls": lambda n: "f(" * n + "1" + ")" * n,
    "ternaries": lambda n: "a ? b : " * n + "c",
    "loops": lambda n: "a.all(x, " * n + "true" + ")" * n,
}
CHAINS = {
    "fields": lambda n: "a" + ".b" * n,
    "indices": lambda n: "a" + "[0]" * n,
    "sums": lambda n: "1" + " + 1" * n,
    "comparisons": lambda n: "1" + " == 1" * n,
    "methods": lambda n: "a" + ".b()" * n,
}


@pytest.mark.parametrize("kind", sorted(NESTS))
def test_nesting_is_bounded_as_in_kubernetes(kind: str) -> None:
    assert isinstance(parse(NESTS[kind](NESTED)), Expr)
    with pytest.raises(Refused, match="nested"):
        parse(NESTS[kind](NESTED + 1))


@pytest.mark.parametrize("kind", sorted(CHAINS))
def test_chains_are_bounded_as_in_kubernetes(kind: str) -> None:
    assert isinstance(parse(CHAINS[kind](MAX_NESTING)), Expr)
    with pytest.raises(Refused, match="nested"):
        parse(CHAINS[kind](MAX_NESTING + 1))


@pytest.mark.parametrize(
    "text",
    [
        '"' + "a" * 10_000,
        '"' + "\\n" * 5_000,
        '"""' + '"' * 9_000 + "x",
        "r'''" + "'" * 9_000 + "x",
        "(" * 10_000,
        "[" * 10_000,
        "-" * 10_000,
        "a." * 5_000,
        "1" * 10_000,
        "a ? " * 2_500,
        "//" * 5_000,
        "`" + "a" * 10_000,
        "a&&" * 3_300,
    ],
    ids=range(13),
)
def test_hostile_texts_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse(text)


def test_a_text_that_is_too_long_is_not_parsed() -> None:
    with pytest.raises(Unsupported, match="longer"):
        parse("true" + " " * MAX_BYTES)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a &&", "syntax error at 4: unexpected end of text"),
        ("a ) b", "at 2: unexpected '[)]'"),
        ("'\ud800' == ''", "syntax error at 1: half a surrogate pair"),
    ],
)
def test_a_syntax_error_says_what_is_wrong_and_where(text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        parse(text)
