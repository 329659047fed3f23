"""Nodes that have fewer devices than expected: for how long they have, and when that is no loss."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fettle.api import core, kinds
from fettle.api.own_group import StoredCount
from fettle.cluster.inventory.device_healths import LARGEST_BYTES
from fettle.cluster.inventory.missing_devices import HIDES_S, Has, MissingDevices
from fettle.cluster.view import PluginView, Shortage
from fettle.config import HealthSettings
from fettle.config.settings import ExpectedDevicesSettings
from fettle.steward.device_healths import is_as_good
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, node, slice_
from tests.fettle.cluster.inventory.test_device_healths import started, stored, uid
from tests.fettle.cluster.inventory.test_expected_devices import GFD, MIXED

GPU = b.RESOURCE
NVIDIA = "nvidia.com/gpu"
MIG_1G, MIG_3G = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
AFTER_S = 600.0
GFD_CONFIG = "nvidia.com/device-plugin.config"
TYPE = "node.kubernetes.io/instance-type"


def put(fleet: Fleet, **more: Any) -> tuple[Shortage, ...]:
    """What node `n` misses once it is so; `boot` is its boot ID."""
    boot = more.pop("boot", "boot-1")
    status = {"conditions": more.pop("conditions", [])}
    raw = node(**more, status={"nodeInfo": {"bootID": boot}, **status})
    fleet.put(kinds.NODE, raw)
    return fleet.look().nodes[raw["metadata"]["name"]].missing


def told(missing: tuple[Shortage, ...]) -> list[tuple[str, int, int, str]]:
    return [(one.name, one.found, one.expected, one.source) for one in missing]


@pytest.fixture
def old(fleet: Fleet) -> Fleet:
    """A node that has had eight GPUs for longer than a plugin needs to start."""
    put(fleet)
    fleet.now += AFTER_S
    put(fleet, annotations={"x": "y"})
    return fleet


def test_a_plugin_that_restarted_without_a_lost_gpu_has_had_more_since_the_boot(old: Fleet) -> None:
    [one] = put(old, gpus=7)
    assert told((one,)) == [(GPU, 7, 8, "the most since its boot")]
    assert one.lost_at == old.now + AFTER_S


def test_units_that_a_plugin_has_withdrawn_are_missing(fleet: Fleet) -> None:
    assert told(put(fleet, allocatable=0)) == [(GPU, 0, 8, "the most since its boot")]
    assert not put(fleet, allocatable=8)


def test_what_is_missing_changes_neither_health_nor_what_can_be_allocated(old: Fleet) -> None:
    old.put(kinds.NODE, node("sound", gpus=7))
    put(old, gpus=7)
    at = old.view.nodes
    assert at["n"].missing
    assert (at["n"].health, at["n"].plugins) == (at["sound"].health, at["sound"].plugins)


def test_a_plugin_that_restarts_is_back_before_anything_is_lost(old: Fleet) -> None:
    before = put(old, allocatable=0)
    old.now += 60
    assert put(old, allocatable=0, labels={"x": "y"})[0].since == before[0].since
    assert not put(old)
    old.now += 60
    assert put(old, allocatable=0)[0].since == old.now


def test_after_a_reboot_the_node_starts_anew(old: Fleet) -> None:
    assert put(old, gpus=7)
    assert not put(old, gpus=7, boot="boot-2")


def test_labels_say_how_many_before_any_was_seen(fleet: Fleet) -> None:
    raw = {"metadata": {"name": "n", "labels": GFD}, "status": {}}
    fleet.put(kinds.NODE, raw)
    [one] = fleet.look().nodes["n"].missing
    assert told((one,)) == [(NVIDIA, 0, 8, "label nvidia.com/gpu.count")]
    assert one.lost_at == fleet.now + AFTER_S


def test_while_mig_devices_are_made_nothing_is_missing_and_afterwards_others_are_expected(
    old: Fleet,
) -> None:
    pending = {**MIXED, "nvidia.com/mig.config.state": "pending"}
    assert not put(old, gpus=0, labels=pending)
    old.now += 2 * AFTER_S
    amounts = {"nvidia.com/mig-1g.10gb": "56"}
    status = {"capacity": amounts, "allocatable": amounts}
    raw = {"metadata": {"name": "n", "labels": MIXED}, "status": status}
    old.put(kinds.NODE, raw)
    assert not old.look().nodes["n"].missing


def test_a_plugin_may_follow_its_new_configuration_later_than_labels(old: Fleet) -> None:
    by_four = {"nvidia.com/device-plugin.config": "by-four"}
    put(old, gpus=32, labels=by_four)
    old.now += AFTER_S
    put(old, gpus=32, labels={**by_four, "x": "y"})
    whole = {"nvidia.com/device-plugin.config": "whole"}
    put(old, gpus=32, labels=whole)
    old.now += 60
    assert not put(old, gpus=8, labels=whole)


def test_labels_that_go_with_the_gpus_take_no_memory_with_them(fleet: Fleet) -> None:
    labels = {"nvidia.com/gpu.replicas": "1"}
    put(fleet, labels=labels)
    fleet.now += AFTER_S
    put(fleet, labels={**labels, "x": "y"})
    assert told(put(fleet, gpus=0)) == [(GPU, 0, 8, "the most since its boot")]


def test_peers_of_one_type_and_pool_show_what_is_missing(fleet: Fleet) -> None:
    for name, gpus in (("n", 7), ("a", 8), ("b", 8), ("c", 8)):
        put(fleet, name=name, gpus=gpus, labels={TYPE: "p5", "karpenter.sh/nodepool": "x"})
    put(fleet, name="other", gpus=4, labels={TYPE: "p5", "karpenter.sh/nodepool": "y"})
    fleet.look()
    expected = [(GPU, 7, 8, "what most nodes of its type and pool have")]
    assert told(fleet.view.nodes["n"].missing) == expected
    assert not fleet.view.nodes["other"].missing


@pytest.mark.parametrize(
    "pool",
    [
        "nebius.com/node-group-id",
        "oke.oraclecloud.com/pool.name",
        "cloud.google.com/gke-max-shared-clients-per-gpu",
        "cloud.google.com/gke-gpu-partition-size",
    ],
)
def test_nodes_of_other_pools_and_sharing_are_no_peers(fleet: Fleet, pool: str) -> None:
    for name, gpus in (("n", 4), ("a", 8), ("b", 8), ("c", 8)):
        labels = {TYPE: "gpu-h100", pool: "small" if name == "n" else "large"}
        put(fleet, name=name, gpus=gpus, labels=labels)
    assert not fleet.look().nodes["n"].missing


@pytest.mark.parametrize(("pool", "lost"), [({}, 0), ({"karpenter.sh/nodepool": "x"}, 4)])
def test_machines_of_one_name_outside_of_pools_have_what_gpu_feature_discovery_counts(
    fleet: Fleet, pool: dict[str, str], lost: int
) -> None:
    """A pool is built alike; after a reboot it alone tells of a GPU that was lost before."""
    machine = {"nvidia.com/gpu.machine": "SYS-420GP", **pool}
    for name, gpus in (("a", 8), ("b", 8), ("c", 8), ("n", 4)):
        counted = {"nvidia.com/gpu.count": str(gpus)}
        units = {NVIDIA: gpus}
        put_nvidia(fleet, units, name, labels={TYPE: "k3s", **machine, **counted})
    assert sum(one.expected - one.found for one in fleet.look().nodes["n"].missing) == lost


@pytest.mark.parametrize("lacking", [f"n{i}" for i in range(5)])
def test_the_first_view_knows_all_peers_whichever_node_is_looked_at_first(
    fleet: Fleet, lacking: str
) -> None:
    fleet.put(kinds.NODE, node("unlabelled"))
    for name in (f"n{i}" for i in range(5)):
        fleet.put(kinds.NODE, node(name, gpus=8 - (name == lacking), labels={TYPE: "p5"}))
    found = {name: told(one.missing) for name, one in fleet.look().nodes.items() if one.missing}
    assert found == {lacking: [(GPU, 7, 8, "what most nodes of its type and pool have")]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({NVIDIA: 8}, {NVIDIA: 0, MIG_3G: 16}),
        ({MIG_1G: 7, MIG_3G: 2}, {MIG_1G: 0, MIG_3G: 4}),
        ({NVIDIA: 8}, {NVIDIA: 0, f"{NVIDIA}.shared": 80}),
    ],
    ids=["divided", "divided in another way", "shared"],
)
def test_gpus_that_somebody_divides_by_hand_are_not_missing(
    fleet: Fleet, before: dict[str, int], after: dict[str, int]
) -> None:
    """No label says so. The peers have what it had."""
    put_nvidia(fleet, before, "n", "a", "b")
    fleet.now += AFTER_S
    put_nvidia(fleet, before, "n", "a", "b", note="later")
    put_nvidia(fleet, after, "n")
    assert not fleet.view.nodes["n"].missing
    put_nvidia(fleet, {**after, max(after): after[max(after)] - 1}, "n")
    assert [one.name for one in fleet.view.nodes["n"].missing] == [max(after)]


@pytest.mark.parametrize("factor", [4, 8])
def test_gpus_that_are_no_longer_shared_are_not_missing(fleet: Fleet, factor: int) -> None:
    """No label says so. Meanwhile the plugin restarts, and what it offered is withdrawn."""
    shared, whole = {NVIDIA: 4 * factor, "a.b/nic": 3}, {NVIDIA: 4, "a.b/nic": 3}
    put_nvidia(fleet, shared, "n")
    fleet.now += AFTER_S
    put_nvidia(fleet, shared, "n", note="later")
    put_nvidia(fleet, shared, "n", allocatable=dict.fromkeys(shared, "0"))
    assert fleet.view.nodes["n"].missing
    put_nvidia(fleet, whole, "n")
    assert not fleet.view.nodes["n"].missing
    put_nvidia(fleet, {**whole, NVIDIA: 3}, "n")
    assert told(fleet.view.nodes["n"].missing) == [(NVIDIA, 3, 4, "the most since its boot")]


@pytest.mark.parametrize(
    "seen",
    [
        [{NVIDIA: 2}, {NVIDIA: 1}],  # one device
        [{NVIDIA: 8}, {NVIDIA: 0}],
        [{NVIDIA: 8}, {NVIDIA: 5}],
        [{NVIDIA: 8}, {NVIDIA: 6}, {NVIDIA: 4}],  # one after the other
        [{MIG_1G: 8, MIG_3G: 4}, {MIG_1G: 4, MIG_3G: 4}],
        [{MIG_1G: 8, MIG_3G: 4}, {MIG_1G: 4, MIG_3G: 1}],
    ],
)
def test_gpus_that_became_fewer_otherwise_are_lost(
    fleet: Fleet, seen: list[dict[str, int]]
) -> None:
    put_nvidia(fleet, seen[0], "n")
    fleet.now += AFTER_S
    put_nvidia(fleet, seen[0], "n", note="later")
    for units in seen[1:]:
        put_nvidia(fleet, units, "n")
    assert told(fleet.view.nodes["n"].missing)[0][1:3] == tuple(
        next((units[what], seen[0][what]) for what in units if units[what] < seen[0][what])
    )


@pytest.mark.parametrize(
    "work",
    [
        {"conditions": [{"type": "MaintenanceInProgress", "status": "True"}]},
        {"annotations": {"weave.works/kured-reboot-in-progress": "2026-11-29T10:00:00Z"}},
        {"labels": {"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}},
        {"labels": {"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}},
    ],
    ids=["condition", "annotation", "upgrade", "paused"],
)
def test_while_somebody_works_on_a_node_nothing_is_missing(
    old: Fleet, work: dict[str, Any]
) -> None:
    assert put(old, gpus=7, **work) == ()
    old.now += 10 * AFTER_S
    assert put(old, gpus=7, **work) == ()
    [one] = put(old, gpus=7)
    assert (one.found, one.expected, one.since) == (7, 8, old.now)


@pytest.mark.parametrize(
    "work",
    [
        {"conditions": [{"type": "MaintenanceInProgress", "status": "True"}]},
        {"labels": {"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}},
        {"labels": {"nvidia.com/mig.config.state": "pending"}},
        {"labels": {"nvidia.com/mig.config.state": "failed"}},
    ],
    ids=["condition", "upgrade", "mig pending", "mig failed"],
)
def test_work_that_is_stuck_hides_no_loss_for_ever(old: Fleet, work: dict[str, Any]) -> None:
    """Of the memory of a change nothing is left: an operator's word says what there should be."""
    expected = {"fettle.dev/expected-devices": f"{GPU}=8"}
    assert put(old, gpus=7, annotations=expected, **work) == ()
    old.now += HIDES_S - 60
    assert put(old, gpus=7, annotations=expected, **work) == ()
    old.now += 120
    [one] = old.look().nodes["n"].missing  # by time alone
    assert (one.found, one.expected, one.lost_at) == (7, 8, old.now + AFTER_S)


