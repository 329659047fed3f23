"""Whatever a DeviceHealth holds that the API server stores, and whoever wrote its checksum: nothing
crashes, nothing leaves its bounds, and what is there now has the last word."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import DeviceHealth, kinds
from fettle.api.own_group import DeviceHealthStatus
from fettle.cluster.inventory.device_healths import LARGEST_BYTES
from fettle.explain import explain_node
from fettle.model import State
from tests.fettle import building as b
from tests.fettle.cluster.inventory import saying
from tests.fettle.cluster.inventory.fleets import Fleet, node
from tests.fettle.cluster.inventory.test_device_healths import uid

shares = st.floats(0.0, 1.0)
moments = st.sampled_from(
    [
        "0001-01-01T00:00:00Z",
        "1970-01-01T00:00:00Z",
        "1970-01-12T13:40:00Z",
        "1970-01-12T13:46:40Z",
        "1970-01-12T13:47:10Z",
        "2026-01-01T00:00:00.123456Z",
        "9999-12-31T23:59:59Z",
    ]
)
states = st.sampled_from([str(state) for state in State])
texts = st.text(max_size=8)
reports = st.fixed_dictionaries(
    {"by": st.sampled_from(["Node n", "Pod d/a", "", "x"])},
    optional={"uid": texts, "at": moments, "left": st.booleans()},
)
evidence = st.fixed_dictionaries(
    {
        "source": st.sampled_from(
            ["condition Ready", "allocatable", "record of 28 days", "s, lately"]
        ),
        "family": st.sampled_from(["bus", "memory", "operator", "admission", "node"]),
        "kind": st.sampled_from(["latched", "level", "decaying", "unknown"]),
    },
    optional={
        "weight": shares,
        "sum": st.floats(0.0, 1000.0),
        "cap": shares,
        "together": shares,
        "halfLifeSeconds": st.sampled_from([1e-9, 1.0, 2_419_200.0]),
        "firstSeen": moments,
        "lastSeen": moments,
        "count": st.integers(-(2**63), 2**63 - 1),
        "message": texts,
        "reports": st.lists(reports, max_size=3),
        "gone": st.booleans(),
        "silenceClears": st.booleans(),
        "namespace": texts,
        "began": moments,
    },
)
episodes = st.fixed_dictionaries(
    {"state": states, "start": moments, "score": shares}, optional={"end": moments}
)
whose = st.sampled_from(
    [
        {},
        {"unit": {"resource": "nvidia.com/gpu", "id": "GPU-1"}},
        {"unit": {"resource": "", "id": "", "otherNames": ["", "a"]}},
        {"device": {"driver": "d", "pool": "p", "name": "x"}},
    ]
)
subjects = st.builds(
    lambda about, said: {**about, **said},
    whose,
    st.fixed_dictionaries(
        {"state": states, "score": shares},
        optional={
            "provenScore": shares,
            "since": moments,
            "evidence": st.lists(evidence, max_size=3),
            "episodes": st.lists(episodes, max_size=3),
            "faults": st.lists(moments, max_size=8),
        },
    ),
)
counts = st.sampled_from([0, 1, 8, 999_999])
names = st.sampled_from([b.RESOURCE, b.DRIVER, "", "a/b"])
most = st.fixed_dictionaries(
    {"since": moments},
    optional={
        "labels": st.lists(st.fixed_dictionaries({"key": texts}, optional={"value": texts})),
        "counts": st.lists(st.fixed_dictionaries({"name": names, "number": counts})),
    },
)
missing = st.fixed_dictionaries(
    {"name": names, "expected": counts, "since": moments},
    optional={"found": counts, "source": texts},
)
statuses = st.fixed_dictionaries(
    {
        "state": states,
        "score": shares,
        "subjects": st.lists(subjects, max_size=4),
        "observedTime": st.sampled_from(["1970-01-12T13:46:30Z", "1970-01-12T13:46:40Z"]),
    },
    optional={
        "bootID": st.just("boot-1"),
        "rebooted": moments,
        "remediation": moments,
        "remediated": st.lists(texts),
        "mostDevices": most,
        "missing": st.lists(missing, max_size=3),
    },
)


def signed(status: dict[str, Any]) -> DeviceHealth:
    made = msgspec.convert({**status, "nodeName": "n", "nodeUID": "1"}, DeviceHealthStatus)
    whole = {"metadata": {"name": "n"}, "status": msgspec.to_builtins(made)}
    whole["status"]["checksum"] = made.true_checksum
    read = kinds.DEVICE_HEALTH.decode(msgspec.json.encode(whole))
    assert isinstance(read, DeviceHealth)
    assert read.is_ours
    return read


@given(statuses, st.booleans(), st.lists(st.floats(-7200, 90_000), max_size=3))
def test_a_forged_memory_stays_in_bounds_and_can_be_stored_and_explained(
    status: dict[str, Any], starting: bool, steps: list[float]
) -> None:
    fleet = Fleet()
    if not starting:
        fleet.put(kinds.NODE, uid(node()))
        fleet.look()
    fleet.inventory.put(kinds.DEVICE_HEALTH, signed(status), fleet.now)
    fleet.put(kinds.NODE, uid(node(status={"nodeInfo": {"bootID": "boot-1"}})))
    fleet.put(kinds.POD, saying.refused())
    for step in (0.0, *steps):
        fleet.now += step
        health = fleet.look().nodes["n"].health
        assert 0.0 <= health.score <= health.proven <= 1.0
        assert all(0.0 <= w.weight <= 1.0 for w in health.evidence)
        for one in fleet.view.nodes["n"].missing:
            assert one.found < one.expected <= 999_999
            assert one.since is not None
            assert one.since <= fleet.now
        explained = explain_node("n", fleet.view, fleet.inventory, fleet.now)
        assert len(msgspec.json.encode(explained)) < LARGEST_BYTES
        stored = fleet.inventory.recall("n", None, fleet.now)
        assert stored is not None
        assert stored.is_ours
        assert len(msgspec.json.encode(stored)) < LARGEST_BYTES
