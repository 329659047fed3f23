"""One node or device: all that is known, and what has to happen for it to be Healthy again."""

from typing import Any

import msgspec
import pytest

from fettle.api import kinds
from fettle.cli import explaining
from fettle.explain import explain_device, explain_node, list_nodes
from fettle.explain.recoveries import all_clear_of
from fettle.health import BY_RESOLUTION, Awaited
from fettle.model import (
    Evidence,
    EvidenceKind,
    Family,
    ReporterId,
    Source,
    SourceKind,
    Standing,
    UnitId,
    reasons,
)
from tests.fettle import building as b
from tests.fettle.cluster.inventory import saying
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node, slice_
from tests.fettle.cluster.inventory.test_starts import with_claim
from tests.fettle.health.signals.objects import condition

UUID = "GPU-1a2b3c4d-0000-1111-2222-333344445555"


def explained_node(fleet: Fleet, name: str = "n") -> dict[str, Any]:
    view = fleet.look()
    return {**explain_node(name, view, fleet.inventory, fleet.now), "problems": []}


def explained_device(fleet: Fleet, name: str) -> dict[str, Any]:
    view = fleet.look()
    return {
        **explain_device(name, view, fleet.inventory, fleet.now),
        "problems": [],
    }


def with_conditions(*conditions: Any, **more: Any) -> Any:
    raw = node("n", **more)
    raw["status"]["conditions"] = list(conditions)
    return raw


def again(explained: dict[str, Any]) -> str:
    text: str = explained["healthyAgain"]["text"]
    return text


def test_a_latched_condition_says_which_status_clears_it() -> None:
    """A reboot alone does not: the condition may still be there after it."""
    fleet = Fleet()
    lost = condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", at=fleet.now - 60)
    fleet.put(kinds.NODE, with_conditions(lost))
    found = explained_node(fleet)
    assert (found["state"], found["score"]) == ("Unhealthy", 0.0)
    assert again(found) == (
        "Healthy again when this has happened: condition AcceleratedHardwareReady of Node n turns "
        "True"
    )
    (evidence,) = found["evidence"]
    assert evidence["ageSeconds"] == 60
    assert evidence["halfLifeSeconds"] is None
    (awaited,) = found["healthyAgain"]["awaits"]
    assert awaited["source"] == "condition AcceleratedHardwareReady"


def test_a_rule_that_the_breaker_set_aside_is_shown_where_it_is_among_the_evidence() -> None:
    fleet = Fleet()
    lost = condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", at=fleet.now - 60)
    fleet.put(kinds.NODE, with_conditions(lost))
    view = fleet.look()
    rules = {one.evidence.source for one in view.nodes["n"].health.evidence}
    assert len(rules) == 1
    aside = [
        reasons.RuleSetAside(rule, "nvidia.com/gpu", ("training",), 8, 16, 0.2)
        for rule in (*rules, Source(SourceKind.TAINT, "another"))
    ]
    explained = explain_node("n", view, fleet.inventory, fleet.now, aside)
    assert [one["rule"] for one in explained["setAside"]] == [*map(str, rules)]


def test_a_condition_that_is_removed_after_a_reboot_says_so() -> None:
    """GKE's plugin never sets it to False."""
    fleet = Fleet()
    lost = condition("XidCriticalError", "True", '{"79":true}', "boot-1", at=fleet.now - 60)
    fleet.put(kinds.NODE, with_conditions(lost))
    assert again(explained_node(fleet)) == (
        "Healthy again when this has happened: the node is rebooted: its monitor then removes "
        "condition XidCriticalError of Node n"
    )


def test_a_condition_that_no_rule_names_is_awaited_without_a_status() -> None:
    fleet = Fleet()
    said = "NVRM: Xid (PCI:0000:c1:00): 79, pid=1"
    fleet.put(kinds.NODE, with_conditions(condition("OurWatch", "True", "x", said)))
    assert "condition OurWatch of Node n no longer says it" in again(explained_node(fleet))


def test_what_is_said_of_a_device_and_of_its_node_is_shown_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = Fleet()
    said = "NVRM: Xid (PCI:0000:c1:00): 79, pid=1; XID 79 was seen"
    fleet.put(kinds.NODE, with_conditions(condition("XIDErrors", "True", "x", said)))
    fleet.put(
        kinds.SLICE,
        slice_(
            devices=1,
            attributes={"resource.kubernetes.io/pciBusID": {"string": "0000:c1:00.0"}},
        ),
    )
    found = explained_device(fleet, "gpu-0")
    explaining.print_device(found)
    lines = capsys.readouterr().out.splitlines()
    assert sum("XID 79: " in line for line in lines) == 1
    assert sum("condition XIDErrors of Node n turns False" in line for line in lines) == 1