def test_a_change_that_begins_again_and_again_hides_no_loss_for_ever(old: Fleet) -> None:
    """Each attempt is told of in turn, and some reboot the node."""
    state, expected = "nvidia.com/mig.config.state", {"fettle.dev/expected-devices": f"{GPU}=8"}
    turns = [("pending", "boot-1"), ("rebooting", "boot-1"), ("failed", "boot-2")]
    for said, boot in [turn for _ in range(5) for turn in turns]:
        plugin = "true" if said == "failed" else "paused-for-mig-change"
        labels = {state: said, "nvidia.com/gpu.deploy.device-plugin": plugin}
        assert put(old, gpus=7, annotations=expected, labels=labels, boot=boot) == ()
        old.now += HIDES_S / 15
    labels |= {state: "pending", "nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}
    [one] = put(old, gpus=7, annotations=expected, labels=labels, boot="boot-2")
    assert (one.found, one.expected) == (7, 8)
    labels["nvidia.com/gpu-driver-upgrade-state"] = "pod-restart-required"
    assert put(old, gpus=7, annotations=expected, labels=labels, boot="boot-2") == ()
    put(old, gpus=7, annotations=expected, labels={state: "success"}, boot="boot-2")
    assert put(old, gpus=7, annotations=expected, labels={state: "pending"}, boot="boot-2") == ()


def test_work_that_goes_on_hides_a_loss_longer(old: Fleet) -> None:
    state = "nvidia.com/gpu-driver-upgrade-state"
    put(old, gpus=7, labels={state: "drain-required"})
    old.now += HIDES_S - 60
    put(old, gpus=7, labels={state: "pod-restart-required"})
    old.now += HIDES_S - 60
    assert old.look().nodes["n"].missing == ()


@pytest.mark.parametrize("state", ["upgrade-required", "upgrade-done", "upgrade-failed"])
def test_what_is_only_planned_or_over_hides_no_loss(old: Fleet, state: str) -> None:
    planned = [{"type": "MaintenancePlanned", "status": "True"}]
    labels = {"nvidia.com/gpu-driver-upgrade-state": state}
    [one] = put(old, gpus=7, conditions=planned, labels=labels)
    assert one.found == 7


def test_partitions_of_amd_gpus_are_others_and_none_is_missing(fleet: Fleet) -> None:
    """As ROCm's device plugin names resources with the strategy `mixed`."""
    profile, state = "dcm.amd.com/gpu-config-profile", "dcm.amd.com/gpu-config-profile-state"
    whole = {"amd.com/spx_nps1": "8", "amd.com/cpx_nps4": "0"}
    parts = {"amd.com/spx_nps1": "0", "amd.com/cpx_nps4": "64"}
    labels = {"amd.com/compute-memory-partition": "spx_nps1"}
    for units, said in (
        (whole, labels),
        (whole, {**labels, "x": "y"}),
        (whole, {**labels, profile: "cpx"}),
        ({}, {**labels, profile: "cpx", state: "failure"}),
        (parts, {**labels, profile: "cpx", state: "success"}),
        (parts, {"amd.com/compute-memory-partition": "cpx_nps4"}),
    ):
        status = {"capacity": units, "allocatable": units, "nodeInfo": {"bootID": "b"}}
        fleet.put(kinds.NODE, {"metadata": {"name": "n", "labels": said}, "status": status})
        assert not fleet.look().nodes["n"].missing, said
        fleet.now += AFTER_S
    lost = {**parts, "amd.com/cpx_nps4": "56"}
    status = {"capacity": lost, "allocatable": lost, "nodeInfo": {"bootID": "b"}}
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "labels": said}, "status": status})
    assert told(fleet.look().nodes["n"].missing) == [
        ("amd.com/cpx_nps4", 56, 64, "the most since its boot")
    ]


