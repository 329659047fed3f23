"""Surveys of the fleet's devices: what they count, and when they are made, kept and dropped."""

import asyncio
from collections.abc import Iterable

import msgspec
import pytest

from fettle.api.resource import Device
from fettle.cel import SelectorEngine
from fettle.cluster import View
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Severity
from fettle.lint.linter import Linter
from fettle.lint.manifests import Manifest
from fettle.lint.survey.fleet import FRESH_S, STALE_S, Fleet
from fettle.lint.survey.matching import Selection
from fettle.lint.survey.totals import Survey
from tests.controlplane import objects as api
from tests.fettle.lint.builders import Object
from tests.fettle.lint.clusters import InProcess, view_of
from tests.fettle.lint.fleets import GPU, fleet, gpu
from tests.fettle.lint.tables.case import claim, exactly

CLASS = f'device.driver == "{GPU}"'
H100 = f'device.attributes["{GPU}"].productName == "NVIDIA H100"'
ALL_GPUS, ONLY_H100 = Selection((CLASS,)), Selection((CLASS,), (H100,))
NIC = "nic.example.com"


class Counting(InProcess):
    """Counts the devices that it evaluates, and can be made to wait."""

    def __init__(self) -> None:
        self.evaluated = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def evaluate(
        self, expressions: Iterable[str], devices: Iterable[tuple[str, Device]]
    ) -> None:
        await self.gate.wait()
        self.evaluated += len(list(devices))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def newer(view: View, than: View) -> View:
    return msgspec.structs.replace(view, basis=than.basis + 1)


async def surveyed(known: Fleet, view: View, selection: Selection) -> Survey:
    await known.prepare(view, [selection], 10)
    survey = known.known(selection)
    assert survey is not None
    return survey


