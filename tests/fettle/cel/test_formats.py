"""Why a text is not of a named format, in Kubernetes' words if they are known."""

from collections.abc import Callable
from functools import partial
from operator import add, eq

import pytest

from fettle.cel.library.formats import FORMATS
from fettle.cel.library.values import Undecidable
from fettle.cel.runtime.protocol import OutcomeKind
from tests.fettle.cel.devices import judged

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', "
    "regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
NAME = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize(
    ("name", "text", "reasons"),
    [
        ("dns1123Label", "a-b", []),
        ("dns1123Label", "A", [LABEL]),
        ("dns1123Label", "A" * 64, ["must be no more than 63 characters", LABEL]),
        ("dns1123Label", "a.b", ["must not contain dots"]),
        ("dns1123LabelPrefix", "a-", []),
        ("qualifiedName", "a.b/c", []),
        ("qualifiedName", "", ["name part must be non-empty", f"name part {NAME}"]),
        ("qualifiedName", "/" + "a" * 64, [
            "prefix part must be non-empty", "name part must be no more than 63 bytes",
        ]),
        ("qualifiedName", "a/b/c", [
            f"a valid label key {NAME} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        ]),
        ("uuid", "x", ["does not match the UUID format"]),
        ("byte", "=", ["invalid base64"]),
        ("date", "2023-02-29", ["invalid date"]),
        ("datetime", "2024-02-29", ["invalid datetime"]),
        ("uri", "/ok", []),
        ("uri", "", ['parse "": empty url']),
        ("uri", 'a"b', ['parse "a\\"b": invalid URI for request']),
        ("uri", "\x01", ['parse "\\x01": net/url: invalid control character in URL']),
        ("uri", ":a", ['parse ":a": missing protocol scheme']),
        ("uri", "/%zzz", ['parse "/%zzz": invalid URL escape "%zz"']),
    ],
)  # fmt: skip
def test_each_reason_is_worded_as_kubernetes_words_it(
    name: str, text: str, reasons: list[str]
) -> None:
    assert FORMATS[name].problems(text) == reasons


UNWORDED = "format.uri().validate('http://a b/').value()"

KNOWN = [
    "format.uri().validate('http://a b/').hasValue()",
    f"{UNWORDED}.size() == 1 && size({UNWORDED}) == 1 && {UNWORDED} != []",
    f"type({UNWORDED}) == list && optional.ofNonZeroValue({UNWORDED}).hasValue()",
]


@pytest.mark.parametrize("expression", KNOWN)
def test_the_number_of_reasons_is_known_even_if_their_words_are_not(
    expression: str,
) -> None:
    assert judged(expression).matches


@pytest.mark.parametrize(
    "read",
    [
        list, tuple, sorted, set, max, enumerate, reversed, "".join, [].extend,
        lambda texts: [*texts], lambda texts: texts[0], lambda texts: texts[::-1],
        lambda texts: add(texts, []), partial(add, []), lambda texts: texts * 2,
        lambda texts: eq(texts, [""]), partial(eq, [""]), lambda texts: texts < [""],
        lambda texts: list(zip([1], texts, strict=True)), lambda texts: "" in texts,
    ],
)  # fmt: skip
def test_no_python_operation_can_read_reasons_whose_words_are_not_known(
    read: Callable[[list[str]], object],
) -> None:
    with pytest.raises(Undecidable):
        read(FORMATS["uri"].problems("http://a b/"))


UNKNOWN = [
    "{list}[0] == 'a'",
    "{list} == ['a']",
    "['a'] == {list}",
    "{list} != ['a']",
    "({list} + ['a']) == ['a']",
    "(['a'] + {list}) == ['a']",
    "'a' in {list}",
    "{list} in [['a']]",
    "{list}.all(s, s.size() > 1)",
    "{list}.all(i, s, i < s.size())",
    "{list}.exists(s, s < '')",
    "{list}.exists_one(s, s.startsWith('a'))",
    "{list}.map(s, s + 'a') == []",
    "{list}.filter(s, s.matches('a')) == []",
    "{list}.transformMap(i, s, s) == {{}}",
    "{list}.isSorted()",
    "{list}.min() == 'a'",
    "{list}.max() == 'a'",
    "{list}.join() == 'a'",
    "{list}.indexOf('a') == 0",
    "{list}.lastIndexOf('a') == 0",
    "{list}.slice(0, 1) == ['a']",
    "[{list}].flatten() == ['a']",
    "dyn({list}).flatten() == ['a']",
    "{list}.distinct() == ['a']",
    "{list}.reverse() == ['a']",
    "{list}.sort() == ['a']",
    "{list}.sortBy(s, s.size()) == ['a']",
    "{list}.first().value() == 'a'",
    "{list}.last().value() == 'a'",
    "{list}.includes('a')",
    "sets.contains({list}, ['a'])",
    "sets.contains(['a'], {list})",
    "sets.equivalent({list}, ['a'])",
    "sets.intersects({list}, ['a'])",
    "'%s'.format({list}) == 'a'",
    "'%s'.format([{list}]) == 'a'",
    "cel.bind(x, {list}, x[0]) == 'a'",
    "{{'a': {list}}} == {{'a': ['a']}}",
    "{list}[?0].value() == 'a'",
    "dyn({list}).includes('a')",
    "optional.of({list}) == optional.of(['a'])",
]


@pytest.mark.parametrize("template", UNKNOWN)
def test_an_expression_that_uses_reasons_whose_words_are_not_known_is_undecided(
    template: str,
) -> None:
    outcome = judged(template.format(list=UNWORDED))
    assert outcome == (OutcomeKind.UNDECIDED, "what Kubernetes words in its own way")
