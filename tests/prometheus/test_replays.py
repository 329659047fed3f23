"""Faults as fleets see them, replayed from hours of series: what Fettle says of the device, and
when."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fettle.health import load_rules
from fettle.model import State
from tests.prometheus import incidents
from tests.prometheus.fleets import labels, node, slice_of
from tests.prometheus.incidents import HOUR, MINUTE
from tests.prometheus.replaying import Replay, Told
from tests.prometheus.server import Recording, every, load, needs_prometheus, running

pytestmark = [needs_prometheus, pytest.mark.prometheus]
BEGIN = 1_790_000_000.0
SCRAPE_S = 30.0


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., AbstractContextManager[Replay]]:
    @contextmanager
    def recording(hours: float, series: incidents.Series) -> Iterator[Replay]:
        made = Recording()
        incidents.record(made, series, BEGIN, every(SCRAPE_S, BEGIN, BEGIN + hours * HOUR))
        load(made, tmp_path)
        nodes = {name for name, _, _ in series}
        objects = [each for name in sorted(nodes) for each in (node(name), slice_of(name))]
        with running(tmp_path) as url:
            yield Replay(url, *objects, at=BEGIN)

    return recording


def first(told: list[Told], state: State) -> float:
    """How long after the beginning a state is said for the first time."""
    return next(one.at - BEGIN for one in told if one.health.state is state)


def states(told: list[Told]) -> set[State]:
    return {one.health.state for one in told}


def test_throttling_by_heat_that_comes_and_goes_for_hours_degrades_and_never_refuses_for_good(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    with record(14, incidents.throttled("n1")) as replay:
        told = replay.rounds("n1", "gpu-3", every(5 * MINUTE, BEGIN + HOUR, BEGIN + 14 * HOUR))
        calm = replay.health("n1", "gpu-0")
    assert states(told) == {State.HEALTHY, State.DEGRADED}
    assert 2.5 * HOUR < first(told, State.DEGRADED) < 2.75 * HOUR
    # From the third time on it is not believed to be over as soon as it is quiet.
    recurring = [one for one in told if 5.1 * HOUR < one.at - BEGIN < 8 * HOUR]
    assert states(recurring) == {State.DEGRADED}
    assert told[-1].health.state is State.HEALTHY
    assert calm.state is State.HEALTHY
    assert "throttled by heat 5" in max(told, key=lambda one: one.health.score * -1).text


def test_a_row_to_be_remapped_degrades_until_the_reset_and_leaves_a_light_trace(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    with record(7, incidents.row_pending("n1")) as replay:
        told = replay.rounds("n1", "gpu-2", every(5 * MINUTE, BEGIN + MINUTE, BEGIN + 7 * HOUR))
    assert HOUR <= first(told, State.DEGRADED) <= HOUR + 5 * MINUTE
    during = [one for one in told if HOUR + 5 * MINUTE < one.at - BEGIN < 5 * HOUR]
    assert {one.health.score for one in during} == {0.5}
    after = told[-1]
    assert after.health.state is State.HEALTHY
    assert 0.85 < after.health.score < 1.0
    assert "was until recently" in after.text


def test_a_storm_of_corrected_errors_weighs_by_its_rate_and_an_uncorrectable_one_refuses(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    with record(10, incidents.ecc_storm("n1")) as replay:
        told = replay.rounds("n1", "gpu-5", every(5 * MINUTE, BEGIN + HOUR, BEGIN + 10 * HOUR))
        peer = replay.health("n1", "gpu-4")
    storm = [one for one in told if 2.2 * HOUR < one.at - BEGIN < 3 * HOUR]
    assert all("corrected memory errors in an hour" in one.text for one in storm)
    assert all(0.6 < one.health.score < 0.9 for one in storm)
    assert 3 * HOUR <= first(told, State.UNHEALTHY) <= 3 * HOUR + 10 * MINUTE
    # The count grew only once, hours ago, and still the GPU was not reset.
    assert {o.health.state for o in told if 4 * HOUR < o.at - BEGIN < 8 * HOUR} == {State.UNHEALTHY}
    assert told[-1].health.state is not State.UNHEALTHY
    assert peer.score == 1.0


def test_a_link_that_flaps_is_told_by_its_growth_and_not_by_its_count(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    with record(11, incidents.flapping_link("n1")) as replay:
        told = replay.rounds("n1", "gpu-1", every(2 * MINUTE, BEGIN + HOUR, BEGIN + 11 * HOUR))
        other = replay.health("n1", "gpu-0")
    assert 2 * HOUR < first(told, State.DEGRADED) < 2 * HOUR + 5 * MINUTE
    assert other.score == 1.0
    assert State.UNHEALTHY not in states(told)
    # It came back twice, so it is not believed to be over as soon as it is quiet.
    assert states([o for o in told if 6.1 * HOUR < o.at - BEGIN < 8 * HOUR]) == {State.DEGRADED}
    assert (told[-1].health.state, told[-1].health.score > 0.9) == (State.HEALTHY, True)
    restart = [o for o in told if 9 * HOUR < o.at - BEGIN < 9.2 * HOUR]
    assert not any("NVLink replays within" in o.text.split("was until")[0] for o in restart)


def test_a_gpu_that_is_lost_takes_its_series_along_and_stays_lost(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    """XID 79: a moment later its exporter has nothing of it to export."""
    with record(4, incidents.lost("n1")) as replay:
        told = replay.rounds("n1", "gpu-6", every(30, BEGIN + 50 * MINUTE, BEGIN + 90 * MINUTE))
        later = replay.rounds("n1", "gpu-6", every(HOUR, BEGIN + 2 * HOUR, BEGIN + 4 * HOUR))
        peer = replay.health("n1", "gpu-0")
    assert HOUR <= first(told, State.UNHEALTHY) <= HOUR + MINUTE
    assert states(later) == {State.UNHEALTHY}
    assert "XID 79: GPU has fallen off the bus" in later[-1].text
    assert "no DCGM_FI_DEV_GPU_TEMP of it" in later[0].text
    # XID 31 stands in the gauge since before the beginning: that tells of no fault now.
    assert peer.evidence == ()


def test_an_exporter_that_is_away_makes_its_devices_unknown_and_ends_no_fault(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    series = incidents.exporter_away("n1") | incidents.alive("n2")
    series["n2", 0, "DCGM_FI_DEV_ROW_REMAP_PENDING"] = incidents.steady(0)
    with record(3, series) as replay:
        replay.round(BEGIN + 50 * MINUTE)
        assert replay.health("n1", "gpu-0").score == 0.5
        assert replay.health("n1", "gpu-1").state is State.HEALTHY
        replay.round(BEGIN + HOUR + 15 * MINUTE)
        assert (replay.health("n1", "gpu-0").state, replay.health("n1", "gpu-0").score) == (
            State.DEGRADED,
            0.5,
        )
        assert (replay.health("n1", "gpu-1").state, replay.health("n1", "gpu-1").score) == (
            State.UNKNOWN,
            0.75,
        )
        assert replay.health("n2", "gpu-1").score == 1.0
        replay.round(BEGIN + 2 * HOUR + 15 * MINUTE)
        assert replay.health("n1", "gpu-1").state is State.HEALTHY
        assert replay.health("n1", "gpu-0").score == 0.5


def holder(namespace: str, name: str, device: str) -> list[dict[str, Any]]:
    """A rank, and the claim by which it holds a device."""
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": device}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"},
            "spec": {
                "nodeName": "n1",
                "containers": [{"name": "c"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}],
            },
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"{name}-gpu", "namespace": namespace, "uid": f"c-{name}"},
            "spec": {"devices": {"requests": [{"name": "gpu"}]}},
            "status": {"allocation": {"devices": {"results": [result]}}},
        },
    ]


def test_a_straggler_that_is_software_is_bounded_and_a_second_tenant_corroborates(
    tmp_path: Path,
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(incidents.STEPS)
    made = Recording()
    for team, begins in (("team-a", BEGIN), ("team-b", BEGIN + HOUR)):
        incidents.record_steps(made, team, {"rank-3"}, every(SCRAPE_S, begins, BEGIN + 2 * HOUR))
    load(made, tmp_path)
    holders = [
        each
        for namespace in ("team-a", "team-b")
        for i in range(8)
        for each in holder(namespace, f"rank-{i}", f"gpu-{i}")
    ]
    with running(tmp_path) as url:
        replay = Replay(
            url, node("n1"), slice_of("n1"), *holders, at=BEGIN, rules=load_rules(rules)
        )
        replay.round(BEGIN + 30 * MINUTE)
        one = replay.health("n1", "gpu-3")
        assert (one.score, one.proven, one.state) == (0.65, 1.0, State.HEALTHY)
        assert "a rank of job team-a-job computes 49% longer than its peers" in str(one.evidence)
        assert replay.health("n1", "gpu-2").evidence == ()
        replay.round(BEGIN + 90 * MINUTE)
        both = replay.health("n1", "gpu-3")
        assert 0.4 <= both.score < 0.5
        assert (both.proven, both.state) == (1.0, State.HEALTHY)


def test_what_tenants_export_about_a_device_refuses_nothing(tmp_path: Path) -> None:
    """A pod of a tenant serves a page like an exporter's, about a GPU of somebody else."""
    made = Recording()
    times = every(SCRAPE_S, BEGIN, BEGIN + HOUR)
    framed = {
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": 1.0,
        "DCGM_FI_DEV_XID_ERRORS": 79.0,
        "DCGM_EXP_GPU_HEALTH_STATUS": 20.0,
    }
    for name, value in framed.items():
        named = labels("n1", 0, namespace="tenant", pod="evil", job="pods")
        made.add(name, named, [(at, value if at > BEGIN + 600 else 0.0) for at in times])
        made.add(name, labels("n1", 0, namespace="gpu-operator"), [(at, 0.0) for at in times])
    # A thousand GPUs that do not exist would shift what is usual among the real ones.
    for i in range(50):
        named = labels("n1", 100 + i, namespace="tenant", pod="evil")
        made.add("DCGM_FI_DEV_SM_CLOCK", named, [(at, 9000.0) for at in times])
        made.add("DCGM_FI_DEV_GPU_UTIL", named, [(at, 99.0) for at in times])
    for i in range(8):
        named = labels("n1", i, namespace="gpu-operator")
        made.add("DCGM_FI_DEV_SM_CLOCK", named, [(at, 1900.0) for at in times])
        made.add("DCGM_FI_DEV_GPU_UTIL", named, [(at, 99.0) for at in times])
    # It pretends that a GPU was there, and then no more.
    gone = labels("n1", 5, namespace="tenant", pod="evil")
    made.add("DCGM_FI_DEV_GPU_TEMP", gone, [(at, 40.0) for at in times if at < BEGIN + 600])
    load(made, tmp_path)
    with running(tmp_path) as url:
        replay = Replay(url, node("n1"), slice_of("n1"), at=BEGIN)
        replay.round(BEGIN + 13 * MINUTE)
        framed_one = replay.health("n1", "gpu-0")
        assert (framed_one.proven, framed_one.state) == (1.0, State.HEALTHY)
        assert 0.4 <= framed_one.score < 1.0
        assert "by series of namespace tenant" in str(framed_one.evidence)
        others = [replay.health("n1", f"gpu-{i}") for i in range(1, 8)]
        assert {(one.score, one.state) for one in others} == {(1.0, State.HEALTHY)}

        trusting = Replay(
            url, node("n1"), slice_of("n1"), at=BEGIN, exporter_namespaces=("tenant",)
        )
        trusting.round(BEGIN + 13 * MINUTE)
        assert trusting.health("n1", "gpu-0").state is State.UNHEALTHY