async def settled() -> None:
    """Until work in the background is done."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_survey_counts_devices_by_what_matches_them_and_where() -> None:
    survey = await surveyed(Fleet(InProcess()), view_of(fleet()), ONLY_H100)
    assert (survey.surveyed, survey.of_class, survey.matched, survey.undecided) == (7, 6, 4, 0)
    assert {node: len(devices) for node, devices in survey.by_node.items()} == {"gpu-a": 4}
    assert (survey.most, survey.local, set(survey.drivers)) == (4, True, {GPU})
    assert {device.id.pool for device in survey.missed} == {"gpu-b"}


def networked(selector: Object) -> list[Object]:
    """Three nodes, and two devices that are not local to one."""
    made = api.resource_slice("net", 2, driver=GPU)
    del made["spec"]["nodeName"]
    made["spec"] |= selector
    return [*(api.node(n, labels={"near": str(n != "z")}) for n in "xyz"), made]


@pytest.mark.parametrize(
    ("selector", "nodes"),
    [
        ({"allNodes": True}, {"x", "y", "z"}),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "near", "operator": "In", "values": ["True"]}
                            ]
                        }
                    ]
                }
            },
            {"x", "y"},
        ),
    ],
    ids=["all nodes", "some nodes"],
)
async def test_devices_of_the_network_count_once_and_are_local_to_none(
    selector: Object, nodes: set[str]
) -> None:
    survey = await surveyed(Fleet(InProcess()), view_of(networked(selector)), ALL_GPUS)
    assert (survey.surveyed, survey.matched, survey.local) == (2, 2, False)
    assert survey.nodes(2) == nodes


def seen_differently(split: str) -> list[Object]:
    """A pool of two small devices for node a, and two large ones that only node b has."""
    devices = [gpu(n, memory="40Gi") for n in (0, 1)] + [gpu(n, memory="80Gi") for n in (2, 3)]
    names = ["a", "a", "b", "b"]
    if split == "devices":
        own = [{**device, "nodeName": name} for device, name in zip(devices, names, strict=True)]
        slices = [api.resource_slice("p", own, driver=GPU)]
        del slices[0]["spec"]["nodeName"]
        slices[0]["spec"]["perDeviceNodeSelection"] = True
    else:
        slices = [api.resource_slice("p", part, driver=GPU) for part in (devices[:2], devices[2:])]
        for made, where in zip(slices, ({"allNodes": True}, {"nodeName": "b"}), strict=True):
            made["metadata"]["name"] += str(where)
            made["spec"]["pool"]["resourceSliceCount"] = 2
            del made["spec"]["nodeName"]
            made["spec"] |= where
    return [api.node("a"), api.node("b"), *slices]


@pytest.mark.parametrize("split", ["devices", "slices"])
@pytest.mark.parametrize("order", [1, -1])
async def test_a_pool_that_nodes_see_differently_counts_with_all_that_any_can_use(
    split: str, order: int
) -> None:
    large = f'device.capacity["{GPU}"].memory.compareTo(quantity("80Gi")) >= 0'
    view = view_of(seen_differently(split))
    view = msgspec.structs.replace(view, nodes=dict(list(view.nodes.items())[::order]))
    known = Fleet(InProcess())
    survey = await surveyed(known, view, Selection((CLASS,), (large,)))
    assert (survey.surveyed, survey.of_class, survey.matched, survey.pools) == (4, 4, 2, 1)
    assert survey.nodes(2) == {"b"}
    everything = await surveyed(known, view, ALL_GPUS)
    assert everything.matched == sum(everything.taints.values()) == 4


async def test_slices_that_contradict_each_other_leave_the_survey_undecided() -> None:
    slices = [api.resource_slice("gpu-a", [gpu(n)], driver=GPU, slices=2 + n) for n in (0, 1)]
    slices[1]["metadata"]["name"] = "other"
    survey = await surveyed(Fleet(InProcess()), view_of([api.node("gpu-a"), *slices]), ALL_GPUS)
    assert not survey.decided


@pytest.mark.parametrize(
    ("selector", "nearest"),
    [
        (f'device.attributes["{GPU}"].driverVersion.isGreaterThan(semver("560.0.0"))', "555.1.1"),
        (f'device.attributes["{GPU}"].index >= 10', "index 3 < 10"),
        (f'device.capacity["{GPU}"].memory.compareTo(quantity("96Gi")) >= 0', "94Gi < 96Gi"),
    ],
)
async def test_the_nearest_of_devices_that_lack_as_much_has_the_largest_value(
    selector: str, nearest: str
) -> None:
    made = [gpu(0), gpu(3, memory="94Gi"), gpu(1)]
    made[0]["capacity"] |= {"aaa": {"value": "9"}}
    made[2]["attributes"]["driverVersion"] = {"version": "555.1.1"}
    view = view_of([api.node("n"), api.resource_slice("n", made, driver=GPU)])
    survey = await surveyed(Fleet(InProcess()), view, Selection((CLASS,), (selector,)))
    assert nearest in survey.nearest


async def test_the_nearest_miss_is_one_device_for_all_selectors_of_a_request() -> None:
    large = f'device.capacity["{GPU}"].memory.compareTo(quantity("96Gi")) >= 0'
    hopper = f'device.attributes["{GPU}"].productName.endsWith("H100")'
    made = [gpu(0, "L4", "24Gi"), gpu(1, "A100", "80Gi"), gpu(2, "H100", "40Gi")]
    for devices, nearest in (
        (made, "memory 40Gi < 96Gi"),
        (made[:2], 'memory 80Gi < 96Gi and productName "NVIDIA A100" does not end with "H100"'),
    ):
        view = view_of([api.node("n"), api.resource_slice("n", devices, driver=GPU)])
        survey = await surveyed(Fleet(InProcess()), view, Selection((CLASS,), (large, hopper)))
        assert survey.nearest == nearest


async def test_an_incomplete_pool_leaves_the_survey_undecided() -> None:
    half = api.resource_slice("gpu-a", 2, driver=GPU, slices=2)
    survey = await surveyed(Fleet(InProcess()), view_of([api.node("gpu-a"), half]), ALL_GPUS)
    assert not survey.decided


OF_OTHERS = {
    "a pool that waits for slices": [api.resource_slice("gpu-a", 2, driver=NIC, slices=2)],
    "a device of one name twice": [
        api.resource_slice("gpu-a", [{"name": "nic"}, {"name": "nic"}], driver=NIC)
    ],
}


@pytest.mark.parametrize("theirs", OF_OTHERS.values(), ids=OF_OTHERS)
async def test_undecided_devices_of_another_driver_leave_the_survey_decided(
    theirs: list[Object],
) -> None:
    """Where the first selector asks for a driver, as those of classes do."""
    ours = [api.node("gpu-a"), api.resource_slice("gpu-a", [gpu(0)], driver=GPU)]
    none = Selection((CLASS,), ("false",))
    survey = await surveyed(Fleet(InProcess()), view_of([*ours, *theirs]), none)
    assert survey.decided
    assert survey.missed
    of_any = Selection(("true", CLASS))
    survey = await surveyed(Fleet(InProcess()), view_of([*ours, *theirs]), of_any)
    assert not survey.decided
    assert f"pool {NIC}/gpu-a" in survey.undecided_reasons[0]


async def test_a_device_that_no_selector_can_read_would_abort_as_upstream_does() -> None:
    """Also one of another driver: all attributes are converted before anything is evaluated."""
    ours = [api.node("gpu-a"), api.resource_slice("gpu-a", [gpu(0)], driver=GPU)]
    empty = {"name": "nic", "attributes": {"model": {}}}
    theirs = api.resource_slice("gpu-a", [empty], driver=NIC)
    view = view_of([*ours, theirs])
    survey = await surveyed(Fleet(InProcess()), view, Selection((CLASS,), ("false",)))
    assert (survey.decided, survey.fatal, len(survey.missed)) == (True, 1, 1)
    assert survey.fatal_on[0].device.driver == NIC
    assert "model" in survey.fatal_on[0].reason
    everything = await surveyed(Fleet(InProcess()), view, Selection(()))
    assert (everything.matched, everything.fatal) == (2, 0)


async def test_a_device_with_an_invalid_node_selector_aborts_if_selectors_match_it() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "Between", "values": ["a"]}]}
    placed = gpu(0) | {"nodeSelector": {"nodeSelectorTerms": [term]}}
    slice_ = api.resource_slice("gpu-a", [gpu(1) | {"allNodes": True}, placed], driver=GPU)
    slice_["spec"] = {**slice_["spec"], "perDeviceNodeSelection": True}
    del slice_["spec"]["nodeName"]
    view = view_of([api.node("gpu-a"), slice_])
    survey = await surveyed(Fleet(InProcess()), view, ALL_GPUS)
    assert (survey.matched, survey.fatal, survey.undecided) == (1, 1, 0)
    survey = await surveyed(Fleet(InProcess()), view, Selection((CLASS,), ("false",)))
    assert (survey.matched, survey.fatal, len(survey.missed)) == (0, 0, 2)


async def test_devices_with_equal_fingerprints_are_evaluated_once() -> None:
    counting = Counting()
    await surveyed(Fleet(counting), view_of(fleet()), ONLY_H100)
    assert counting.evaluated == 2 + 2  # drivers, then models


async def test_a_survey_of_a_newer_view_has_the_pools_that_changed() -> None:
    clock, first = Clock(), view_of(fleet())
    known = Fleet(InProcess(), clock)
    await surveyed(known, first, ONLY_H100)
    more = [*fleet(), api.node("gpu-d"), api.resource_slice("gpu-d", [gpu(0)], driver=GPU)]
    second = newer(view_of(more), first)
    kept = {name: first.nodes.get(name, node) for name, node in second.nodes.items()}
    second = msgspec.structs.replace(second, nodes=kept)
    clock.now += FRESH_S
    await known.prepare(second, [ONLY_H100], 10)
    await settled()
    await known.prepare(second, [ONLY_H100], 10)
    await settled()
    survey = known.known(ONLY_H100)
    assert survey is not None
    assert (survey.matched, set(survey.by_node)) == (5, {"gpu-a", "gpu-d"})


async def test_a_newer_view_is_answered_from_the_last_survey_and_surveyed_in_the_background() -> (
    None
):
    clock, counting = Clock(), Counting()
    known, first = Fleet(counting, clock), view_of(fleet())
    await surveyed(known, first, ALL_GPUS)
    smaller = newer(view_of([o for o in fleet() if o["metadata"]["name"] != "gpu-b"]), first)
    counting.gate.clear()
    clock.now += FRESH_S
    assert (await surveyed(known, smaller, ALL_GPUS)).matched == 6
    counting.gate.set()
    await settled()
    await known.prepare(smaller, [ALL_GPUS], 10)
    await settled()
    assert (await surveyed(known, smaller, ALL_GPUS)).matched == 4


async def test_a_selection_not_asked_about_for_a_while_is_surveyed_before_the_answer() -> None:
    clock, first = Clock(), view_of(fleet())
    known = Fleet(InProcess(), clock)
    await surveyed(known, first, ALL_GPUS)
    smaller = newer(view_of([o for o in fleet() if o["metadata"]["name"] != "gpu-b"]), first)
    clock.now += STALE_S + 1
    assert (await surveyed(known, smaller, ALL_GPUS)).matched == 4


async def test_recently_used_surveys_are_updated_in_the_background() -> None:
    clock, first = Clock(), view_of(fleet())
    known = Fleet(InProcess(), clock)
    await surveyed(known, first, ALL_GPUS)
    smaller = newer(view_of([o for o in fleet() if o["metadata"]["name"] != "gpu-b"]), first)
    clock.now += FRESH_S
    assert (await surveyed(known, smaller, ALL_GPUS)).matched == 6
    await settled()
    survey = known.known(ALL_GPUS)
    assert survey is not None
    assert survey.matched == 4


async def test_a_view_that_follows_within_a_moment_is_skipped() -> None:
    clock, first = Clock(), view_of(fleet())
    known = Fleet(InProcess(), clock)
    await surveyed(known, first, ALL_GPUS)
    clock.now += FRESH_S / 2
    await known.prepare(newer(view_of([]), first), [ALL_GPUS], 10)
    await settled()
    assert known.catalogue.drivers == {GPU, "net.example.com"}


async def test_an_unused_survey_is_dropped_when_the_cluster_changes() -> None:
    clock, first = Clock(), view_of(fleet())
    known = Fleet(InProcess(), clock)
    await known.prepare(first, [ALL_GPUS, ONLY_H100], 10)
    clock.now += 40
    await known.prepare(first, [ALL_GPUS], 10)
    clock.now += 40
    await known.prepare(newer(view_of(fleet()), first), [], 10)
    await settled()
    assert known.known(ALL_GPUS) is not None
    assert known.known(ONLY_H100) is None


async def test_a_survey_that_takes_too_long_is_undecided_now_and_decided_later() -> None:
    counting = Counting()
    linter = Linter(evaluator=counting, survey_wait_s=0.02)
    view = view_of(fleet())
    manifest = Manifest(claim(exactly(selectors=["device.driver.startsWith('none')"])))
    counting.gate.clear()
    assert [(f.rule, f.severity) for f in await linter.lint(manifest, view)] == [
        ("FTL004", Severity.UNDECIDED)
    ]
    counting.gate.set()
    await settled()
    assert [(f.rule, f.severity) for f in await linter.lint(manifest, view)] == [
        ("FTL004", Severity.WARN)
    ]


async def test_an_object_that_differs_only_by_name_gets_the_same_findings() -> None:
    linter, view = Linter(evaluator=InProcess()), view_of(fleet())
    first = await linter.lint(Manifest(claim(exactly(count=5), name="a")), view)
    again = await linter.lint(Manifest(claim(exactly(count=5), name="b")), view)
    other = await linter.lint(Manifest(claim(exactly(count=4), name="b")), view)
    assert [f.rule for f in first] == ["FTL009"]
    assert (again, other) == (first, [])


async def test_cached_findings_are_dropped_when_classes_change() -> None:
    linter, view = Linter(evaluator=InProcess()), view_of(fleet())
    wanted = Manifest(claim(exactly(device_class="later")))
    assert [f.rule for f in await linter.lint(wanted, view)] == ["FTL001"]
    later = newer(view_of([*fleet(), api.device_class("later", driver=GPU)]), view)
    assert await linter.lint(wanted, later) == []


async def test_nodes_that_are_gone_since_the_survey_are_skipped() -> None:
    """What was asked about a moment ago is answered from surveys of an older view."""
    linter, template = Linter(evaluator=InProcess()), api.claim_template("t")
    elsewhere = Manifest(api.pod("p", templates={"gpu": "t"}, node_selector={"zone": "c"}))
    view = view_of([*fleet(), template])
    (before,) = await linter.lint(elsewhere, view)
    assert (before.rule, "all 2 nodes" in before.message) == ("FTL045", True)
    left, right = (view_of(_without(gone, [*fleet(), template])) for gone in ("gpu-a", "gpu-b"))
    for fewer in (left, right):
        (after,) = await linter.lint(elsewhere, newer(fewer, view))
        assert (after.rule, "excludes the only node" in after.message) == ("FTL045", True)
    neither = view_of(_without("gpu-a", _without("gpu-b", [*fleet(), template])))
    assert await linter.lint(elsewhere, newer(neither, view)) == []


def _without(node: str, objects: list[Object]) -> list[Object]:
    """Without a node and its slices."""
    return [
        one
        for one in objects
        if one["metadata"]["name"] != node and one.get("spec", {}).get("nodeName") != node
    ]


async def test_of_a_view_that_is_not_synced_nothing_is_known() -> None:
    view = msgspec.structs.replace(view_of(fleet()), synced=False)
    wanted = Manifest(claim(exactly(device_class="nosuch", count=9)))
    assert await Linter(evaluator=InProcess()).lint(wanted, view) == []
    assert Cluster(view).device_class(GPU) is None


async def test_the_worker_says_what_the_nearest_device_lacks() -> None:
    engine = SelectorEngine()
    await engine.start()
    try:
        linter = Linter(evaluator=engine, survey_wait_s=30)
        enough = f'device.capacity["{GPU}"].memory.compareTo(quantity("96Gi")) >= 0'
        manifest = Manifest(claim(exactly(selectors=[enough])))
        (found,) = await linter.lint(manifest, view_of(fleet()))
        assert found.message == (
            "0 of 6 devices in 2 pools of gpu.nvidia.com match; nearest: memory 80Gi < 96Gi"
        )
    finally:
        await engine.close()


async def test_the_nearest_is_found_beside_many_larger_devices_of_another_model() -> None:
    engine = SelectorEngine()
    await engine.start()
    try:
        linter = Linter(evaluator=engine, survey_wait_s=30)
        enough = f'device.capacity["{GPU}"].memory.compareTo(quantity("96Gi")) >= 0'
        hopper = f'device.attributes["{GPU}"].productName.endsWith("H100")'
        made = [gpu(0, "H100", "40Gi"), *(gpu(n, "A100", f"{n + 50}Gi") for n in range(1, 31))]
        standing = [api.node("n"), api.device_class(GPU, driver=GPU)]
        view = view_of([*standing, api.resource_slice("n", made, driver=GPU)])
        (found,) = await linter.lint(Manifest(claim(exactly(selectors=[enough, hopper]))), view)
        assert found.message.endswith("nearest: memory 40Gi < 96Gi")
    finally:
        await engine.close()


async def test_many_new_selectors_at_once_do_not_pile_up() -> None:
    counting = Counting()
    known, view = Fleet(counting), view_of(fleet())
    await known.prepare(view, [], 10)
    counting.gate.clear()
    wanted = [Selection((CLASS,), (f"device.driver == '{i}'",)) for i in range(100)]
    for selection in wanted:
        await known.prepare(view, [selection], 0)
    assert len(known.under_way) < 10
    counting.gate.set()
    await settled()
    await known.prepare(view, wanted[-1:], 10)
    assert known.known(wanted[-1]) is not None
