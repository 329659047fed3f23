"""What the second listener answers."""

import time
from typing import Any

import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fettle.api import core, kinds, resource
from fettle.api.meta import ObjectMeta
from fettle.browse import Known, Leader
from fettle.browse.access import Viewer
from fettle.browse.pods import MOST_PODS
from fettle.browse.reviews import NotShown
from fettle.cel import SelectorEngine
from fettle.cli import device_tables
from fettle.cluster import Publisher, SourceStatus
from fettle.config import Settings
from fettle.config.settings import SchedulerSettings
from fettle.config.sources import SourceSettings
from fettle.model import UnknownSignal
from fettle.observing import CertificateEnd, LastRequests, ReadyMetrics
from fettle.scheduling import Answers
from fettle.scheduling.placed import FinishedPods, PodClaims
from tests.fettle import building as b
from tests.fettle.browse.showing import known, reply_of, told
from tests.fettle.cluster.inventory import fleets, saying
from tests.fettle.cluster.inventory.fleets import Fleet

UNREADABLE = {
    "Pod stealth/secret-project": "Pod stealth/secret-project: limits are no amounts",
    "Pod stealth/other": "Pod stealth/other: limits are no amounts",
    "Node n1": "Node n1: labels are no object",
}
NOTE = "snapshot: Pod stealth/secret-project is in two files"


def with_unreadable(quarantined: dict[str, str]) -> Known:
    publisher = Publisher()
    publisher.publish(b.view(b.node("n1"), quarantined=quarantined), frozenset())
    answers = Answers(publisher, SelectorEngine(), Settings())
    return known(answers, notes=lambda: [NOTE])


def silent_after(seconds: float) -> Settings:
    return Settings(sources=SourceSettings(silent_after_seconds=seconds))


async def verbose(shown: Known, refused: str = "") -> str:
    """What /readyz?verbose says, to whoever may see everything or is `refused` all else."""

    async def access(_: web.Request) -> Viewer:
        if refused:
            raise NotShown(401, refused)
        return Viewer()

    return (await reply_of(shown, "/readyz?verbose", access)).text or ""


async def readyz(refused: str, quarantined: dict[str, str]) -> str:
    return await verbose(with_unreadable(quarantined), refused)


async def test_readyz_lists_objects_that_cannot_be_read() -> None:
    text = await readyz("", UNREADABLE)
    assert "quarantined: Pod stealth/secret-project: limits are no amounts" in text
    assert NOTE in text


async def test_readyz_gives_strangers_counts_of_such_objects_no_names_and_why() -> None:
    text = await readyz("this needs a token", UNREADABLE)
    assert text.endswith("\nthis needs a token\n")
    assert text.startswith("ok\n")
    assert "quarantined: 2 Pod" in text
    assert "quarantined: 1 Node" in text
    assert "stealth" not in text
    assert "n1" not in text


async def test_readyz_gives_strangers_no_counts_where_everything_can_be_read() -> None:
    assert "quarantined" not in await readyz("this needs a token", {})