def test_what_tenants_export_neither_keeps_a_fault_that_is_over_nor_ends_another(
    tmp_path: Path,
) -> None:
    """About GPUs that had faults: reset, gone for good, and two that were replaced."""
    errors, failed = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"
    made = Recording()
    times = every(SCRAPE_S, BEGIN, BEGIN + 2 * HOUR)
    before = every(SCRAPE_S, BEGIN, BEGIN + 30 * MINUTE)
    ill = every(SCRAPE_S, BEGIN + 30 * MINUTE, BEGIN + HOUR)
    after = every(SCRAPE_S, BEGIN + HOUR + SCRAPE_S, BEGIN + 2 * HOUR)
    faults = ((0, errors, True), (1, errors, False), (2, failed, True), (3, failed, True))
    for number, metric, ends in faults:
        points = [(at, 0.0) for at in before] + [(at, 1.0) for at in ill[1:]]
        points += [(at, 0.0) for at in after] if ends else []
        made.add(metric, labels("n1", number, namespace="gpu-operator"), points)
    lies = ((0, errors, 1.0), (1, errors, 0.0), (2, failed, float("inf")), (3, failed, 1.0))
    for number, metric, value in lies:
        named = labels("n1", number, namespace="tenant", pod="evil")
        made.add(metric, named, [(at, value) for at in times])
    load(made, tmp_path)
    with running(tmp_path) as url:
        replay = Replay(url, node("n1"), slice_of("n1"), at=BEGIN)
        replay.round(BEGIN + 35 * MINUTE)
        found = [replay.health("n1", f"gpu-{i}").state for i in range(4)]
        assert found == [State.UNHEALTHY] * 4
        replay.rounds("n1", "gpu-0", every(5 * MINUTE, BEGIN + HOUR, BEGIN + 2 * HOUR))
        found = [replay.health("n1", f"gpu-{i}").state for i in range(4)]
        assert found == [State.HEALTHY, State.UNHEALTHY, State.HEALTHY, State.HEALTHY]