def test_a_taint_a_hold_and_a_monitor_that_is_gone_each_say_what_ends_them() -> None:
    fleet = Fleet()
    taint = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
    held = with_conditions()
    held["metadata"]["annotations"] = {"fettle.dev/hold": "fan swap"}
    fleet.put(kinds.NODE, held)
    fleet.put(kinds.SLICE, slice_(devices=1, taints=[taint]))
    text = again(explained_device(fleet, "gpu-0"))
    assert "all of this has happened" in text
    assert "the hold ends (`fettle release n`): held by an operator: fan swap" in text
    assert "taint gpu.nvidia.com/xid is removed (ResourceSlice n-slice)" in text

    gone = Fleet()
    lost = condition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", at=gone.now - 60)
    gone.put(kinds.NODE, with_conditions(lost))
    gone.look()
    gone.put(kinds.NODE, with_conditions())
    assert "annotate the node with fettle.dev/repaired, or reboot it" in again(explained_node(gone))


def test_what_fades_says_when_it_is_healthy_again_by_itself() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    for name in ("a", "b"):
        fleet.put(kinds.POD, saying.refused(name))
    found = explained_node(fleet)
    assert found["state"] != "Healthy"
    assert found["evidence"][0]["halfLifeSeconds"] == 3600
    assert again(found).startswith("Healthy again by itself at about ")
    assert again(found).endswith(" UTC, if nothing more is reported")
    fleet.now = found["healthyAgain"]["at"] - 120
    assert explained_node(fleet)["state"] != "Healthy"


def test_what_is_unknown_waits_for_its_reporter() -> None:
    fleet = Fleet()
    silent = condition("Ready", "Unknown", "NodeStatusUnknown", at=fleet.now - 60)
    fleet.put(kinds.NODE, with_conditions(silent))
    found = explained_node(fleet)
    assert found["state"] == "Unknown"
    assert "Node n reports again what is known (condition Ready)" in again(found)


def test_a_healthy_node_with_its_devices_has_nothing_to_wait_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, with_conditions(condition("Strange", "True")))
    fleet.put(kinds.SLICE, slice_(devices=2))
    found = explained_node(fleet)
    assert (found["state"], found["healthyAgain"]) == ("Healthy", None)
    assert len(found["devices"]) == 2
    explaining.print_node(found)
    printed = capsys.readouterr().out
    assert "node n  Healthy 1.00" in printed
    assert "what no rule names: Strange is True" in printed
    assert found["marks"] is None


