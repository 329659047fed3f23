"""What a replay makes of a plan, and counts, on plans that are worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from fettle.model import State
from tests.goodput.plan import (
    FALSE_SIGNAL,
    FAULTS,
    JOBS,
    FaultKind,
    Plan,
    PlannedFault,
    PlannedJob,
    Scenario,
    Shows,
)
from tests.goodput.replay import REFUSAL_H, REPAIR_SHOWS_H, Figures, Node, Pod, Replay

HARMLESS = FaultKind(0.0, 1.0, None, Shows(), 0.0, 0.0)
SLOW = HARMLESS._replace(speed=0.5)
FAILS = HARMLESS._replace(fails_h=0.4)
SHOWN = HARMLESS._replace(shows=Shows("GpuMemWatch", "DCGM_FR_VOLATILE_DBE_DETECTED"), delay_h=1.0)
GANG = JOBS["gang4x8"]._replace(pods=2)


class ByHand:
    """A world that notes what it is told. The test places the pods."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.reported: list[tuple[float, str, list[str]]] = []
        """When, about which node, and which faults."""
        self.pods: list[tuple[float, str, str]] = []
        """When, which pod, and what became of it."""
        replay.begin(self)

    def node_changed(self, node: Node) -> None:
        names = [fault.name for fault in node.reported()]
        self.reported.append((self.replay.now_h, node.name, names))

    def pod_created(self, pod: Pod) -> None:
        self.pods.append((self.replay.now_h, pod.name, "created"))

    def pod_started(self, pod: Pod) -> None:
        self.pods.append((self.replay.now_h, pod.name, "started"))

    def pod_stuck(self, pod: Pod) -> None:
        self.pods.append((self.replay.now_h, pod.name, "stuck"))

    def pod_ended(self, pod: Pod, phase: str, refusal: str) -> None:
        self.pods.append((self.replay.now_h, pod.name, phase or "deleted"))


class FirstFree(ByHand):
    """Gives each pod, as it is made, the first node that is free enough."""

    def pod_created(self, pod: Pod) -> None:
        super().pod_created(pod)
        for node in self.replay.nodes:
            free = [device for device in node.devices if device.pod is None]
            if len(free) >= pod.gpus:
                self.replay.bind(pod, node, free[: pod.gpus])
                break


def replay_of(*planned: PlannedFault | PlannedJob, **scenario: Any) -> Replay:
    """Ten hours, all counted, unless it is said."""
    faults = tuple(one for one in planned if isinstance(one, PlannedFault))
    jobs = tuple(one for one in planned if isinstance(one, PlannedJob))
    fields = {"nodes": 1, "hours": 10.0, "warmup_h": 0.0} | scenario
    return Replay(Scenario(**fields), Plan(faults, jobs), seed=1)


def fault(name: str, kind: FaultKind, begins_h: float, ends_h: float, **at: Any) -> PlannedFault:
    """Of the first device of the first node, unless it is said."""
    return PlannedFault(name, kind, at.get("node", 0), at.get("gpu", 0), begins_h, ends_h)


def job(kind: str, arrives_h: float = 0.0, work_h: float = 100.0, name: str = "") -> PlannedJob:
    """Called as its kind is, unless it is said."""
    return PlannedJob(name or kind, JOBS.get(kind, GANG), arrives_h, work_h)


def played(replay: Replay) -> Figures:
    """To the end."""
    replay.advance(replay.scenario.hours)
    return replay.finish()


# --- work


def test_training_that_fails_is_made_anew_and_goes_on_from_its_last_checkpoint() -> None:
    repair = fault("kernel", HARMLESS, 3.0, 3.5, gpu=None)
    replay = replay_of(repair, job("train8", work_h=5.0), reboots=True, restart_h=0.25)
    world = FirstFree(replay)
    figures = played(replay)
    assert world.pods == [
        (0.0, "train8-0-1", "created"),
        (0.0, "train8-0-1", "started"),
        (3.5, "train8-0-1", "Failed"),
        (3.75, "train8-0-2", "created"),
        (3.75, "train8-0-2", "started"),
        (5.75, "train8-0-2", "Succeeded"),
    ]
    assert (figures.useful, figures.lost, figures.occupied) == (5.0 * 8, 0.5 * 8, 5.5 * 8)
    assert (figures.starts, figures.failures, figures.failed_by_cause["reboot"]) == (2, 1, 1)
    assert (figures.failures_by_job, figures.gangs) == ({"train8": 1}, set())