def points(metric: str, made: Recording, value: float, *, since: float = 0.0, **named: Any) -> None:
    """A value that was 0 before a time, in seconds since the beginning."""
    times = every(SCRAPE_S, BEGIN, BEGIN + 2 * HOUR)
    told = [(at, value if at >= BEGIN + since else 0.0) for at in times]
    made.add(metric, labels("n1", named.pop("gpu"), **named), told)


def test_what_a_query_says_that_drops_the_namespace_counts_in_full_only_by_exporters_series(
    tmp_path: Path,
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "metrics:\n"
        "  - {name: hot, exporter: dcgm, family: thermal, weight: 0.9, source: us,\n"
        "     query: 'max by (UUID, hostname) (DCGM_FI_DEV_GPU_TEMP) > 85'}\n"
        "  - {name: recorded, exporter: dcgm, family: bus, weight: 0.9, source: us,\n"
        "     query: 'gpu:hot:max > 1'}\n"
        "  - {name: vouched, exporter: dcgm, family: link, weight: 0.9, source: us,\n"
        "     tenant_caused: false, query: 'gpu:cold:max > 1'}\n"
    )
    made = Recording()
    for gpu in range(5):
        hot = 90 if gpu == 1 else 50
        points("DCGM_FI_DEV_GPU_TEMP", made, hot, gpu=gpu, namespace="gpu-operator")
    points("DCGM_FI_DEV_GPU_TEMP", made, 99, gpu=2, namespace="tenant", pod="evil")
    points("gpu:hot:max", made, 2, gpu=3)
    points("gpu:cold:max", made, 2, gpu=4)
    load(made, tmp_path)
    with running(tmp_path) as url:
        replay = Replay(url, node("n1"), slice_of("n1"), at=BEGIN, rules=load_rules(rules))
        replay.round(BEGIN + HOUR)
        found = [replay.health("n1", f"gpu-{i}") for i in range(5)]
        notes = replay.poller.notes()
    unhealthy, healthy = State.UNHEALTHY, State.HEALTHY
    assert [one.state for one in found] == [healthy, unhealthy, healthy, healthy, unhealthy]
    assert [one.proven for one in found[:4]] == [1.0, pytest.approx(0.1), 1.0, 1.0]
    assert [round(one.score, 2) for one in found[2:4]] == [0.65, 0.65]
    assert "by series that name no namespace" in str(found[2].evidence)
    assert any("faults by series of hot, recorded that name no" in note for note in notes)


