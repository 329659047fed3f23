"""What is stored of nodes and pools, and an inventory that starts with it."""

from typing import Any

import msgspec

from fettle.api import DeviceHealth, kinds
from fettle.model import Health, State
from tests.fettle.cluster.inventory import saying
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_

Raw = dict[str, Any]
LOST: Raw = {"taints": [{"key": "gaudi.intel.com/unhealthy", "value": "x", "effect": "NoExecute"}]}


def uid(raw: Raw, uid: str = "1") -> Raw:
    raw["metadata"]["uid"] = uid
    return raw


def stored(fleet: Fleet, name: str = "n", before: DeviceHealth | None = None) -> DeviceHealth:
    """What is written of a node, as it is read again."""
    found = fleet.inventory.recall(name, before, fleet.now)
    assert found is not None
    return read(found)


def read(health: DeviceHealth) -> DeviceHealth:
    decoded = kinds.DEVICE_HEALTH.decode(msgspec.json.encode(health))
    assert isinstance(decoded, DeviceHealth)
    return decoded


def started(health: DeviceHealth, *objects: tuple[kinds.Kind, Raw], after_s: float = 5) -> Fleet:
    """A process that starts some seconds later."""
    fleet = Fleet()
    fleet.now += after_s
    fleet.inventory.put(kinds.DEVICE_HEALTH, health, fleet.now)
    for kind, raw in objects:
        fleet.put(kind, raw)
    fleet.look()
    return fleet


def device(fleet: Fleet, name: str = "gpu-0") -> Health:
    (pool,) = fleet.view.nodes["n"].pools
    return next(d.health for d in pool.devices if d.id.device == name)


def test_a_device_whose_taint_was_removed_meanwhile_has_a_trace() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.SLICE, slice_(**LOST))
    fleet.look()
    assert device(fleet).state is not State.HEALTHY
    again = started(stored(fleet), (kinds.NODE, uid(node())), (kinds.SLICE, slice_()))
    fleet.now += 5
    fleet.put(kinds.SLICE, slice_())
    fleet.look()
    assert abs(device(again).score - device(fleet).score) < 0.01
    assert device(again).score < 1.0
    once_more = started(stored(fleet), (kinds.NODE, uid(node())), (kinds.SLICE, slice_()))
    assert abs(device(once_more).score - device(fleet).score) < 0.01
    assert abs(device(once_more).since - device(fleet).since) < 0.01


def test_what_was_stored_of_another_node_or_a_device_that_is_gone_is_forgotten() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.SLICE, slice_(**LOST))
    fleet.put(kinds.POD, saying.refused())
    fleet.look()
    assert fleet.view.nodes["n"].health.score < 1.0
    kept = stored(fleet)
    replaced = uid(node(creationTimestamp="1970-01-12T13:46:50Z"), "2")
    other = started(kept, (kinds.NODE, replaced), (kinds.SLICE, slice_()), after_s=60)
    assert other.view.nodes["n"].health.score == 1.0
    assert device(other).score == 1.0
    absent = started(kept, (kinds.NODE, uid(node())))
    absent.put(kinds.SLICE, slice_())
    absent.look()
    assert device(absent).score == absent.view.nodes["n"].health.score


def test_a_refused_pod_that_is_still_there_is_not_counted_twice() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.POD, saying.refused())
    before = fleet.look().nodes["n"].health
    assert before.score < 1.0
    again = started(
        stored(fleet), (kinds.NODE, uid(node())), (kinds.POD, saying.refused()), after_s=0
    )
    assert again.view.nodes["n"].health.score == before.score


def test_a_pool_on_no_node_has_an_object_of_its_own() -> None:
    def far(**more: Any) -> Raw:
        made: Raw = slice_(**more)
        del made["spec"]["nodeName"]
        made["spec"] |= {"allNodes": True, "pool": {**made["spec"]["pool"], "name": "rack/1"}}
        return made

    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.SLICE, far(**LOST))
    fleet.look()
    (pool,) = fleet.inventory.recall_pools({}, fleet.now)
    assert pool.metadata.name.startswith("gpu.example.com.rack.1-")
    assert pool.status.worst == "gpu.example.com/rack/1/gpu-0"
    again = started(read(pool), (kinds.NODE, uid(node())), (kinds.SLICE, far()))
    assert 0.5 < device(again).score < 1.0