def test_a_service_that_fails_loses_no_work_and_never_gives_up() -> None:
    repair = fault("lost", HARMLESS, 3.0, 3.5)
    replay = replay_of(repair, job("serve1", work_h=5.0), reboots=True, restart_h=0.25)
    world = FirstFree(replay)
    figures = played(replay)
    assert world.pods[-1] == (5.25, "serve1-0-2", "Succeeded")
    assert (figures.useful, figures.lost, figures.failures) == (5.0, 0.0, 1)
    assert not figures.failures_by_job


UNSTARTED = HARMLESS._replace(shows=Shows(starts_nothing=True))


def test_a_pod_on_a_node_that_starts_nothing_holds_its_devices_until_that_is_mended() -> None:
    fails = fault("unstarted", UNSTARTED, 0.0, 3.0, gpu=None)
    replay = replay_of(fails, job("train8", arrives_h=1.0, work_h=5.0))
    world = FirstFree(replay)
    figures = played(replay)
    assert world.pods == [
        (1.0, "train8-0-1", "created"),
        (1.0, "train8-0-1", "stuck"),
        (3.0, "train8-0-1", "started"),
        (8.0, "train8-0-1", "Succeeded"),
    ]
    assert (figures.useful, figures.occupied, figures.starts_on_bad) == (5.0 * 8, 7.0 * 8, 1)


def test_a_pod_that_is_freed_is_made_anew_at_once_and_has_not_failed() -> None:
    fails = fault("unstarted", UNSTARTED, 0.0, 10.0, gpu=None)
    replay = replay_of(fails, job("train8", work_h=5.0), nodes=2)
    world = FirstFree(replay)
    replay.advance(1.0)
    (pod,) = replay.pods.values()
    replay.free(pod)
    figures = played(replay)
    assert [what for _, _, what in world.pods[:3]] == ["created", "stuck", "deleted"]
    assert world.pods[3] == (1.0, "train8-0-2", "created")
    assert (figures.failures, figures.lost) == (0, 0.0)


@pytest.mark.parametrize(("saves", "lost_h"), [(False, 0.5), (True, 0.0)])
def test_training_that_is_evicted_loses_what_it_has_not_saved_and_has_not_failed(
    saves: bool, lost_h: float
) -> None:
    replay = replay_of(job("train8", work_h=5.0), nodes=2, restart_h=0.25, saves=saves)
    world = FirstFree(replay)
    replay.advance(2.5)
    replay.evict(replay.pods["train8-0-1"])
    figures = played(replay)
    assert world.pods[2:4] == [(2.5, "train8-0-1", "deleted"), (2.75, "train8-0-2", "created")]
    assert world.pods[-1] == (5.25 + lost_h, "train8-0-2", "Succeeded")
    assert (figures.useful, figures.lost) == (5.0 * 8, lost_h * 8)
    assert (figures.evictions, figures.failures) == (1, 0)


def test_one_pod_that_is_evicted_ends_its_whole_gang() -> None:
    replay = replay_of(job("gang"), nodes=2)
    FirstFree(replay)
    replay.advance(0.5)
    replay.evict(replay.pods["gang-0-1"])
    replay.advance(1.0)
    assert [*replay.pods] == ["gang-0-2", "gang-1-2"]


def bind_gang(replay: Replay, first_h: float, second_h: float) -> None:
    """Its two pods, each on a node of its own."""
    ByHand(replay)
    replay.advance(first_h)
    first, second = replay.pods.values()
    replay.bind(first, replay.nodes[0])
    replay.advance(second_h)
    replay.bind(second, replay.nodes[1])


def test_a_gang_is_as_fast_as_its_slowest_pod_and_stands_still_until_all_run() -> None:
    replay = replay_of(fault("nvlink", SLOW, 2.0, 5.0, node=1), job("gang"), nodes=2)
    bind_gang(replay, 0.0, 1.0)
    figures = played(replay)
    assert figures.useful == (1 + 3 * 0.5 + 5) * 16
    assert figures.occupied == 10 * 8 + 9 * 8
    assert figures.gangs == {"gang"}


def test_one_pod_that_fails_ends_its_whole_gang() -> None:
    replay = replay_of(job("gang"), nodes=2)
    world = FirstFree(replay)
    replay.advance(0.5)
    replay.fail(replay.pods["gang-0-1"], "dies")
    assert [what for _, _, what in world.pods[-2:]] == ["Failed", "deleted"]
    replay.advance(1.0)
    assert [*replay.pods] == ["gang-0-2", "gang-1-2"]