def test_tenants_with_far_too_many_series_do_not_hide_what_exporters_say(tmp_path: Path) -> None:
    made = Recording()
    metric = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
    at = BEGIN + HOUR
    for i in range(6000):
        named = labels("n1", i, namespace="tenant", pod="evil", Hostname="n1")
        made.add(metric, named, [(at, 1.0)])
    for gpu in range(8):
        points(metric, made, float(gpu == 3), gpu=gpu, namespace="gpu-operator")
    load(made, tmp_path)
    with running(tmp_path) as url:
        replay = Replay(url, node("n1"), slice_of("n1"), at=BEGIN, max_mebibytes=1)
        replay.round(at)
        assert replay.health("n1", "gpu-3").state is State.UNHEALTHY
        assert replay.health("n1", "gpu-4").state is State.HEALTHY
        (note,) = [each for each in replay.poller.notes() if "maxMebibytes" in each]
        assert note.startswith("metrics: rule dcgm-row-remap-failed: the answer is larger than")
        assert note.endswith("only series of prometheus.exporterNamespaces count")
        replay.round(at + 30)
        assert note in replay.poller.notes()
        replay.round(at + 10 * MINUTE)  # the tenant's pods are gone
        assert note not in replay.poller.notes()
        assert replay.health("n1", "gpu-3").state is State.UNHEALTHY


