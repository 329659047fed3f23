"""A survey equals what each device's evaluation says, though equal devices are evaluated once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fettle.cel import OutcomeKind
from fettle.cluster import View
from fettle.lint.survey.fleet import FRESH_S, Fleet
from fettle.lint.survey.matching import Selection
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import InProcess, view_of
from tests.fettle.lint.fleets import GPU, HOT, gpu
from tests.fettle.lint.test_fleet import Clock, newer, settled

CLASSES = (f'device.driver == "{GPU}"', f'"{GPU}" in device.attributes')
MODELS = ("NVIDIA H100", "NVIDIA A100")
REQUESTS = (
    f'device.attributes["{GPU}"].productName == "NVIDIA H100"',
    f'device.attributes["{GPU}"].uuid.endsWith("1")',
    f'device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0',
    f'device.attributes["{GPU}"].exists(name, name == "uuid")',
    "device.allowMultipleAllocations",
)


@st.composite
def devices(draw: st.DrawFn) -> list[Object]:
    """What the nodes of a fleet publish alike."""
    made = []
    for index in range(draw(st.integers(1, 3))):
        device = gpu(index, memory=draw(st.sampled_from(["80Gi", "40Gi"])))
        for name in draw(st.sets(st.sampled_from(["productName", "uuid"]), max_size=1)):
            del device["attributes"][name]
        if draw(st.booleans()):
            device["allowMultipleAllocations"] = True
        made.append(device)
    return made


@st.composite
def fleets(draw: st.DrawFn) -> list[Object]:
    """Nodes of two shapes; their devices differ in the values of attributes, taints and more."""
    shapes = draw(st.lists(devices(), min_size=1, max_size=2))
    made: list[Object] = []
    for name in "abcd":
        published = [
            {**d, "attributes": {**d["attributes"]}} for d in draw(st.sampled_from(shapes))
        ]
        for device in published:
            attributes = device["attributes"]
            if "productName" in attributes:
                attributes["productName"] = {"string": draw(st.sampled_from(MODELS))}
            if draw(st.integers(0, 9)) == 0:
                attributes["driverVersion"] = {"version": "no version"}
            if draw(st.integers(0, 3)) == 0:
                device["taints"] = [HOT]
        slices = 2 if draw(st.integers(0, 9)) == 0 else 1
        made += [api.node(name), api.resource_slice(name, published, driver=GPU, slices=slices)]
    return made


def said_one_by_one(view: View, selection: Selection) -> tuple[Counter[str], Counter[str]]:
    """How many devices have which outcome, and how many match on each node."""
    counted: Counter[str] = Counter()
    on: Counter[str] = Counter()
    evaluator = InProcess()
    for node, pools in ((name, held.pools) for name, held in view.nodes.items()):
        for pool in pools:
            counted["undecided"] += pool.incomplete
            for device in pool.devices:
                expressions = (*selection.of_class, *selection.of_request)
                fails = expressions and "no version" in str(device.device)
                result = "fatal" if fails else "matched"
                for expression in expressions if result == "matched" else ():
                    outcome = evaluator.outcome(expression, pool.driver, device.device)
                    assert outcome is not None
                    if not outcome.matches:
                        result = "missed" if outcome.kind is OutcomeKind.NO_MATCH else "aborted"
                        break
                counted[result] += 1
                on[node] += result == "matched"
    return counted, +on


@given(
    fleets(),
    fleets(),
    st.builds(
        Selection,
        st.lists(st.sampled_from(CLASSES), max_size=2).map(tuple),
        st.lists(st.sampled_from(REQUESTS), max_size=2).map(tuple),
    ),
)
async def test_a_survey_says_what_selectors_say_of_each_device(
    first: list[Object], second: list[Object], selection: Selection
) -> None:
    clock = Clock()
    known, view = Fleet(InProcess(), clock), view_of(first)
    for current in (view, newer(view_of([*second, *first[:2]]), view)):
        clock.now += FRESH_S
        for _ in range(2):
            await known.prepare(current, [selection], 10)
            await settled()
        survey = known.known(selection)
        assert survey is not None
        counted, on = said_one_by_one(current, selection)
        kinds = ("matched", "aborted", "fatal", "undecided")
        assert {kind: getattr(survey, kind) for kind in kinds} == {k: counted[k] for k in kinds}
        assert {name: len(found) for name, found in survey.by_node.items()} == on
        assert sum(survey.taints.values()) == counted["matched"]
        assert bool(survey.missed) == bool(counted["missed"]) or not selection.of_request