def test_slow_work_is_avoidable_if_the_fault_was_there_as_the_pod_began() -> None:
    there, later = fault("nvlink", SLOW, 0.0, 3.0), fault("nvlink", SLOW, 1.0, 5.0, node=1)
    replay = replay_of(there, later, job("train8"), job("train8", name="other"), nodes=2)
    FirstFree(replay)
    figures = played(replay)
    assert figures.occupied - figures.useful == (3 + 4) * 0.5 * 8
    assert figures.avoidable == 3 * 0.5 * 8


@pytest.mark.parametrize("begins_h", [0.0, 0.7])
def test_lost_work_is_avoidable_if_the_fault_was_there_as_the_pod_began(begins_h: float) -> None:
    replay = replay_of(fault("lost", FAILS, begins_h, 10.0), job("train8"), restart_h=100.0)
    world = FirstFree(replay)
    figures = played(replay)
    failed_h, _, what = world.pods[-1]
    assert (what, figures.failed_by_cause) == ("Failed", {"lost": 1})
    assert figures.lost == pytest.approx(failed_h % 1 * 8)
    assert figures.avoidable == (0.0 if begins_h else figures.lost)


def test_only_what_happens_between_the_warm_up_and_the_end_counts() -> None:
    late = job("serve1", arrives_h=11.0), job("gang", arrives_h=12.0)
    replay = replay_of(job("train8"), *late, nodes=2, warmup_h=4.0)
    FirstFree(replay)
    replay.advance(13.0)
    figures = replay.finish()
    assert (figures.useful, figures.occupied, figures.starts) == (6 * 8, 6 * 8, 0)
    assert not figures.waits_h


# --- reports


def test_a_fault_is_reported_after_its_delay_and_its_repair_soon_after_it() -> None:
    replay = replay_of(fault("memory", SHOWN, 1.0, 5.0))
    world = ByHand(replay)
    played(replay)
    (begun_h, *begun), ended = world.reported
    assert (1.5 <= begun_h <= 2.5, begun) == (True, ["gpu-000", ["memory"]])
    assert ended == (5.0 + REPAIR_SHOWS_H, "gpu-000", [])


def test_a_flapping_report_comes_and_goes_until_the_repair() -> None:
    replay = replay_of(fault("flap", FAULTS["flap"], 1.0, 9.0))
    world = ByHand(replay)
    played(replay)
    *flaps, repair = [(hour, bool(names)) for hour, _, names in world.reported]
    assert len(flaps) > 4
    assert [shown for _, shown in flaps] == [number % 2 == 0 for number in range(len(flaps))]
    assert (flaps[-1][0] < 9.0, repair) == (True, (9.0 + REPAIR_SHOWS_H, False))


def test_when_a_fault_is_reported_does_not_depend_on_who_places_pods() -> None:
    def reported(world: type[ByHand]) -> list[tuple[float, str, list[str]]]:
        faults = [fault(name, FAULTS[name], at, 9.0, gpu=at) for at, name in enumerate(FAULTS)]
        replay = replay_of(*faults[:7], *(job("train1", name=f"train1-{n}") for n in range(8)))
        watching = world(replay)
        played(replay)
        return watching.reported

    assert reported(ByHand) == reported(FirstFree)


@pytest.mark.parametrize(
    ("name", "kind", "at_first", "reported"),
    [
        ("silent", HARMLESS, (1, 0), (2, 0)),
        ("memory", SHOWN, (1, 0), (2, 1)),
        ("false", FALSE_SIGNAL, (0, 0), (0, 0)),
    ],
)
def test_a_start_is_visibly_bad_only_if_a_real_fault_had_been_reported(
    name: str, kind: FaultKind, at_first: tuple[int, int], reported: tuple[int, int]
) -> None:
    replay = replay_of(
        fault(name, kind, 0.0, 10.0, gpu=1),
        *(job("serve1", hour, 0.1, name=f"serve1-{hour}") for hour in (0.1, 3.0)),
    )
    ByHand(replay)
    figures = replay.figures
    for hour, counted in (0.1, at_first), (3.0, reported):
        replay.advance(hour)
        (pod,) = replay.pods.values()
        replay.bind(pod, replay.nodes[0], [replay.nodes[0].devices[1]])
        assert (figures.starts_on_bad, figures.starts_on_visibly_bad) == counted
    assert figures.starts == 2


def test_a_flapping_fault_stays_visible_while_its_report_is_away() -> None:
    flap = fault("flap", FAULTS["flap"], 0.0, 10.0)
    replay = replay_of(flap, *(job("serve1", name=f"serve1-{n}") for n in range(2)))
    world = ByHand(replay)
    while len(world.reported) < 2:
        replay.advance(replay.now_h + 0.1)
    assert not replay.nodes[0].reported()
    for pod, device in zip([*replay.pods.values()], replay.nodes[0].devices, strict=False):
        replay.bind(pod, device.node, [device])
    assert (replay.figures.starts, replay.figures.starts_on_visibly_bad) == (2, 1)