def test_a_change_of_vgpus_makes_others_and_none_is_missing(fleet: Fleet) -> None:
    config, state = "nvidia.com/vgpu.config", "nvidia.com/vgpu.config.state"
    small, large = "nvidia.com/NVIDIA_A10-12Q", "nvidia.com/NVIDIA_A10-24Q"
    for said in (
        {config: "A10-12Q", state: "success"},
        {config: "A10-12Q", state: "success", "x": "y"},
        {config: "A10-24Q", state: "pending"},
        {config: "A10-24Q", state: "success"},
    ):
        there = {small: 0, large: 4} if "24Q" in said[config] else {small: 8}
        units = {one: str(number) for one, number in there.items()}
        status = {"capacity": units, "allocatable": units, "nodeInfo": {"bootID": "b"}}
        fleet.put(kinds.NODE, {"metadata": {"name": "n", "labels": said}, "status": status})
        assert not fleet.look().nodes["n"].missing
        fleet.now += AFTER_S


def put_nvidia(
    fleet: Fleet, units: dict[str, int], *names: str, note: str = "", **metadata: dict[str, str]
) -> None:
    """Nodes of one type have these units."""
    counted = {resource: str(number) for resource, number in units.items()}
    allocatable = metadata.pop("allocatable", counted)
    status = {"capacity": counted, "allocatable": allocatable, "nodeInfo": {"bootID": "b"}}
    labels = {TYPE: "p5", "note": note, **metadata.pop("labels", {})}
    for name in names:
        raw = {"metadata": {"name": name, "labels": labels, **metadata}, "status": status}
        fleet.put(kinds.NODE, raw)
    fleet.look()


