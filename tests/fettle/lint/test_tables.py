"""Every rule, by objects that it must catch and near misses that it must not."""

from collections import Counter
from collections.abc import Iterator

import pytest

from fettle.lint.drivers import Drivers
from fettle.lint.findings import Severity
from fettle.lint.rules import RULES
from fettle.model import Validation
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.tables import configs, counts, resources, selectors, tolerations, workloads
from tests.fettle.lint.tables.case import Case

CASES = [
    *selectors.CASES,
    *counts.CASES,
    *tolerations.CASES,
    *configs.CASES,
    *workloads.CASES,
    *resources.CASES,
]
BY_ID = {rule.id: rule for rule in RULES}


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


@pytest.mark.parametrize("case", [c for c in CASES if c.caught], ids=str)
async def test_only_what_no_growth_can_satisfy_is_denied_by_default(case: Case) -> None:
    """Of a Pod, everything else: it is made by a controller that would try again and again."""
    expected = Severity(case.severity) if case.severity else BY_ID[case.rule].severity
    late = case.object["kind"] == "Pod" and not BY_ID[case.rule].denies_pods
    found = {severity for severity, _, _ in await judged(case)}
    assert found == {Severity.WARN if late else expected}


@pytest.mark.parametrize("case", [c for c in CASES if c.caught and BY_ID[c.rule].strict], ids=str)
async def test_strict_mode_denies_what_only_growth_can_satisfy(case: Case) -> None:
    found = {severity for severity, _, _ in await judged(case, Validation(strict=True))}
    assert found == {Severity.WARN if case.possible else Severity.DENY}


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