@pytest.mark.parametrize("step_s", [3600, -3600])
async def test_the_age_of_a_source_does_not_depend_on_the_wall_clock(
    monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    publisher, wall = Publisher(), time.time
    publisher.sources["Node"] = SourceStatus("Node", True, True, time.monotonic() - 40)
    answers = Answers(publisher, SelectorEngine(), Settings())
    monkeypatch.setattr(time, "time", lambda: wall() + step_s)
    fresh = await verbose(known(answers, silent_after(60)))
    stale = await verbose(known(answers, silent_after(20)))
    assert fresh.startswith("ok\nNode: synced, last contact 4")
    assert stale.startswith("not ready: Node has been silent for more than 20 s\n")


async def test_readyz_lists_a_file_whose_name_is_not_valid_text() -> None:
    publisher = Publisher()
    note = b"\xff.yaml cannot be read".decode(errors="surrogateescape")
    publisher.sources["Node"] = SourceStatus("Node", True, True, time.monotonic(), note=note)
    answers = Answers(publisher, SelectorEngine(), Settings())
    text = await verbose(known(answers))
    assert "\\udcff.yaml cannot be read" in text


async def test_the_status_tells_how_the_process_is_and_who_asks_it() -> None:
    publisher = Publisher()
    note = "GET /x denied access by RBAC: no"
    publisher.sources["Node"] = SourceStatus("Node", True, True, time.monotonic() - 40)
    publisher.sources["Pod"] = SourceStatus("Pod", False, True, 0.0, note=note)
    last = LastRequests("extender", ("filter", "prioritize"), "never asked")
    last.at["filter"] = time.perf_counter()
    answers = Answers(publisher, SelectorEngine(), Settings())
    shown = known(
        answers,
        silent_after(20),
        roles=("extender",),
        last_requests=lambda: {"extender": last},
        certificates=lambda: [CertificateEnd("extender", "server", 2e9)],
        leader=lambda: Leader("other-1", here=False),
    )
    _, status = await told(shown, "/status")
    process = status["process"]
    assert process["ready"] is False
    assert process["problems"][0].startswith("Node has been silent")
    assert process["asked"]["extender"]["prioritize"] is None
    assert process["asked"]["extender"]["filter"] < 60
    assert process["leader"] == {"name": "other-1", "here": False}
    assert process["certificates"] == [{"listener": "extender", "of": "server", "endsAt": 2e9}]
    assert [note in text for text in process["denied"]] == [True]
    ages = {one["name"]: one["ageSeconds"] for one in process["sources"]}
    assert ages["Node"] >= 40
    assert ages["Pod"] is None


async def test_metrics_and_readyz_agree_on_whether_fettle_is_ready() -> None:
    publisher, registry = Publisher(), CollectorRegistry()
    answers = Answers(publisher, SelectorEngine(), Settings())
    found: list[str] = []
    shown = known(answers, silent_after(60), registry=registry, extra_problems=lambda: found)
    ReadyMetrics(registry, shown.is_ready)

    async def ready() -> tuple[int, float | None]:
        status = (await reply_of(shown, "/readyz")).status
        return status, registry.get_sample_value("fettle_ready")

    publisher.sources["Node"] = SourceStatus("Node", False, True, 0.0)
    assert await ready() == (503, 0.0)
    publisher.sources["Node"] = SourceStatus("Node", True, True, time.monotonic())
    assert await ready() == (200, 1.0)
    found.append("webhook: the certificate expired")
    assert await ready() == (503, 0.0)
    found.clear()
    publisher.sources["Node"] = SourceStatus("Node", True, True, time.monotonic() - 90)
    assert await ready() == (503, 0.0)


async def notes(scheduler: str | None, *, named: tuple[str, ...], asked: bool = False) -> list[str]:
    """What is said beside the verdicts on a pod of this scheduler."""
    raw = b.gpu_pod()
    raw["spec"]["schedulerName"] = scheduler
    pod = msgspec.convert(raw, core.Pod)
    publisher = Publisher()
    publisher.publish(b.view(b.node("n1", gpus=1), pods={"default/p": pod}), frozenset())
    answers = Answers(publisher, SelectorEngine(), Settings())
    recent = {"default/p": pod} if asked else {}
    settings = Settings(scheduler=SchedulerSettings(names=named))
    shown = known(answers, settings, recent=recent)
    _, explained = await told(shown, "/explain?pod=default/p")
    assert "n1" in explained["nodes"]
    found: list[str] = explained["notes"]
    return found


@pytest.mark.parametrize(
    ("scheduler", "named"),
    [("second", ("default-scheduler", "other")), ("default-scheduler", ()), (None, ("second",))],
)
async def test_a_pod_of_a_scheduler_that_does_not_ask_is_explained_with_a_note(
    scheduler: str | None, named: tuple[str, ...]
) -> None:
    (note,) = await notes(scheduler, named=named)
    assert note == (
        f"scheduler {scheduler or 'default-scheduler'} does not ask Fettle, as far as the settings "
        f"say (scheduler.names: {', '.join(named) or 'none'}): it places this pod without these "
        "verdicts"
    )


@pytest.mark.parametrize("scheduler", ["second", None])
async def test_a_pod_of_a_scheduler_that_asks_is_explained_without_that_note(
    scheduler: str | None,
) -> None:
    assert await notes(scheduler, named=("default-scheduler", "second")) == []
    assert await notes(scheduler, named=("third",), asked=True) == []


WAITING = SourceStatus("Node", False, True, 0.0, "connection refused")


async def asked_early(path: str, pods: dict[str, core.Pod]) -> tuple[int, dict[str, Any]]:
    """What a Fettle says that has not read its cluster yet."""
    publisher = Publisher()
    publisher.sources["Node"] = WAITING
    publisher.publish(b.view(b.node("n1", gpus=1), pods=pods), frozenset())
    return await told(known(Answers(publisher, SelectorEngine(), Settings())), path)


async def test_answers_before_fettle_is_ready_say_that_they_may_be_incomplete(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = "Fettle is not ready: Node is not synced: connection refused"
    _, devices = await asked_early("/devices", {})
    assert devices["problems"] == [why]
    device_tables.print_devices(devices, everything=False)
    assert capsys.readouterr().out.split() == [
        "mode:",
        "enforce",
        "(setting",
        "mode)",
        *why.split(),
    ]
    _, explained = await asked_early("/explain?pod=default/p", {"default/p": b.pod(b.gpu_pod())})
    assert why in explained["notes"]
    status, unknown = await asked_early("/explain?pod=default/p", {})
    assert status == 404
    assert unknown["error"].endswith(f"has not been seen yet; {why}")


async def test_fields_that_were_renamed_have_their_former_names_too() -> None:
    publisher = Publisher()
    unknown = (UnknownSignal("GpuBurnIn", "True"),)
    node = msgspec.structs.replace(b.node("n1", gpus=1), unknown_signals=unknown)
    publisher.publish(b.view(node), frozenset())
    shown = known(Answers(publisher, SelectorEngine(), Settings()), recoveries=Fleet().inventory)
    for path in ("/devices", "/explain?node=n1"):
        _, answer = await told(shown, path)
        assert answer["unknownSignals"][0]["condition"] == "GpuBurnIn"
        assert answer["unheard"] == answer["unknownSignals"]


async def test_an_explained_pod_has_the_former_names_of_renamed_fields_too() -> None:
    pod = b.pod(b.gpu_pod(count=2))
    publisher = Publisher()
    publisher.publish(b.view(b.node("n1", gpus=1), pods={"default/p": pod}), frozenset())
    shown = known(Answers(publisher, SelectorEngine(), Settings()))
    _, answer = await told(shown, "/explain?pod=default/p")
    assert answer["ask"] == answer["demand"] is not None
    for lists in (verdict := answer["nodes"]["n1"], verdict["reasons"]):
        assert lists["unfit"] == lists["rejected"]
        assert len(lists["rejected"]) == 1


async def test_devices_say_that_all_are_sound_once_the_cluster_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nothing: dict[str, Any] = {"problems": [], "nodes": [], "network": [], "quarantined": {}}
    device_tables.print_devices({**nothing, "nodesWithDevices": 1}, everything=False)
    assert capsys.readouterr().out == "no evidence concerns any device: all are sound\n"
    device_tables.print_devices({**nothing, "nodesWithDevices": 0}, everything=False)
    assert capsys.readouterr().out == "no node has devices\n"


async def asked_of(entry: dict[str, str], node: str) -> dict[str, Any]:
    """The demand of a pod with an allocated claim, on this node ("": it waits), as explained."""
    owner = {"kind": "Pod", "name": "p", "uid": "u", "controller": True}
    result = {"request": "r", "driver": b.DRIVER, "pool": "n", "device": "a"}
    allocation = {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [result]}}
    request = {"name": "r", "exactly": {"deviceClassName": b.DRIVER}}
    spec = {"devices": {"requests": [request]}}
    claim = {
        "metadata": {"name": "c", "namespace": "default", "ownerReferences": [owner]},
        "spec": spec,
        "status": {"allocation": allocation},
    }
    pod = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"nodeName": node, "resourceClaims": [{"name": "gpu", **entry}]},
        "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]},
    }
    template = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": spec}}
    publisher = Publisher()
    view = b.view(
        pods={"default/p": b.pod(pod)},
        claims={"default/c": b.claim(claim)},
        templates={"default/t": b.template(template)},
        classes={b.DRIVER: b.device_class()},
    )
    publisher.publish(view, frozenset())
    shown = known(Answers(publisher, SelectorEngine(), Settings()))
    _, explained = await told(shown, "/explain?pod=default/p")
    demand: dict[str, Any] = explained["demand"]
    return demand