def test_a_node_whose_dra_driver_has_never_started_lacks_what_its_peers_have(fleet: Fleet) -> None:
    labels = {TYPE: "p5"}
    fleet.put(kinds.NODE, {"metadata": {"name": "unstarted", "labels": labels}})
    for name in ("a", "b"):
        fleet.put(kinds.NODE, {"metadata": {"name": name, "labels": labels}})
        fleet.put(kinds.SLICE, slice_(name, devices=8))
    fleet.look()
    missing = fleet.look().nodes["unstarted"].missing
    assert told(missing) == [(b.DRIVER, 0, 8, "what most nodes of its type and pool have")]


def test_a_node_without_devices_is_looked_at_again_when_peers_come(fleet: Fleet) -> None:
    put(fleet, name="unstarted", gpus=0, labels={TYPE: "p5"})
    fleet.put(kinds.NODE, {"metadata": {"name": "unstarted", "labels": {TYPE: "p5"}}})
    assert not fleet.look().nodes["unstarted"].missing
    for name in ("a", "b"):
        put(fleet, name=name, labels={TYPE: "p5"})
    fleet.look()
    assert told(fleet.view.nodes["unstarted"].missing) == [
        (GPU, 0, 8, "what most nodes of its type and pool have")
    ]


def test_nodes_without_devices_lack_none_because_some_of_their_type_have_them(
    fleet: Fleet,
) -> None:
    labels = {TYPE: "m5.large"}
    fleet.put(kinds.NODE, {"metadata": {"name": "cpu-0", "labels": labels}})
    put(fleet, name="odd", labels=labels)
    fleet.look()
    assert not fleet.look().nodes["cpu-0"].missing
    for name, gpus in (("odd-1", 8), ("odd-2", 8), ("odd-3", 7)):
        put(fleet, name=name, labels=labels, gpus=gpus)
    fleet.look()
    assert told(fleet.view.nodes["cpu-0"].missing) == [
        (GPU, 0, 8, "what most nodes of its type and pool have")
    ]
    for name in ("cpu-1", "cpu-2"):
        fleet.put(kinds.NODE, {"metadata": {"name": name, "labels": labels}})
    fleet.look()
    missing = {name: told(one.missing) for name, one in fleet.view.nodes.items() if one.missing}
    assert missing == {"odd-3": [(GPU, 7, 8, "what most nodes of its type and pool have")]}


