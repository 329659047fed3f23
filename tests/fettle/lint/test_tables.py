"""Every rule, by objects that it must catch and near misses that it must not."""

from collections import Counter
from collections.abc import Iterator

import pytest

from fettle.lint.drivers import Drivers
from fettle.lint.findings import Severity
from fettle.lint.rules import RULES
from fettle.model import Validation
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.tables import configs, counts, selectors, tolerations, workloads
from tests.fettle.lint.tables.case import Case

CASES = [
    *selectors.CASES,
    *counts.CASES,
    *tolerations.CASES,
    *configs.CASES,
    *workloads.CASES,
]
BY_ID = {rule.id: rule for rule in RULES}
STRICT = [case for case in CASES if case.caught and BY_ID[case.rule].strict]


async def judged(case: Case, levels: Validation = Validation()) -> list[tuple[Severity, str, str]]:  # noqa: B008
    found = await lint(
        case.object,
        case.known,
        levels=levels,
        drivers=Drivers(features=case.features),
        disabled=case.disabled,
    )
    return [(f.severity, f.message, f.fix) for f in found if f.rule == case.rule]


@pytest.mark.parametrize("case", [c for c in CASES if c.caught], ids=str)
async def test_a_mistake_is_caught(case: Case) -> None:
    found = await judged(case)
    assert any(case.says in message and case.fix in fix for _, message, fix in found), found


@pytest.mark.parametrize("case", [c for c in CASES if not c.caught], ids=str)
async def test_a_near_miss_passes(case: Case) -> None:
    assert await judged(case) == []


@pytest.mark.parametrize("case", STRICT, ids=str)
async def test_strict_mode_denies_what_the_inventory_rules_out(case: Case) -> None:
    found = await judged(case, Validation(strict=True))
    assert {severity for severity, _, _ in found} == {Severity.DENY}
    assert {severity for severity, _, _ in await judged(case)} == {Severity.WARN}


@pytest.fixture(scope="module", autouse=True)
def summary(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints the rows covered, at the end."""
    yield
    caught, passes = counted()
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line("")
        reporter.write_line(
            f"lint: {len(RULES)} rules, {caught.total()} mistakes and {passes.total()} near misses"
        )


def counted() -> tuple[Counter[str], Counter[str]]:
    caught = Counter(case.rule for case in CASES if case.caught)
    return caught, Counter(case.rule for case in CASES if not case.caught)


def test_every_rule_has_a_mistake_and_a_near_miss() -> None:
    caught, passes = counted()
    assert set(caught) == set(passes) == set(BY_ID)