async def test_a_running_pod_is_explained_as_a_new_one_with_claims_of_its_own() -> None:
    own, shared = {"resourceClaimTemplateName": "t"}, {"resourceClaimName": "c"}
    assert (await asked_of(own, ""))["allocated"] == [f"{b.DRIVER}/n/a"]
    other = await asked_of(own, "n")
    assert (other["allocated"], other["requests"][0]["name"]) == ([], "gpu/r")
    assert (await asked_of(shared, "n"))["allocated"] == [f"{b.DRIVER}/n/a"]


# Pods


async def pods(publisher: Publisher, query: str = "") -> Any:
    shown = known(Answers(publisher, SelectorEngine(), Settings()))
    return (await told(shown, f"/pods{query}"))[1]


def with_pods(*where: str, **pod: Any) -> Publisher:
    """Pods on these nodes, of which `ill` is Unhealthy."""
    placed = {}
    for number, node in enumerate(where):
        raw = b.gpu_pod(name=f"p{number}")
        raw["metadata"] |= {"uid": f"u{number}", **pod}
        raw["spec"]["nodeName"] = node
        placed[f"default/p{number}"] = b.pod(raw)
    publisher = Publisher()
    nodes = (b.node("well", gpus=8), b.node("ill", gpus=8, own=b.health(0.1)))
    publisher.publish(b.view(*nodes, pods=placed), frozenset())
    return publisher