@pytest.mark.parametrize(
    "labels",
    [
        {TYPE: "k3s"},
        {TYPE: "rke2"},
        {TYPE: "p5", "node-role.kubernetes.io/control-plane": "true"},
    ],
)
def test_what_a_distribution_calls_all_nodes_and_control_planes_make_no_peers(
    fleet: Fleet, labels: dict[str, str]
) -> None:
    fleet.put(kinds.NODE, {"metadata": {"name": "cpu", "labels": labels}})
    for name in ("a", "b", "c"):
        put(fleet, name=name, labels={TYPE: labels[TYPE]})
    fleet.look()
    assert not fleet.look().nodes["cpu"].missing


def test_gpus_that_a_device_plugin_gives_out_instead_of_a_dra_driver_are_not_missing(
    fleet: Fleet,
) -> None:
    published = slice_(devices=8)
    published["spec"]["driver"] = "gpu.nvidia.com"
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    fleet.put(kinds.SLICE, published)
    fleet.look()
    fleet.now += AFTER_S
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "annotations": {"x": "y"}}})
    fleet.look()
    fleet.inventory.remove(kinds.SLICE, "n-slice", fleet.now)
    assert [one.found for one in fleet.look().nodes["n"].missing] == [0]
    amounts = {NVIDIA: "8"}
    status = {"capacity": amounts, "allocatable": amounts}
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}, "status": status})
    assert not fleet.look().nodes["n"].missing


def test_once_three_nodes_have_less_by_another_configuration_none_of_them_lacks_it(
    fleet: Fleet,
) -> None:
    for gpus in (80, 80, 32):
        for name in ("a", "b", "c"):
            put(fleet, name=name, gpus=gpus, labels={TYPE: "p5"}, annotations={"x": f"{gpus}"})
        fleet.now += AFTER_S
    fleet.look()
    assert not [one.name for one in fleet.view.nodes.values() if one.missing]


def test_a_device_that_its_driver_no_longer_publishes_is_missing(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    fleet.put(kinds.SLICE, slice_(devices=8))
    fleet.look()
    fleet.now += AFTER_S
    fleet.put(kinds.SLICE, slice_(devices=8, generation=2))
    assert not fleet.look().nodes["n"].missing
    fleet.put(kinds.SLICE, slice_(devices=7, generation=3))
    missing = fleet.look().nodes["n"].missing
    assert told(missing) == [(b.DRIVER, 7, 8, "the most since its boot")]
    fleet.inventory.remove(kinds.SLICE, "n-slice", fleet.now)
    assert told(fleet.look().nodes["n"].missing)[0][1] == 0


def test_a_pool_that_is_not_whole_says_nothing_of_its_devices(fleet: Fleet) -> None:
    fleet.put(
        kinds.NODE, node(gpus=0, annotations={"fettle.dev/expected-devices": f"{b.DRIVER}=8"})
    )
    half = slice_(devices=4)
    half["spec"]["pool"]["resourceSliceCount"] = 2
    fleet.put(kinds.SLICE, half)
    assert not fleet.look().nodes["n"].missing


def test_a_pool_that_never_becomes_whole_hides_no_loss_for_ever(fleet: Fleet) -> None:
    fleet.put(
        kinds.NODE, node(gpus=0, annotations={"fettle.dev/expected-devices": f"{b.DRIVER}=8"})
    )
    half = slice_(devices=4)
    half["spec"]["pool"]["resourceSliceCount"] = 2
    fleet.put(kinds.SLICE, half)
    fleet.look()
    fleet.now += HIDES_S - 1
    assert not fleet.look().nodes["n"].missing
    fleet.now += 1
    [one] = fleet.look().nodes["n"].missing
    assert (one.found, one.expected, one.lost_at) == (4, 8, fleet.now + AFTER_S)
    half["spec"]["pool"] |= {"resourceSliceCount": 1, "generation": 2}
    fleet.put(kinds.SLICE, half)
    assert fleet.look().nodes["n"].missing
    half["spec"]["pool"] |= {"resourceSliceCount": 2, "generation": 3}
    fleet.put(kinds.SLICE, half)
    assert not fleet.look().nodes["n"].missing


def test_devices_of_slices_that_a_newer_generation_replaced_are_not_there(fleet: Fleet) -> None:
    fleet.put(
        kinds.NODE, node(gpus=0, annotations={"fettle.dev/expected-devices": f"{b.DRIVER}=8"})
    )
    left_behind, now = slice_(devices=8), slice_(devices=7, generation=2)
    left_behind["metadata"]["name"] = "left-behind"
    fleet.put(kinds.SLICE, left_behind)
    assert not fleet.look().nodes["n"].missing
    fleet.put(kinds.SLICE, now)
    assert [one.found for one in fleet.look().nodes["n"].missing] == [7]


def test_a_gpu_that_is_divided_is_still_there(fleet: Fleet) -> None:
    fleet.put(
        kinds.NODE, node(gpus=0, annotations={"fettle.dev/expected-devices": f"{b.DRIVER}=2"})
    )
    raw = slice_(devices=0)
    parts = [
        {
            "name": f"gpu-1-mig-{i}",
            "attributes": {"type": {"string": "mig"}, "parentUUID": {"string": "GPU-1"}},
        }
        for i in range(7)
    ]
    whole = {"type": {"string": "gpu"}, "uuid": {"string": "GPU-0"}}
    raw["spec"]["devices"] = [{"name": "gpu-0", "attributes": whole}, *parts]
    fleet.put(kinds.SLICE, raw)
    assert not fleet.look().nodes["n"].missing
    raw["spec"]["devices"] = raw["spec"]["devices"][1:]
    fleet.put(kinds.SLICE, raw)
    assert told(fleet.look().nodes["n"].missing)[0][1:3] == (1, 2)


def test_a_gpu_that_is_published_for_containers_and_for_vms_is_one_gpu(fleet: Fleet) -> None:
    """As kubernetes-sigs/dra-driver-nvidia-gpu does with PassthroughSupport; while one of the two
    is in use, the other is not published."""
    fleet.put(
        kinds.NODE, node(gpus=0, annotations={"fettle.dev/expected-devices": f"{b.DRIVER}=2"})
    )
    raw = slice_(devices=0)

    def publish(*names: str) -> tuple[int, ...]:
        raw["spec"]["devices"] = [
            {
                "name": name,
                "attributes": {
                    "type": {"string": kind},
                    "uuid": {"string": f"{'GPU-' if kind == 'gpu' else ''}0000000{name[-1]}-9e1d"},
                    "resource.kubernetes.io/pciBusID": {"string": f"0000:0{name[-1]}:00.0"},
                },
            }
            for name in names
            for kind in ["vfio" if "vfio" in name else "gpu"]
        ]
        raw["spec"]["pool"]["generation"] += 1
        fleet.put(kinds.SLICE, raw)
        return tuple(one.found for one in fleet.look().nodes["n"].missing)

    assert publish("gpu-0", "gpu-vfio-0", "gpu-1", "gpu-vfio-1") == ()
    assert publish("gpu-vfio-0", "gpu-1", "gpu-vfio-1") == ()
    assert publish("gpu-0", "gpu-vfio-1") == ()
    assert publish("gpu-1", "gpu-vfio-1") == (1,)
    assert publish() == (0,)


def test_network_interfaces_come_and_go_and_only_an_operator_expects_them(fleet: Fleet) -> None:
    """kubernetes-sigs/dranet publishes each interface of the host's network namespace, virtual ones
    too, and in a pod it is none of them."""
    raw = slice_(devices=12)
    raw["spec"]["driver"] = "dra.net"
    fleet.put(kinds.NODE, {"metadata": {"name": "n"}})
    fleet.put(kinds.SLICE, raw)
    fleet.look()
    fleet.now += AFTER_S
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "annotations": {"x": "y"}}})
    fleet.look()
    raw["spec"]["devices"] = raw["spec"]["devices"][:3]
    fleet.put(kinds.SLICE, raw)
    assert not fleet.look().nodes["n"].missing
    said = {"fettle.dev/expected-devices": "dra.net=4"}
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "annotations": said}})
    assert [one.expected for one in fleet.look().nodes["n"].missing] == [4]