def test_an_edited_copied_or_future_object_counts_for_nothing() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.POD, saying.refused())
    fleet.look()
    kept = stored(fleet)
    other_name = msgspec.structs.replace(
        kept, metadata=msgspec.structs.replace(kept.metadata, name="m")
    )
    edited = msgspec.structs.replace(
        kept, status=msgspec.structs.replace(kept.status, message="all is well")
    )
    for bad, after_s in ((other_name, 5.0), (edited, 5.0), (kept, -3600.0)):
        again = started(bad, (kinds.NODE, uid(node())), after_s=after_s)
        assert again.view.nodes["n"].health.score == 1.0
    assert started(kept, (kinds.NODE, uid(node()))).view.nodes["n"].health.score < 1.0


def test_a_big_ill_node_is_stored_within_the_bound() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    long = {"key": "gaudi.intel.com/unhealthy", "effect": "NoExecute"}
    taints = [{**long, "key": f"example.com/{'x' * 50}{i}", "value": "y" * 60} for i in range(16)]
    fleet.put(kinds.SLICE, slice_(devices=128, taints=[long, *taints]))
    fleet.look()
    kept = stored(fleet)
    assert len(msgspec.json.encode(kept)) < 300_000
    assert len(kept.status.subjects) == 128
    assert kept.is_ours


def test_what_arrives_about_an_earlier_node_of_the_name_counts_for_nothing() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.POD, saying.refused())
    fleet.look()
    kept = stored(fleet)
    for its_uid, is_same in (("1", True), ("2", False)):
        later = Fleet()
        later.put(kinds.NODE, uid(node(), its_uid))
        later.look()
        later.inventory.put(kinds.DEVICE_HEALTH, kept, later.now)
        assert (later.look().nodes["n"].health.score < 1.0) is is_same


def test_episodes_are_stored_for_28_days() -> None:
    day_s = 86_400.0
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.SLICE, slice_(**LOST))
    fleet.look()
    kept = stored(fleet)
    fleet.put(kinds.SLICE, slice_())
    for later_days, are_stored in ((3, True), (24, True), (5, False)):
        fleet.now += later_days * day_s
        fleet.look()
        kept = stored(fleet, before=kept)
        assert any(one.episodes for one in kept.status.subjects) is are_stored


def divided(gpus: int, parts: int, **gpu: Any) -> Raw:
    """GPUs, each with as many parts, as NVIDIA's driver publishes all that could be made."""
    made: Raw = slice_(devices=0)
    for number in range(gpus):
        uuid = {"string": f"GPU-{number}"}
        whole = {"name": f"gpu-{number}", "attributes": {"uuid": uuid}, **gpu}
        mig = {"type": {"string": "mig"}, "parentUUID": uuid}
        made["spec"]["devices"] += [
            whole,
            *({"name": f"gpu-{number}-mig-{i}", "attributes": mig} for i in range(parts)),
        ]
    return made


def test_a_part_is_after_a_restart_as_if_there_had_been_none() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.SLICE, divided(1, 1, **LOST))
    fleet.look()
    assert device(fleet, "gpu-0-mig-0").state is State.UNHEALTHY
    sound = divided(1, 1)
    again = started(stored(fleet), (kinds.NODE, uid(node())), (kinds.SLICE, sound))
    fleet.now += 5
    fleet.put(kinds.SLICE, sound)
    fleet.look()
    healths = [device(one, "gpu-0-mig-0") for one in (fleet, again)]
    assert [health.state for health in healths] == [State.HEALTHY] * 2
    assert abs(healths[0].score - healths[1].score) < 0.01


def test_what_is_ill_along_with_its_whole_displaces_no_evidence_where_not_all_fits() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, uid(node()))
    fleet.put(kinds.SLICE, divided(8, 100, **LOST))
    fleet.look()
    with_evidence = [one for one in stored(fleet).status.subjects if one.evidence]
    assert len(with_evidence) == 8
