"""Fettle's selectors say what Kubernetes' CEL evaluator says, on random expressions."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from fettle.cel.language.compiler import UNFORESEEN
from tests.conformance import selection
from tests.oracle import running, selections
from tests.oracle.client import Oracle, Selected
from tests.oracle.costly import Costly
from tests.oracle.expressions import Grammar
from tests.oracle.grammar import TEMPLATES

SECONDS = 15.0
CASES = 12_000
COSTLY = 600
OFTEN = 0.25
"""Uses of a function of which so many are undecided: it is not supported."""
AT_LEAST = 1000
GARBLE = "()[]{}.,'\"!&|?:+-*/%<>=_`\\ \n0x1e9uabr\ud800é\0"


def test_random_selectors_say_what_kubernetes_says(
    oracle: Oracle, seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = running.select(oracle, Grammar(), seed, CASES, seconds=SECONDS)
    with capsys.disabled():
        print(f"\n{tally.line('selectors')}")
    assert tally.wrong == 0, msgspec.json.format(msgspec.json.encode(tally.found)).decode()
    assert not tally.unexpected, "undecided for a reason that is not documented"
    often = [used for used, n in tally.asked.items() if n >= 200 and tally.share(used) > OFTEN]
    assert not often, "a supported feature answered undecided"
    assert sum(tally.undecided.values()) <= 0.03 * tally.cases
    assert tally.cases >= AT_LEAST
    assert tally.unaskable <= tally.cases / 500
    for outcome in ("match", "no_match", "compile_error", "runtime_error"):
        assert tally.outcomes[outcome] >= tally.cases / 20, f"hardly any {outcome}"


def test_no_selector_is_said_to_match_where_kubernetes_gives_it_up_for_its_cost(
    oracle: Oracle, seed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = running.select(oracle, Costly(), seed, COSTLY, seconds=SECONDS)
    with capsys.disabled():
        print(f"\n{tally.line('costly selectors')}")
    assert tally.wrong == 0, msgspec.json.format(msgspec.json.encode(tally.found)).decode()
    assert not tally.unexpected
    assert tally.outcomes["runtime_error"] >= tally.cases / 20, "hardly any is given up"
    assert tally.cases - sum(tally.undecided.values()) >= tally.cases / 4


def test_every_function_and_operator_of_the_grammar_is_used() -> None:
    grammar = Grammar()
    for number in range(6000):
        running.selection_case(grammar, "grammar", number)
    unused = {t for templates in TEMPLATES.values() for t in templates} - set(grammar.used)
    assert not unused


def test_no_selector_leads_to_an_exception_that_nothing_foresaw(seed: str) -> None:
    grammar = Grammar()
    for number in range(2000):
        expression, devices = running.selection_case(grammar, seed, number)
        for text in (expression, _garbled(expression, Random(f"{seed}:{number}"))):
            answer = selection.answer(text, devices[0])
            assert UNFORESEEN not in answer, text


def _garbled(text: str, random: Random) -> str:
    """As `text`, but for a few characters."""
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice(GARBLE) + text[at + random.randrange(2) :]
    return text


def test_selectors_come_again_from_their_seed_and_number() -> None:
    grammar = Grammar()
    assert running.selection_case(grammar, "s", 3) == running.selection_case(grammar, "s", 3)
    assert running.selection_case(grammar, "s", 3) != running.selection_case(grammar, "s", 4)


def test_what_differs_is_noticed(oracle: Oracle) -> None:
    device = {"driver": "gpu.example.com", "attributes": {}, "capacity": {}}
    for expression in (
        "true",
        "false",
        "1",
        "device.attributes['a'].b",
        "quantity('x').isInteger()",
    ):
        said = oracle.select(expression, [device])
        assert selections.compare(expression, [device], said).difference is None
        assert said.words() != ["match"] or said == Selected(outcomes=said.outcomes)
        for other in ("match", "no_match", "compile_error", "runtime_error"):
            changed = _saying(other)
            if changed.words() != said.words():
                assert selections.compare(expression, [device], changed).difference is not None


def _saying(word: str) -> Selected:
    if word == "compile_error":
        return Selected(compile_error="changed")
    verdict = {"match": word == "match", "error": "changed" if word == "runtime_error" else ""}
    return msgspec.convert({"outcomes": [verdict]}, Selected)