@pytest.mark.parametrize(
    "resource",
    [
        "smarter-devices/fuse",
        "devices.kubevirt.io/kvm",
        "vpc.amazonaws.com/pod-eni",
        "rdma/hca_shared_devices_a",
        "intel.com/sriov",
        "nvidia.com/gpumem",
        "volcano.sh/vgpu-number",
    ],
)
def test_what_somebody_configured_is_no_hardware_and_only_an_operator_expects_it(
    fleet: Fleet, resource: str
) -> None:
    put_nvidia(fleet, {NVIDIA: 8, resource: 20}, "n", "a", "b", "c")
    fleet.now += AFTER_S
    put_nvidia(fleet, {NVIDIA: 8, resource: 20}, "n", note="later")
    put_nvidia(fleet, {NVIDIA: 8, resource: 10}, "n")
    put_nvidia(fleet, {NVIDIA: 8}, "other")
    assert not fleet.view.nodes["n"].missing
    assert not fleet.view.nodes["other"].missing
    said = {"fettle.dev/expected-devices": f"{resource}=20"}
    assert [one.name for one in put(fleet, annotations=said)] == [resource]


@pytest.mark.parametrize("key", ["node-nvidia-register", "node-register-Ascend910B"])
def test_units_that_hami_multiplies_count_by_labels_and_an_operators_word_alone(
    fleet: Fleet, key: str
) -> None:
    hami, peers = {f"hami.io/{key}": "[]"}, ("n", "a", "b", "c")
    put_nvidia(fleet, {NVIDIA: 80}, *peers, annotations=hami)
    fleet.now += AFTER_S
    put_nvidia(fleet, {NVIDIA: 80}, *peers, annotations={**hami, "x": "y"})
    put_nvidia(fleet, {NVIDIA: 32}, "n", annotations=hami)
    assert not fleet.view.nodes["n"].missing
    put_nvidia(fleet, {NVIDIA: 32}, "n")
    assert fleet.view.nodes["n"].missing
    put_nvidia(fleet, {NVIDIA: 32, "nvidia.com/gpumem": 8192}, "n")
    assert not fleet.view.nodes["n"].missing
    put_nvidia(fleet, {NVIDIA: 7}, "n", annotations=hami, labels=GFD)
    assert [one.expected for one in fleet.view.nodes["n"].missing] == [8]
    said = {"fettle.dev/expected-devices": f"{NVIDIA}=40"}
    put_nvidia(fleet, {NVIDIA: 32}, "n", annotations={**hami, **said})
    assert [one.expected for one in fleet.view.nodes["n"].missing] == [40]