DBE, XID = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_XID_ERRORS"


def missed(name: str) -> incidents.Series:
    """From 3:00 on GPU 1 has XID 79, GPU 2 an uncorrectable error, GPU 3 XID 31. GPU 4 has had XID
    79 for days. GPU 5 had both, and was reset at 4:00. The first XID of GPU 6 is 79, and GPU 7 is
    new at 4:00, with an XID from elsewhere."""

    def later(value: float, until_s: float = float("inf")) -> incidents.Shape:
        return lambda s: value if 3 * HOUR <= s < until_s else 0.0

    series = incidents.alive(name) | {
        (name, 1, XID): later(79),
        (name, 2, DBE): later(2),
        (name, 3, XID): later(31),
        (name, 4, XID): incidents.steady(79),
        (name, 4, DBE): incidents.steady(7),
        (name, 5, XID): later(79, 4 * HOUR),
        (name, 5, DBE): later(1, 4 * HOUR),
        (name, 6, XID): lambda s: 79.0 if s >= 3 * HOUR else None,
        (name, 7, XID): lambda s: 79.0 if s >= 4 * HOUR else None,
    }
    series[name, 7, "DCGM_FI_DEV_GPU_TEMP"] = lambda s: 40.0 if s >= 4 * HOUR else None
    return series