def test_a_node_swallows_pods_and_that_is_visible_from_the_second_on() -> None:
    swallows = fault("swallows", FAULTS["swallows"], 0.0, 1.0, gpu=None)
    replay = replay_of(swallows, job("train8"), restart_h=0.7)
    world = FirstFree(replay)
    figures = played(replay)
    hours = {pod: (hour, what) for hour, pod, what in world.pods}
    assert hours == {
        "train8-0-1": (REFUSAL_H, "Failed"),
        "train8-0-2": (REFUSAL_H + 0.7 + REFUSAL_H, "Failed"),
        "train8-0-3": (REFUSAL_H + 0.7 + REFUSAL_H + 0.7, "started"),
    }
    assert (figures.starts, figures.starts_on_bad, figures.starts_on_visibly_bad) == (3, 2, 1)
    assert figures.failed_by_cause == {"refused": 2}


def test_a_change_that_a_whole_node_has_in_common_counts_once() -> None:
    healthy, degraded, unhealthy = State.HEALTHY, State.DEGRADED, State.UNHEALTHY
    replay = replay_of()
    counted = []
    for whole, units in (
        (degraded, {"a": degraded, "b": degraded}),
        (degraded, {"a": degraded, "b": unhealthy}),
        (degraded, {"a": degraded, "b": unhealthy}),
        (healthy, {}),
    ):
        replay.judged("gpu-000", whole, units)
        counted.append(replay.figures.state_changes)
    assert counted == [1, 2, 2, 4]


# --- where hours go


def test_a_job_waits_as_long_as_its_pods_do_on_average() -> None:
    replay = replay_of(job("gang", arrives_h=1.0), job("serve1", arrives_h=4.0), nodes=2)
    bind_gang(replay, 3.0, 6.0)
    figures = played(replay)
    assert figures.waits_h == {"gang": (2.0 + 5.0) / 2, "serve1": 6.0}
    assert figures.whole_waits_h == {"gang": 3.5}


def test_every_device_hour_is_useful_lost_slow_or_idle() -> None:
    replay = replay_of(
        fault("kernel", SLOW, 2.0, 5.0, gpu=None),
        fault("silent", HARMLESS, 4.0, 8.0, node=1),
        fault("false", FALSE_SIGNAL, 0.0, 10.0, node=2),
        job("train8"),
        nodes=3,
        reboots=True,
        restart_h=1.0,
    )
    world = FirstFree(replay)
    for hour in range(10):
        replay.advance(hour + 0.5)
        replay.sample(1.0)
    figures = played(replay)
    assert (5.0, "train8-0-1", "Failed") in world.pods
    assert figures.useful == (3 + 4) * 8
    assert figures.lost == 0.5 * 8
    assert figures.occupied - figures.useful - figures.lost == 3 * 0.5 * 8
    assert figures.idle_bad == 4
    assert figures.idle_beside_bad == 4 * 7
    assert figures.idle_sound == (1 + 6 + 10) * 8
    idle = figures.idle_bad + figures.idle_beside_bad + figures.idle_sound
    assert figures.occupied + idle == replay.scenario.capacity_h


@pytest.mark.parametrize(
    ("waits", "while_one_is_bad", "later"),
    [("gang", 0, 16), ("train8", 8, 16), ("serve1", 15, 16)],
)
def test_sound_devices_are_stranded_while_a_job_waits_whose_pods_all_fit_there(
    waits: str, while_one_is_bad: int, later: int
) -> None:
    replay = replay_of(fault("silent", HARMLESS, 0.0, 2.0), job(waits), nodes=2)
    ByHand(replay)
    stranded = []
    for hour in 0.1, 1.0, 3.0:
        replay.advance(hour)
        before = replay.figures.stranded
        replay.sample(1.0)
        stranded.append(replay.figures.stranded - before)
    assert stranded == [0, while_one_is_bad, later]
    assert replay.figures.sound == 15 + 15 + 16


def test_a_sound_device_that_is_called_bad_is_held_by_mistake() -> None:
    replay = replay_of(fault("memory", SHOWN, 0.0, 5.0))
    ByHand(replay)
    device = replay.nodes[0].devices[0]
    replay.judged(device.node.name, State.HEALTHY, {device.uuid: State.UNHEALTHY})
    for hour in range(10):
        replay.advance(hour + 0.5)
        replay.sample(1.0)
    assert replay.figures.called_bad_while_sound == {f"memory {State.UNHEALTHY}": 5.0}