async def test_pods_are_listed_with_what_their_policy_says_of_where_they_are() -> None:
    owner = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
    publisher = with_pods("well", "ill", "", "unknown", ownerReferences=[owner])
    listed = await pods(publisher)
    assert (listed["version"], listed["total"]) == (1, 3)
    ill, well = listed["pods"]  # of the others no node is known
    assert (ill["node"], ill["atRisk"], ill["use"]) == ("ill", True, "certain")
    assert ill["worst"] == "node is Unhealthy (0.10): a fault"
    assert ill["owner"] == {"kind": "Job", "name": "train"}
    assert (well["node"], well["atRisk"], well["use"], well["since"]) == ("well", False, None, None)
    assert well["units"] == {b.RESOURCE: 1}
    listed = await pods(publisher, "?at-risk=true")
    assert ([pod["pod"] for pod in listed["pods"]], listed["total"]) == (["default/p1"], 1)
    listed = await pods(publisher, "?node=well&namespace=default")
    assert [pod["pod"] for pod in listed["pods"]] == ["default/p0"]
    assert (await pods(publisher, "?namespace=other"))["pods"] == []


async def test_the_usage_of_a_node_counts_units_and_devices_bad_and_in_use() -> None:
    raw = b.gpu_pod(count=3)
    raw["spec"]["nodeName"] = "n1"
    taken, sick = b.device("d0", allocated=True), b.device("d1", 0.1)
    n1 = b.node("n1", gpus=8, units={"GPU-1": 0.1}, pools=(b.pool(taken, sick),))
    publisher = Publisher()
    plain = b.node("n2")
    publisher.publish(b.view(n1, plain, pods={"default/p": b.pod(raw)}), frozenset())
    shown = known(Answers(publisher, SelectorEngine(), Settings()))
    _, listed = await told(shown, "/usage")
    (one,) = listed["nodes"]  # the other has no devices
    assert (one["node"], one["devices"], one["inUse"], one["pods"]) == ("n1", 10, 4, 1)
    assert one["byState"] == {"Healthy": 8, "Unhealthy": 2}
    assert (await told(shown, "/usage?selector=zone"))[1]["nodes"] == []
    assert (await told(shown, "/usage?selector=a+b"))[0] == 400


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("?selector=team%3Da", ["p0", "p1"]),
        ("?selector=team%21%3Da", []),
        ("?state=Unhealthy", ["p1"]),
        ("?state=Unhealthy,Healthy", ["p0", "p1"]),
        (f"?driver={b.RESOURCE}", ["p0", "p1"]),
        (f"?driver={b.RESOURCE}&state=Healthy", ["p0"]),
        ("?driver=other", []),
        ("?since=1h", []),
    ],
)
async def test_pods_are_narrowed_by_labels_state_driver_and_age(
    query: str, found: list[str]
) -> None:
    listed = await pods(with_pods("well", "ill", labels={"team": "a"}), query)
    assert sorted(pod["pod"] for pod in listed["pods"]) == [f"default/{name}" for name in found]
    assert listed["total"] == len(found)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("?selector=a+b", "label selector 'a b': write"),
        ("?state=Ill", "state 'Ill': write one of Healthy, Degraded"),
        ("?since=soon", "since 'soon': write"),
    ],
)
async def test_what_pods_cannot_be_narrowed_by_is_said(query: str, why: str) -> None:
    assert (await pods(with_pods("well"), query))["error"].startswith(why)


async def test_devices_are_narrowed_by_the_name_and_the_labels_of_their_node() -> None:
    node = msgspec.structs.replace(b.node("n1", gpus=1, own=b.health(0.1)), labels={"zone": "a"})
    publisher = Publisher()
    publisher.publish(b.view(node, b.node("n2", gpus=1, own=b.health(0.1))), frozenset())
    shown = known(Answers(publisher, SelectorEngine(), Settings()))
    for query, names in (
        ("", ["n1", "n2"]),
        ("?node=n2", ["n2"]),
        ("?selector=zone", ["n1"]),
        ("?selector=zone&node=n2", []),
    ):
        _, listed = await told(shown, f"/devices{query}")
        assert [one["node"] for one in listed["nodes"]] == names
        assert listed["nodesWithDevices"] == len(names)
    status, listed = await told(shown, "/devices?node=n3")
    assert (status, listed["error"]) == (404, "there is no node 'n3'")