def test_the_first_line_of_a_node_counts_its_devices_by_state(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = Fleet()
    said = "ErrorCode:79 PCI:0000:c0:00.0 x Recommended Action=RESTART_BM;"
    ill = with_conditions(condition("SysLogsXIDError", "True", "x", said))
    gpus = {"nvidia.com/gpu": "8"}
    ill["status"] |= {"capacity": gpus, "allocatable": gpus}
    fleet.put(kinds.NODE, ill)
    found = explained_node(fleet)
    assert found["devicesByState"] == {"Unhealthy": 1, "Healthy": 7}
    explaining.print_node(found)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == ("node n  1 Unhealthy, 7 Healthy of 8 devices; the node itself Healthy 1.00")
    assert "no evidence is against the node itself" in rest


def test_the_first_line_of_a_node_says_how_many_devices_are_not_offered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fleet = Fleet()
    withdrawn = with_conditions()
    withdrawn["status"] |= {
        "capacity": {"nvidia.com/gpu": "8"},
        "allocatable": {"nvidia.com/gpu": "0"},
    }
    fleet.put(kinds.NODE, withdrawn)
    explaining.print_node(explained_node(fleet))
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("node n  8 of 8 devices not offered; the node itself Healthy ")


def test_what_came_and_went_is_one_line_of_a_history() -> None:
    hour = 3600.0

    def episode(at: int, text: str) -> dict[str, object]:
        start = 1_790_000_000.0 + at * hour
        return {
            "state": "Degraded",
            "start": start,
            "end": start + hour,
            "score": 0.5,
            "text": text,
        }

    told = [*(episode(2 * at, "link down") for at in range(20)), episode(50, "hot")]
    lines = explaining.episode_lines(told)
    assert len(lines) == 2
    assert lines[0].startswith("Degraded 0.50 20 times, at last ")
    assert lines[0].endswith(": link down")


def test_a_holder_that_nobody_can_tell_is_said_to_be_unknown() -> None:
    assert explaining.users_in_words({"use": "possible", "usedBy": [], "possiblyUsedBy": []}) == (
        "nobody knows"
    )
    assert explaining.users_in_words({"use": "nobody", "usedBy": [], "possiblyUsedBy": []}) == (
        "nobody"
    )


def test_a_node_shows_what_fettle_has_written_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet()
    at = "2026-01-01T00:00:00Z"
    sound = {"reason": "DevicesUnhealthy", "message": "1 Unhealthy of 8", "lastTransitionTime": at}
    marked = with_conditions({"type": "FettleDevicesSound", "status": "False", **sound})
    marked["metadata"]["labels"] = {"fettle.dev/health": "degraded"}
    marked["metadata"]["annotations"] = {
        "fettle.dev/health-reason": "0.0: XID 79",
        "fettle.dev/cordoned": "1 Unhealthy of 8",
    }
    fleet.put(kinds.NODE, marked)
    found = explained_node(fleet)
    assert found["marks"]["label"] == "degraded"
    assert found["marks"]["condition"]["status"] == "False"
    assert found["marks"]["cordoned"] == "1 Unhealthy of 8"
    explaining.print_node(found)
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "Fettle has written on it: label fettle.dev/health=degraded (0.0: XID 79); condition "
        "FettleDevicesSound False DevicesUnhealthy: 1 Unhealthy of 8; annotation "
        "fettle.dev/cordoned: 1 Unhealthy of 8"
    ) in printed


def test_a_unit_that_nothing_names_is_as_its_node(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    for name in ("a", "b", "c"):
        fleet.put(kinds.POD, saying.refused(name))
    found = explained_device(fleet, f"n/{b.RESOURCE}/2")
    assert found["about"] == "nothing is said of it, so it is as healthy as its node"
    assert (found["node"], found["resource"], found["unit"]) == ("n", b.RESOURCE, "index:2")
    assert found["state"] == explained_node(fleet)["state"]
    explaining.print_device(found)
    printed = capsys.readouterr().out
    assert f"n/{b.RESOURCE}/index:2  Unhealthy" in printed
    assert "halves every 1 h" in printed
    assert "used by: nobody" in printed


def test_a_sound_unit_is_found_by_its_uuid_where_the_kubelet_names_it() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    fleet.put(kinds.NODE, node("m"))
    pod = saying.speaking("p", "m", b.RESOURCE, f"{UUID}::1")
    (said,) = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    said["resources"][0]["health"] = "Healthy"
    fleet.put(kinds.POD, pod)
    found = explained_device(fleet, UUID)
    assert (found["name"], found["node"]) == (f"m/{b.RESOURCE}/{UUID}", "m")
    assert (found["state"], found["usedBy"]) == ("Healthy", ["default/p"])


def test_a_sound_unit_is_found_by_its_uuid_where_its_past_is_stored() -> None:
    fleet = Fleet()
    units = {"nvidia.com/gpu": "8"}
    bad = f"ErrorCode:X GPU:0 GPU_UUID:{UUID} x Recommended Action=NONE;"
    for status in ("True", "False"):
        fleet.now += 60
        seen = condition("GpuMemWatch", status, "x", bad if status == "True" else "", at=fleet.now)
        raw = with_conditions(seen)
        raw["status"] |= {"capacity": units, "allocatable": units}
        fleet.put(kinds.NODE, raw)
        fleet.look()
    stored = fleet.inventory.recall("n", None, fleet.now)
    assert stored is not None
    other = Fleet()
    other.put(kinds.NODE, node("n", status={"capacity": units, "allocatable": units}))
    view = msgspec.structs.replace(other.look(), device_healths={"n": stored})
    found = explain_device(UUID, view, other.inventory, other.now)
    assert (found["name"], found["state"]) == (f"n/nvidia.com/gpu/{UUID}", "Healthy")


def test_a_unit_that_a_pod_holds_names_the_pod_and_its_episodes() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    fleet.put(kinds.POD, saying.unit_said_ill())
    found = explained_device(fleet, "GPU-1")
    assert found["usedBy"] == ["default/unit"]
    assert "the kubelet calls it Healthy (Pod default/unit)" in again(found)
    stored = fleet.inventory.recall("n", None, fleet.now)
    assert stored is not None
    fleet.inventory.put(kinds.DEVICE_HEALTH, stored, fleet.now)
    (episode,) = explained_device(fleet, "GPU-1")["episodes"]
    assert (episode["state"], episode["end"]) == (found["state"], None)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "0 s"),
        (59, "59 s"),
        (3600, "1 h"),
        (93_784, "1 d 2 h"),
        (57_657, "16 h"),
        (604_800, "7 d"),
    ],
)
def test_spans_have_two_parts_at_most(seconds: float, said: str) -> None:
    assert explaining.span_of(seconds) == said