def test_what_began_before_fettle_asked_is_heard_and_stays_until_the_reset(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    with record(7, missed("n1")) as replay:
        replay.round(BEGIN + 6 * HOUR)
        replay.round(BEGIN + 6 * HOUR + 5 * MINUTE)
        found = [replay.health("n1", f"gpu-{i}") for i in range(8)]
    ill = [i for i, one in enumerate(found) if one.state is State.UNHEALTHY]
    assert ill == [1, 2, 6]
    assert "XID 79: GPU has fallen off the bus" in str(found[1].evidence)
    assert "while metrics were not asked for" in str(found[2].evidence)
    assert {found[i].score for i in (0, 3, 4, 5, 7)} == {1.0}


def test_what_began_while_prometheus_did_not_answer_is_heard_as_soon_as_it_does(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    with record(7, missed("n1")) as replay:
        replay.round(BEGIN + 2 * HOUR)
        replay.round(BEGIN + 5 * HOUR)
        assert replay.health("n1", "gpu-2").state is State.UNHEALTHY


def test_what_began_before_a_repair_is_not_brought_back(
    record: Callable[..., AbstractContextManager[Replay]],
) -> None:
    """The gauge keeps its last XID until the exporter restarts, whatever was repaired."""
    with record(7, missed("n1") | missed("n2")) as replay:
        repaired = node("n1")
        when = datetime.fromtimestamp(BEGIN + 5 * HOUR, UTC).isoformat()
        repaired["metadata"]["annotations"] = {"fettle.dev/repaired": when}
        replay.now = BEGIN + 6 * HOUR
        replay.put(repaired)
        replay.round(BEGIN + 6 * HOUR)
        assert replay.health("n1", "gpu-1").state is State.HEALTHY
        assert replay.health("n2", "gpu-1").state is State.UNHEALTHY


def test_a_gpu_that_was_lost_before_fettle_asked_is_heard_by_its_last_xid(tmp_path: Path) -> None:
    """XID 79 from 2:45 to 2:50, and then no series, of GPUs 1 and 5. GPU 2 is exported again, with
    other labels and no XID. GPU 3 was replaced by another one in its slot. GPU 4 has had XID 79 for
    days. GPU 6 had XID 31. Of n2 there is nothing at all, so its exporter may be what is gone; n3
    was repaired since."""
    temp, now, gone = "DCGM_FI_DEV_GPU_TEMP", 3 * HOUR, 2 * HOUR + 50 * MINUTE
    times = every(SCRAPE_S, BEGIN, BEGIN + now)
    made = Recording()
    for name in ("n1", "n2", "n3"):
        for i in range(8):
            there = name != "n2" and i in (0, 7)
            xid = 31.0 if i == 6 else 79.0 if i in range(1, 7) else 0.0
            since = 0.0 if i == 4 else gone - 5 * MINUTE
            until = now if there else gone
            named = labels(name, i, namespace="gpu-operator")
            lasts = [at for at in times if at <= BEGIN + until]
            made.add(XID, named, [(at, xid if at >= BEGIN + since else 0.0) for at in lasts])
            made.add(temp, named, [(at, 50.0) for at in lasts])
        renamed = labels(name, 2, namespace="gpu-operator", hostname="", Hostname=name)
        another = labels(name, 3, namespace="gpu-operator", UUID="GPU-new")
        for named in (renamed, another) if name != "n2" else ():
            made.add(temp, named, [(at, 50.0) for at in times if at > BEGIN + gone])
    load(made, tmp_path)
    repaired = node("n3")
    when = datetime.fromtimestamp(BEGIN + now - MINUTE, UTC).isoformat()
    repaired["metadata"]["annotations"] = {"fettle.dev/repaired": when}
    nodes = [node("n1"), node("n2"), repaired, *map(slice_of, ("n1", "n2", "n3"))]
    with running(tmp_path) as url:
        replay = Replay(url, *nodes, at=BEGIN + now)
        replay.round(BEGIN + now)
        found = {n: [replay.health(n, f"gpu-{i}") for i in range(8)] for n in ("n1", "n2", "n3")}
        replay.round(BEGIN + now + 5 * MINUTE)
        still = replay.health("n1", "gpu-1")
    ill = {
        (n, i)
        for n, all_ in found.items()
        for i, one in enumerate(all_)
        if one.state is State.UNHEALTHY
    }
    assert ill == {("n1", 1), ("n1", 5)}
    assert "XID 79: GPU has fallen off the bus" in str(found["n1"][1].evidence)
    assert found["n1"][4].state is State.UNKNOWN
    assert still.state is State.UNHEALTHY


def test_one_of_four_links_that_went_down_once_keeps_its_node_good_enough_for_training(
    tmp_path: Path,
) -> None:
    made = Recording()
    times = every(SCRAPE_S, BEGIN, BEGIN + HOUR)
    for name, downs in (("n1", 1), ("n2", 2)):
        for port in range(4):
            named = {"node": name, "instance": f"{name}:9100", "device": f"mlx5_{port}"}
            values = [(at, float(port < downs and at > BEGIN + HOUR / 2)) for at in times]
            made.add("node_infiniband_link_downed_total", named, values)
    load(made, tmp_path)
    with running(tmp_path) as url:
        replay = Replay(url, node("n1"), node("n2"), at=BEGIN + HOUR)
        replay.round(BEGIN + HOUR)
        one, two = replay.health("n1").score, replay.health("n2").score
    assert [one, two] == pytest.approx([0.85, 0.7])