async def test_no_more_pods_are_listed_than_one_answer_holds() -> None:
    listed = await pods(with_pods(*["ill"] * (MOST_PODS + 2)), "?at-risk=true")
    assert (len(listed["pods"]), listed["total"]) == (MOST_PODS, MOST_PODS + 2)


async def test_a_finished_pod_is_explained_by_how_it_ended() -> None:
    publisher = with_pods("well")
    answers = Answers(publisher, SelectorEngine(), Settings())
    finished = FinishedPods(PodClaims(publisher))
    shown = known(answers, finished=finished)
    ended = b.gpu_pod(name="done")
    ended["spec"]["nodeName"] = "well"
    ended["status"] = {
        "phase": "Failed",
        "reason": "UnexpectedAdmissionError",
        "message": "Allocate failed",
        "startTime": "2026-01-01T00:00:00Z",
    }
    finished.observe(b.pod(ended))
    _, done = await told(shown, "/explain?pod=default/done")
    assert done["notes"] == [
        "the pod is finished: Failed on well at 2026-01-01T00:00:00Z (UnexpectedAdmissionError: "
        "Allocate failed); the verdicts are for another pod like it"
    ]
    assert done["placed"] is None
    assert done["nodes"]["well"]["fits"]
    again = {**ended, "status": {"phase": "Pending"}}
    finished.observe(b.pod(again))
    assert finished.get("default/done") is None


# Nodes and devices


async def explained(query: str) -> tuple[int, Any]:
    """What is answered about a node whose kubelet refused pods."""
    fleet = fleets.Fleet()
    fleet.put(kinds.NODE, fleets.node("n"))
    for name in ("a", "b", "c"):
        fleet.put(kinds.POD, saying.refused(name))
    publisher = Publisher()
    publisher.publish(fleet.look(), frozenset())
    answers = Answers(publisher, SelectorEngine(), Settings())
    return await told(known(answers, recoveries=fleet.inventory), f"/explain?{query}")


async def test_a_node_and_a_device_are_explained() -> None:
    status, found = await explained("node=n")
    assert (status, found["version"], found["node"]) == (200, 1, "n")
    assert found["healthyAgain"]["text"].startswith("Healthy again by itself")
    status, found = await explained(f"device=n/{b.RESOURCE}/0")
    assert (status, found["name"]) == (200, f"n/{b.RESOURCE}/index:0")


async def test_what_is_not_there_is_answered_with_names_that_are_near() -> None:
    assert await explained("node=n1") == (404, {"error": "there is no node 'n1'; near: n"})
    status, found = await explained("device=n/x")
    assert status == 404
    assert "there is no device 'n/x'" in found["error"]
    status, found = await explained("node=")
    assert status == 400
    assert "?node=NAME or ?device=NAME" in found["error"]


async def test_where_no_device_of_any_node_matches_the_nearest_is_told() -> None:
    wanted = f'device.attributes["{b.DRIVER}"].memory >= 96'
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": wanted}}]}
    claim = {
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "big", "exactly": exactly}]}},
    }
    pod = b.pod(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "p"},
            "spec": {
                "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
            },
        }
    )
    attributes = {f"{b.DRIVER}/memory": resource.DeviceAttribute(int_=80)}
    view = b.view(
        b.node("n1", pools=(b.pool(b.device("gpu-0", attributes=attributes)),)),
        claims={"default/c": b.claim(claim)},
        pods={"default/p": pod},
        classes={"gpu": resource.DeviceClass(metadata=ObjectMeta(name="gpu"))},
    )
    publisher, engine = Publisher(), SelectorEngine()
    publisher.publish(view, frozenset())
    await engine.start()
    try:
        shown = known(Answers(publisher, engine, Settings()))
        _, explained = await told(shown, "/explain?pod=default/p")
    finally:
        await engine.close()
    note = "gpu/big: no device of any node matches; the nearest one: memory 80 < 96"
    assert note in explained["notes"]


async def test_what_is_explained_of_a_pod_has_the_mechanisms_that_the_status_has() -> None:
    view = b.view(b.node("n", gpus=8), pods={"default/p": b.pod(b.gpu_pod())})
    publisher = Publisher()
    publisher.publish(view, frozenset())
    shown = known(Answers(publisher, SelectorEngine(), Settings()))
    _, explained = await told(shown, "/explain?pod=default/p")
    _, status = await told(shown, "/status")
    assert explained["mechanisms"] == status["mechanisms"]
    assert [one["name"] for one in explained["mechanisms"]][:2] == ["extender", "second scheduler"]