def test_a_row_of_the_settings_says_how_many_by_a_label() -> None:
    rows = (
        ExpectedDevicesSettings(label=f"{TYPE}=p5", devices={GPU: 8}),
        ExpectedDevicesSettings(label="a=b", devices={GPU: 9}),
    )
    fleet = Fleet(health=HealthSettings(missing_after_seconds=60, expected_devices=rows))
    [one] = put(fleet, gpus=7, labels={TYPE: "p5", "a": "b"})
    assert (one.expected, one.source) == (8, "health.expectedDevices")
    assert one.lost_at == fleet.now + 60
    assert not put(fleet, gpus=7, labels={TYPE: "p4"})


@pytest.mark.parametrize(
    "written",
    [
        "8",
        "nvidia.com/gpu",
        "nvidia.com/gpu=",
        "nvidia.com/gpu=eight",
        "nvidia.com/gpu=-1",
        "nvidia.com/gpu=1" + 30 * "0",
        "nvidia.com/gpu=٨",
        "nvidia.com/gpu=8,nvidia.com/gpu=7",
        "nvidia.com/gpu=8,",
        '{"nvidia.com/gpu": 8}',
        "x" * 200_000,
        "a.b/\x1b[31mred=1",
        "a.b/\u202e=1",
        "a.b/c\nd=1",
        "a.b/[red]=1",
        "a.b/c=1," * 20_000,
    ],
)
def test_an_annotation_that_cannot_be_read_counts_for_nothing_and_that_is_said(
    fleet: Fleet, written: str
) -> None:
    assert not put(fleet, gpus=7, annotations={"fettle.dev/expected-devices": written})
    [said] = fleet.view.nodes["n"].health.evidence
    assert said.weight == 0.0
    assert "counts for nothing: write a number for each resource" in said.evidence.said
    assert len(said.evidence.said) <= 240
    put(fleet, gpus=7, annotations={"fettle.dev/expected-devices": " example.com/gpu = 8 , a.b=2"})
    assert not fleet.view.nodes["n"].health.evidence
    found = [one[:3] for one in told(fleet.view.nodes["n"].missing)]
    assert found == [("a.b", 0, 2), (GPU, 7, 8)]


@pytest.mark.parametrize("written", ["eight", "", "-1", "8.0", "9" * 63])
def test_a_label_that_cannot_be_read_counts_for_nothing_and_that_is_said(
    fleet: Fleet, written: str
) -> None:
    assert not put(fleet, gpus=7, labels={"nvidia.com/gpu.count": written})
    [said] = fleet.view.nodes["n"].health.evidence
    assert said.weight == 0.0
    assert "counts for nothing: it must be a number, such as 8" in said.evidence.said
    assert len(said.evidence.said) <= 240
    put(fleet, gpus=7, labels={"nvidia.com/gpu.count": "8"})
    assert not fleet.view.nodes["n"].health.evidence


def test_of_a_node_that_cannot_be_read_whole_nothing_is_missing(fleet: Fleet) -> None:
    bad = node(gpus=7, annotations={"fettle.dev/expected-devices": f"{GPU}=8"})
    bad["status"]["conditions"] = "none"
    fleet.take(kinds.NODE, bad)
    assert not fleet.look().nodes["n"].missing


def test_once_a_node_can_be_read_whole_again_what_it_lacks_is_known_again(fleet: Fleet) -> None:
    lacking = node(gpus=7, annotations={"fettle.dev/expected-devices": f"{GPU}=8"})
    unread = {**lacking, "status": {**lacking["status"], "conditions": "none"}}
    for raw, is_known in ((unread, False), (lacking, True), (unread, True), (lacking, True)):
        fleet.take(kinds.NODE, raw)
        assert bool(fleet.look().nodes["n"].missing) == is_known


# -- what is stored


def restarted(fleet: Fleet, raw: dict[str, Any]) -> Fleet:
    """A process that starts a minute later with what this one stored of the node, and finds it like
    this."""
    return started(stored(fleet), (kinds.NODE, raw), after_s=fleet.now + 60.0 - Fleet().now)


def test_a_restart_does_not_let_a_change_that_is_stuck_hide_a_loss_anew(fleet: Fleet) -> None:
    said = {"fettle.dev/expected-devices": f"{GPU}=8"}
    raw = booted(7)
    raw["metadata"] |= {
        "labels": {"nvidia.com/mig.config.state": "failed"},
        "annotations": said,
    }
    fleet.put(kinds.NODE, raw)
    assert not fleet.look().nodes["n"].missing
    fleet.now += HIDES_S - 120
    fleet.look()
    later = restarted(fleet, raw)
    assert not later.look().nodes["n"].missing
    later.now += 120
    assert [one.found for one in later.look().nodes["n"].missing] == [7]


def booted(gpus: int, boot: str = "boot-1", **more: Any) -> dict[str, Any]:
    return uid(node(gpus=gpus, status={"nodeInfo": {"bootID": boot}}), **more)


def test_a_restart_of_fettle_forgets_neither_what_a_node_had_nor_since_when_it_lacks_that(
    old: Fleet,
) -> None:
    old.put(kinds.NODE, booted(7))
    [before] = old.look().nodes["n"].missing
    [after] = restarted(old, booted(7)).view.nodes["n"].missing
    assert after == before
    assert told((after,)) == [(GPU, 7, 8, "the most since its boot")]