@pytest.mark.parametrize(
    ("source", "reporter", "says"),
    [
        (
            Source(SourceKind.METRIC, "dcgm-xid"),
            ReporterId("Prometheus", "dcgm-xid", "n"),
            "Prometheus, which is silent about it, gives its series again, and not for dcgm-xid "
            "(Prometheus dcgm-xid on n); if it was mended meanwhile, annotate the node with "
            "fettle.dev/repaired",
        ),
        (
            Source(SourceKind.ALERT, "dcgm-xid"),
            ReporterId("Alertmanager", "dcgm-xid", "n", alert="f00"),
            "it is said to be mended: nobody reports alert dcgm-xid any more, so annotate the node "
            "with fettle.dev/repaired, or reboot it if that mends it",
        ),
    ],
)
def test_of_a_latched_fault_of_which_its_source_is_silent_that_is_said_first(
    source: Source, reporter: ReporterId, says: str
) -> None:
    silent = Evidence(
        subject=UnitId("n", "nvidia.com/gpu", UUID),
        family=Family.BUS,
        kind=EvidenceKind.LATCHED,
        weight=1.0,
        source=source,
        reporter=reporter,
        said="metrics: XID 79",
        standing=Standing.LATCHED,
        observed_at=0.0,
    )
    assert all_clear_of(Awaited(silent, "")) == says


@pytest.mark.parametrize(
    ("clear", "says"),
    [
        (BY_RESOLUTION, "the alert is resolved (Alertmanager x f00 on n)"),
        (
            "",
            "the alert is resolved (Alertmanager x f00 on n), and it is said to be mended, since "
            "that also ends when the device is gone: annotate the node with fettle.dev/repaired, "
            "or reboot it if that mends it",
        ),
    ],
)
def test_a_latched_alert_says_whether_its_resolution_is_enough(clear: str, says: str) -> None:
    fires = Evidence(
        subject=UnitId("n", "nvidia.com/gpu", UUID),
        family=Family.BUS,
        kind=EvidenceKind.LATCHED,
        weight=1.0,
        source=Source(SourceKind.ALERT, "x"),
        reporter=ReporterId("Alertmanager", "x", "n", alert="f00"),
        said="alert: XID 79",
        observed_at=0.0,
    )
    assert all_clear_of(Awaited(fires, clear)) == says


def test_what_one_all_clear_ends_is_awaited_once() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    pod = saying.speaking("p", "n", b.RESOURCE, UUID)
    (said,) = pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    said["resources"][0]["message"] = "XID 79"
    fleet.put(kinds.POD, pod)
    found = explained_device(fleet, UUID)
    assert len(found["evidence"]) == 2
    assert again(found) == (
        "Healthy again when this has happened: the kubelet calls it Healthy (Pod default/p)"
    )


def test_a_start_that_failed_is_told_once_of_its_device_and_of_its_node_elsewhere() -> None:
    fleet = Fleet()
    fleet.put(kinds.NODE, node("n"))
    fleet.put(kinds.SLICE, slice_("n", devices=2))
    claimed = claim("claim-of-p", "gpu-0")
    claimed["metadata"]["namespace"] = "ml"
    fleet.put(kinds.CLAIM, claimed)
    fleet.put(kinds.POD, with_claim("p"))
    view = fleet.look()
    (pool,) = view.nodes["n"].pools
    for device in pool.devices:
        (of_it,) = explained_device(fleet, str(device.id))["evidence"]
        is_given = device.id.device == "gpu-0"
        assert of_it["subject"] == (str(device.id) if is_given else "node n")
        assert of_it["text"].startswith("Job ml/train does not start")
    (listed,) = list_nodes(view)
    assert [len(one["evidence"]) for one in (listed, *listed["devices"])] == [1, 1, 1]
