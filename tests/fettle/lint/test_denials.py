"""What is denied stays impossible however the cluster grows (decision 0041).

The examples are those of the tables that are denied by default, so a rule that denies must have one
there. Random selectors look for what the tables do not think of.
"""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fettle.lint.drivers import Drivers
from fettle.lint.findings import Severity
from fettle.lint.rules import RULES
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import lint
from tests.fettle.lint.fleets import GPU
from tests.fettle.lint.growing import GROWTHS, Growth, allocatable, grown
from tests.fettle.lint.tables.case import FLEET, Case, claim, device, exactly
from tests.fettle.lint.test_tables import BY_ID, CASES

DENYING = [rule for rule in RULES if rule.severity is Severity.DENY or rule.denies_if]
CHOOSING = ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass")
"""Kinds whose devices the allocator chooses."""


def examples() -> Iterator[Case]:
    for case in CASES:
        by_default = case.severity or BY_ID[case.rule].severity
        late = case.object["kind"] == "Pod" and not BY_ID[case.rule].denies_pods
        if case.caught and by_default == Severity.DENY and not late:
            yield case


EXAMPLES = list(examples())


def test_each_rule_that_denies_has_an_example_to_grow_the_cluster_for() -> None:
    assert {rule.id for rule in DENYING} == {case.rule for case in EXAMPLES}


async def denying(object: Object, known: Sequence[Object], drivers: Drivers) -> set[str]:
    found = await lint(object, known, drivers=drivers)
    return {finding.rule for finding in found if finding.severity is Severity.DENY}


def is_about_a_claim(case: Case) -> bool:
    """So that the allocator can say whether it is possible. What fails only later, in a driver, a
    kubelet or a controller, is still denied."""
    return case.object["kind"] in CHOOSING and not BY_ID[case.rule].on_node


@pytest.mark.parametrize("case", [*filter(is_about_a_claim, EXAMPLES)], ids=str)
def test_the_allocator_refuses_what_is_denied(case: Case) -> None:
    assert not allocatable(case.object, case.known)


@pytest.mark.parametrize(
    "growths",
    [*([growth] for growth in GROWTHS), GROWTHS],
    ids=[*(growth.__name__ for growth in GROWTHS), "all of it"],
)
@pytest.mark.parametrize("case", EXAMPLES, ids=str)
async def test_no_growth_makes_possible_what_is_denied(
    case: Case, growths: Sequence[Growth]
) -> None:
    after = grown(case.object, case.known, growths, case.features)
    if is_about_a_claim(case):
        assert not allocatable(case.object, after.objects)
    else:
        assert case.rule in await denying(case.object, after.objects, after.drivers)


# --- random selectors

ATTRIBUTES = ("productName", "type", "index", "driverVersion", "model", "profile", "productname")
LITERALS = (
    *('"NVIDIA H100"', '"nvidia h100"', '"NVIDIA B200"', '"gpu"', '"mig"', '"1g.5gb"', '"3"'),
    *("3", "99", 'semver("550.0.0")', "true"),
)
PLACES = [
    *(device(name) for name in ATTRIBUTES),
    'device.attributes["resource.kubernetes.io"].pcieRoot',
    'device.attributes["resource.kubernetes.io"].numaNode',
    'device.attributes["gpu.amd.com"].index',
]
ATOMS: SearchStrategy[str] = st.one_of(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(PLACES),
        st.sampled_from(("==", "!=", ">", "<=")),
        st.sampled_from(LITERALS),
    ),
    st.builds("has({})".format, st.sampled_from(PLACES)),
    st.builds(
        "{} in [{}, {}]".format,
        st.sampled_from(PLACES),
        st.sampled_from(LITERALS),
        st.sampled_from(LITERALS),
    ),
    st.builds(
        'device.capacity["{}"].{}.compareTo(quantity("96Gi")) >= 0'.format,
        st.just(GPU),
        st.sampled_from(("memory", "memroy", "shares")),
    ),
    st.just('"gpu.amd.com" in device.attributes'),
    st.just(f'device.attributes["{GPU}"].?fabric.orValue("x") == "x"'),
)
EXPRESSIONS: SearchStrategy[str] = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({}) && ({})".format, inner, inner),
        st.builds("({}) || ({})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("({}) ? ({}) : ({})".format, inner, inner, inner),
    ),
    max_leaves=4,
)
OF_DRIVER = f'device.driver == "{GPU}"'


@given(st.lists(EXPRESSIONS, min_size=1, max_size=2), st.booleans(), st.data())
async def test_no_growth_makes_possible_what_is_denied_of_any_selectors(
    selectors: list[str], as_class: bool, data: st.DataObject
) -> None:
    if as_class:
        wanted = api.device_class("c", selectors=[OF_DRIVER, *selectors])
    else:
        attribute = data.draw(st.sampled_from(("productName", "profile", "fabric", "productname")))
        more = data.draw(st.sampled_from([{}, {"matchAttribute": f"{GPU}/{attribute}"}]))
        constraints = [more] if more else []
        wanted = claim(exactly(selectors=selectors, count=2), constraints=constraints)
    if await denying(wanted, FLEET, Drivers()):
        assert not allocatable(wanted, grown(wanted, FLEET, GROWTHS, {}).objects)


@pytest.mark.parametrize(
    "selector",
    [
        '{0} > "NVIDIA H100" || {0} > 3',
        '{0} > 3 || {0} > "NVIDIA H100"',
        '!({0} <= "NVIDIA H100" && {0} <= 3)',
    ],
)
async def test_what_fails_of_a_selector_denies_nothing_if_another_part_may_hold(
    selector: str,
) -> None:
    product = f'device.attributes["{GPU}"].productName'
    made = selector.replace("{0}", product)
    wanted = api.device_class("c", selectors=[OF_DRIVER, made])
    assert await denying(wanted, FLEET, Drivers()) == set()
    assert allocatable(wanted, grown(wanted, FLEET, GROWTHS, {}).objects)