def test_one_look_knows_since_when_devices_are_missing_if_that_is_stored(old: Fleet) -> None:
    old.put(kinds.NODE, booted(7))
    [before] = old.look().nodes["n"].missing
    reader = Fleet(looks_once=True)
    reader.now = old.now + 60
    reader.inventory.put(kinds.DEVICE_HEALTH, stored(old), reader.now)
    reader.put(kinds.NODE, booted(7))
    assert reader.look().nodes["n"].missing == (before,)


def test_what_is_lost_while_fettle_is_away_is_missing_when_it_starts(old: Fleet) -> None:
    old.put(kinds.NODE, booted(8))
    old.look()
    again = restarted(old, booted(7))
    assert told(again.view.nodes["n"].missing) == [(GPU, 7, 8, "the most since its boot")]
    assert again.view.nodes["n"].missing[0].since == again.now


@pytest.mark.parametrize(
    "found",
    [
        booted(7, boot="boot-2"),
        booted(7, uid="2"),  # another Node of the name
        {**booted(7), "metadata": {"name": "n", "uid": "1", "labels": {GFD_CONFIG: "other"}}},
    ],
)
def test_what_was_stored_of_another_boot_node_or_layout_counts_for_nothing(
    old: Fleet, found: dict[str, Any]
) -> None:
    old.put(kinds.NODE, booted(8))
    old.look()
    assert not restarted(old, found).view.nodes["n"].missing


def test_a_name_that_no_device_has_is_not_taken_from_what_is_stored(old: Fleet) -> None:
    old.put(kinds.NODE, booted(8))
    old.look()
    status = stored(old).status
    assert status.most_devices is not None
    bad = (StoredCount(name="\x1b[31mred.example.com/gpu", number=9),)
    most = msgspec.structs.replace(status.most_devices, counts=bad)
    forged = msgspec.structs.replace(status, most_devices=most)
    forged = msgspec.structs.replace(forged, checksum=forged.true_checksum)
    health = msgspec.structs.replace(stored(old), status=forged)
    after_s = old.now + 60.0 - Fleet().now
    again = started(health, (kinds.NODE, booted(8)), after_s=after_s)
    assert not again.view.nodes["n"].missing


def test_what_is_stored_says_what_is_missing_and_who_expects_it(old: Fleet) -> None:
    old.put(kinds.NODE, booted(7))
    old.look()
    status = stored(old).status
    assert status.most_devices is not None
    assert [(one.name, one.number) for one in status.most_devices.counts] == [(GPU, 8)]
    [one] = status.missing
    assert (one.name, one.found, one.expected) == (GPU, 7, 8)
    assert (one.source, one.since.timestamp()) == ("the most since its boot", old.now)
    assert (status.state, status.score) == ("Healthy", 1.0)
    again = restarted(old, booted(7))
    assert is_as_good(stored(old), again.inventory.recall("n", stored(old), again.now))


def test_a_node_that_never_had_a_device_is_stored_once_it_lacks_one(fleet: Fleet) -> None:
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "uid": "1"}})
    fleet.look()
    assert fleet.inventory.recall("n", None, fleet.now) is None
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "uid": "1", "labels": GFD}})
    fleet.look()
    assert stored(fleet).status.missing[0].found == 0


def test_a_node_of_ever_more_resources_is_shown_and_stored_within_the_bound(fleet: Fleet) -> None:
    amounts = {f"{'x' * 240}{i:06}.io/gpu": str(10**12) for i in range(2000)}
    status = {"capacity": amounts, "allocatable": dict.fromkeys(amounts, "0")}
    fleet.put(kinds.NODE, {"metadata": {"name": "n", "uid": "1"}, "status": status})
    fleet.look()
    health = stored(fleet)
    assert health.status.most_devices is not None
    assert len(health.status.most_devices.counts) == len(health.status.missing) == 64
    assert len(fleet.view.nodes["n"].missing) == 64
    assert len(msgspec.json.encode(health)) < LARGEST_BYTES


def has(resource: str, capacity: int, allocatable: int) -> Has:
    return Has((PluginView(resource, capacity, allocatable),))


STEPS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(-5000, 5000),
        st.sampled_from(("a", "b")),
        st.dictionaries(
            st.sampled_from([*GFD, "fettle.dev/x"]), st.sampled_from(["8", "1", "", "failed"])
        ),
    ),
    max_size=20,
)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 9))
def test_nothing_is_missing_where_there_is_what_is_expected_whatever_the_clock_does(
    steps: list[tuple[int, int, float, str, dict[str, str]]], word: int
) -> None:
    known, now = MissingDevices(HealthSettings()), 0.0
    annotations = {"fettle.dev/expected-devices": f"{GPU}={word}"}
    for capacity, allocatable, by, boot, labels in steps:
        now += by
        n = msgspec.convert(
            {
                "metadata": {"name": "n", "labels": labels, "annotations": annotations},
                "status": {"nodeInfo": {"bootID": boot}},
            },
            core.Node,
        )
        for one in known.look(n, has(GPU, capacity, allocatable), now):
            assert one.found < one.expected
            if one.name == GPU:
                assert one.found == min(capacity, allocatable)
                assert one.expected == word
            assert one.since is not None
            assert one.since <= now
            assert one.lost_at - one.since == AFTER_S
