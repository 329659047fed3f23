"""Faults as fleets see them: what exporters say of a node's GPUs, by the seconds since the
beginning. `test_replays.py` looks at each closely; `tests/controlplane/test_incidents.py` plays all
at once, on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tests.prometheus.fleets import labels
from tests.prometheus.server import Recording

MINUTE, HOUR = 60.0, 3600.0
Shape = Callable[[float], float | None]
"""A value by the seconds since the beginning; None: no sample."""
Series = dict[tuple[str, int, str], Shape]
"""By node, number of the GPU, and metric."""


def steady(value: float) -> Shape:
    return lambda _: value


def record(made: Recording, series: Series, begin: float, times: Iterable[float]) -> None:
    """As if dcgm-exporter had been scraped at these times; `begin` and `times` in Unix seconds."""
    times = list(times)
    for (name, number, metric), shape in series.items():
        points = [(at, value) for at in times if (value := shape(at - begin)) is not None]
        made.add(metric, labels(name, number), points)


def alive(name: str, numbers: int = 8) -> Series:
    return {(name, i, "DCGM_FI_DEV_GPU_TEMP"): steady(60) for i in range(numbers)}


def throttled(name: str) -> Series:
    """GPU 3 is throttled by heat, half of the time, from 2:30 to 3:00 and so on, six times."""

    def throttled_ns(s: float) -> float:
        total = 0.0
        for hour in range(2, 8):
            begins = (hour + 0.5) * HOUR
            total += 0.5e9 * min(max(0.0, s - begins), 0.5 * HOUR)
        return total

    metric = "DCGM_FI_DEV_THERMAL_VIOLATION"
    others: Series = {(name, i, metric): steady(1e12) for i in (0, 1, 2)}
    return {**alive(name), (name, 3, metric): throttled_ns, **others}


def row_pending(name: str) -> Series:
    """GPU 2 has a row to be remapped from 1:00 until its reset at 5:00."""
    metric = "DCGM_FI_DEV_ROW_REMAP_PENDING"
    return {**alive(name), (name, 2, metric): lambda s: float(HOUR < s < 5 * HOUR)}


def ecc_storm(name: str) -> Series:
    """GPU 5 corrects two errors a second from 1:00 on, and cannot correct one at 3:00; it is reset
    at 8:00."""
    corrected, uncorrectable = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
    series = alive(name)
    for i in range(8):
        series[name, i, corrected] = lambda s: s // 600
        series[name, i, uncorrectable] = steady(0)
    series[name, 5, corrected] = lambda s: max(0.0, s - HOUR) * 2
    # A reset sets both counts back.
    series[name, 5, uncorrectable] = lambda s: float(3 * HOUR < s < 8 * HOUR)
    return series


def flapping_link(name: str) -> Series:
    """NVLink of GPU 1 replays at 2:00, 4:00 and 6:00, and is reset at 9:00. GPU 0 did long ago."""
    metric = "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"

    def replays(s: float) -> float:
        bursts = sum(3 for begins in (2, 4, 6) if s > begins * HOUR)
        return 500.0 + bursts if s < 9 * HOUR else 0.0

    return {**alive(name), (name, 1, metric): replays, (name, 0, metric): steady(90_000)}


def lost(name: str, *, replaced_s: float = float("inf")) -> Series:
    """GPU 6 falls off the bus at 1:00; two minutes later its exporter has nothing to export of it,
    until it is replaced. All other gauges have an old XID 31."""
    metric, gone_s = "DCGM_FI_DEV_XID_ERRORS", HOUR + 2 * MINUTE

    def there(shape: Shape) -> Shape:
        return lambda s: None if gone_s < s < replaced_s else shape(s)

    series = {**alive(name), **{(name, i, metric): steady(31) for i in range(6)}}
    xid = there(lambda s: 0.0 if s >= replaced_s else 79.0 if s > HOUR else 31.0)
    series[name, 6, metric] = xid
    series[name, 6, "DCGM_FI_DEV_GPU_TEMP"] = there(steady(50))
    return series


def exporter_away(name: str) -> Series:
    """Nothing of the node from 1:00 to 2:00. GPU 0 has had a row to be remapped for long."""

    def away(shape: Shape) -> Shape:
        return lambda s: None if HOUR < s < 2 * HOUR else shape(s)

    series = {key: away(steady(50)) for key in alive(name)}
    series[name, 0, "DCGM_FI_DEV_ROW_REMAP_PENDING"] = away(steady(1))
    return series


STEPS = """\
metrics:
  - name: step-time
    exporter: pods
    query: avg by (namespace, pod, job_name) (train_compute_seconds)
    compared: above
    peers: [namespace, job_name]
    graded: {0.1: 0.15, 0.3: 0.35}
    family: straggler
    text: "a rank of job {job_name} computes {percent} longer than its peers"
    source: our trainers
"""


def straggling(slow: Mapping[str, set[str]]) -> dict[str, dict[str, float]]:
    """By job, the seconds that each rank computes a step."""
    return {
        job: {f"rank-{i}": 1.5 if f"rank-{i}" in ranks else 1.0 + i / 1000 for i in range(8)}
        for job, ranks in slow.items()
    }


def record_steps(made: Recording, team: str, slow: set[str], times: Iterable[float]) -> None:
    """What the ranks of a team's job say themselves."""
    times = list(times)
    for rank, seconds in straggling({team: slow})[team].items():
        named = {"namespace": team, "pod": rank, "job_name": f"{team}-job"}
        made.add("train_compute_seconds", named, [(at, seconds) for at in times])
