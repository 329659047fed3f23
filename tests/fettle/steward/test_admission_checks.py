"""What Kueue is answered about workloads that hold quota, against an API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from fettle.api.meta import rfc3339_at
from fettle.client import Session
from fettle.cluster import NodeView, PluginView
from fettle.config import Settings
from fettle.scheduling import Answers
from fettle.steward import AdmissionChecks, admission_checks
from tests.fettle import building as b
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.scheduling.clusters import Cluster, claim_view, kept
from tests.waiting import until

NOW = 1_790_000_000.0
ON = msgspec.convert({"kueue": {"admissionCheck": True}}, Settings)
OBSERVES = msgspec.convert({"mode": "observe", "kueue": {"admissionCheck": True}}, Settings)
TRAINING = {"fettle.dev/policy": "training"}
WAITS = admission_checks.HOLDS_QUOTA_S


def sound(*names: str, gpus: int = 8) -> dict[str, NodeView]:
    return {name: b.node(name, gpus=gpus) for name in names}


def bad(*names: str, gpus: int = 8) -> dict[str, NodeView]:
    return {name: b.node(name, gpus=gpus, own=b.health(0.0)) for name in names}


def pods(name: str, count: int, gpus: int = 8, **spec: Any) -> dict[str, Any]:
    limits = {b.RESOURCE: str(gpus)} if gpus else {"cpu": "1"}
    container = {"name": "main", "resources": {"limits": limits}}
    template = {
        "metadata": {"annotations": TRAINING},
        "spec": {"containers": [container], **spec},
    }
    return {"name": name, "count": count, "template": template}


class Kueue:
    """Kueue's objects as the API server has them, and what the leader's view shows."""

    def __init__(self, api: FakeApi, session: Session) -> None:
        self._api = api
        self._session = session
        self.cluster = Cluster()
        self.at = NOW
        self.settings = ON
        self.answers_per_s = 100.0
        spec = {"controllerName": "fettle.dev/sound-devices"}
        metadata = {"name": "sound", "generation": 1}
        api.put("admissionchecks", {"metadata": metadata, "spec": spec})
        for plural in ("resourceflavors", "workloads"):
            api.objects.setdefault(plural, {})

    def reserve(self, name: str, *sets: dict[str, Any], since: float = 0.0, **status: Any) -> None:
        """A workload that got quota, so long ago."""
        reserved = {
            "type": "QuotaReserved",
            "status": "True",
            "lastTransitionTime": rfc3339_at(self.at - since),
        }
        checks = [
            {"name": "sound", "state": "Pending", "message": ""},
            {"name": "other", "state": "Pending", "message": "of somebody else"},
        ]
        flavors = [{"name": one["name"], "flavors": {b.RESOURCE: "gpus"}} for one in sets]
        held = {
            "admission": {"clusterQueue": "all", "podSetAssignments": flavors},
            "conditions": [reserved],
            "admissionChecks": checks,
        }
        metadata = {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": rfc3339_at(self.at - since),
        }
        workload = {"metadata": metadata, "spec": {"podSets": [*sets]}, "status": held | status}
        self._api.put("workloads", workload)

    def check(self, name: str, check: str = "sound") -> Any:
        workload = self._api.objects["workloads"][f"ml/{name}"]
        return next(one for one in workload["status"]["admissionChecks"] if one["name"] == check)

    async def says(self, name: str, state: str, message: str = "") -> None:
        await until(
            lambda: (
                self.check(name)["state"] == state
                and message in self.check(name)["message"]
                and self.check(name)["message"]
            )
        )

    @asynccontextmanager
    async def led(self) -> AsyncIterator[AdmissionChecks]:
        answers = Answers(self.cluster.publisher, self.cluster.engine, self.settings)
        made = AdmissionChecks(
            self._session,
            answers,
            self.settings,
            lambda: self.at,
            every_s=0.01,
            answers_per_s=self.answers_per_s,
        )
        async with kept(made.keep()):
            yield made


@pytest.fixture
def kueue(api: FakeApi, session: Session) -> Kueue:
    return Kueue(api, session)


async def test_a_gang_starts_once_all_of_its_pods_fit_on_sound_devices(kueue: Kueue) -> None:
    kueue.cluster.show({**sound("a", "b"), **bad("c")})
    kueue.reserve("train", pods("workers", 3))
    async with kueue.led():
        told = f"workers: 2 of 3 pods fit on sound devices now ({b.RESOURCE}); refused: c"
        await kueue.says("train", "Pending", told)
        kueue.cluster.show(sound("a", "b", "c"))
        await kueue.says("train", "Ready")
    assert kueue.check("train", "other") == {
        "name": "other",
        "state": "Pending",
        "message": "of somebody else",
    }


async def test_quota_that_waits_for_sound_devices_goes_to_others_after_a_minute(
    kueue: Kueue,
) -> None:
    kueue.cluster.show({**sound("a"), **bad("c")})
    kueue.reserve("train", pods("workers", 2))
    async with kueue.led():
        await kueue.says("train", "Pending", "1 of 2 pods")
        kueue.at += WAITS
        await kueue.says("train", "Retry", "1 of 2 pods")
    assert "requeueAfterSeconds" not in kueue.check("train")  # Kueue keeps the quota for so long


async def test_what_is_in_use_or_too_few_is_waited_for_a_minute_and_then_no_matter_of_health(
    kueue: Kueue,
) -> None:
    raw = b.gpu_pod(8)
    raw["spec"]["nodeName"] = "b"
    user = b.pod(raw)
    kueue.cluster.show(sound("a", "b"), pods={user.metadata.key: user})
    kueue.reserve("train", pods("workers", 2))
    async with kueue.led():
        await kueue.says("train", "Pending", "1 of 2 pods")
        kueue.at += WAITS
        await kueue.says("train", "Ready", "not for their health alone")


async def test_what_only_more_nodes_can_hold_starts_at_once_if_nothing_is_bad(
    kueue: Kueue,
) -> None:
    kueue.cluster.show({"cpus": b.node("cpus")})
    kueue.reserve("from-zero", pods("workers", 1))
    async with kueue.led():
        await kueue.says("from-zero", "Ready", "0 of 1 pods")
        kueue.cluster.show(sound("a"))
        kueue.reserve("more", pods("workers", 2))
        await kueue.says("more", "Ready", "not for their health alone")


async def test_a_driver_that_restarts_has_a_minute_to_come_back(kueue: Kueue) -> None:
    gone = {b.RESOURCE: PluginView(b.RESOURCE, 8, 0, ())}
    restarts = msgspec.structs.replace(b.node("b"), plugins=gone)
    kueue.cluster.show({**sound("a"), "b": restarts})
    kueue.reserve("train", pods("workers", 2))
    async with kueue.led():
        await kueue.says("train", "Pending", "1 of 2 pods")
        kueue.at += WAITS
        await kueue.says("train", "Ready", "not for their health alone")


@pytest.mark.parametrize("time", [{}, {"lastTransitionTime": rfc3339_at(NOW + 1e9)}])
async def test_quota_without_a_time_that_can_be_is_held_since_it_was_seen(
    kueue: Kueue, time: dict[str, str]
) -> None:
    kueue.cluster.show({**sound("a"), **bad("c")})
    reserved = {"type": "QuotaReserved", "status": "True", **time}
    kueue.reserve("train", pods("workers", 2), conditions=[reserved])
    async with kueue.led():
        await kueue.says("train", "Pending")
        kueue.at += WAITS
        await kueue.says("train", "Retry")


async def test_who_comes_new_is_looked_at_before_those_that_wait(kueue: Kueue) -> None:
    kueue.cluster.show({**sound("a"), **bad("c")})
    kueue.answers_per_s = 20.0
    names = [f"waits-{number}" for number in range(60)]
    for name in names:
        kueue.reserve(name, pods("workers", 2))
    async with kueue.led():
        for name in names:
            await kueue.says(name, "Pending", "refused: c")
        kueue.reserve("new", pods("workers", 1))
        kueue.cluster.show({**sound("a"), **bad("d")})
        await kueue.says("new", "Ready")
        again = [name for name in names if "refused: d" in kueue.check(name)["message"]]
        assert len(again) < 50


async def test_two_gangs_are_not_let_start_on_the_same_sound_devices(kueue: Kueue) -> None:
    kueue.cluster.show({**sound("a", "b"), **bad("c", "d")})
    kueue.reserve("one", pods("workers", 2))
    kueue.reserve("two", pods("workers", 2))
    async with kueue.led():
        await until(lambda: all(kueue.check(name)["message"] for name in ("one", "two")))
        assert {kueue.check(name)["state"] for name in ("one", "two")} == {"Ready", "Pending"}


async def test_what_others_are_promised_makes_bad_devices_no_less_the_reason(
    kueue: Kueue,
) -> None:
    kueue.cluster.show({**sound("a"), **bad("c")})
    kueue.reserve("gang", pods("workers", 2))
    async with kueue.led():
        await kueue.says("gang", "Pending", "1 of 2 pods")
        kueue.at += WAITS - 2
        kueue.reserve("unrelated", pods("workers", 1))
        await kueue.says("unrelated", "Ready")
        kueue.at += 3
        await kueue.says("gang", "Retry", "1 of 3 pods")


async def test_what_is_promised_without_anything_bad_lets_nobody_queue_again(kueue: Kueue) -> None:
    kueue.cluster.show(sound("a", "b"))
    kueue.reserve("first", pods("workers", 2))
    async with kueue.led():
        await kueue.says("first", "Ready")
        kueue.reserve("second", pods("workers", 2), since=WAITS)
        await kueue.says("second", "Ready", "not for their health alone")


async def test_no_more_devices_are_promised_than_there_are(kueue: Kueue) -> None:
    kueue.cluster.show({**sound("a"), **bad("c")})
    kueue.reserve("far-too-large", pods("workers", 100), since=WAITS)
    async with kueue.led():
        await kueue.says("far-too-large", "Ready", "not for their health alone")
        kueue.cluster.show({**sound("a", "b"), **bad("c")})
        kueue.reserve("small", pods("workers", 1))
        await kueue.says("small", "Ready")
        kueue.reserve("smaller", pods("workers", 1, gpus=1))
        await kueue.says("smaller", "Pending", "16 of 17 pods")


@pytest.mark.parametrize("units", [16, 17, 80, 300])
async def test_many_units_of_one_node_are_counted(kueue: Kueue, units: int) -> None:
    used = b.gpu_pod(3)
    used["spec"]["nodeName"] = "used"
    user = b.pod(used)
    nodes = {**sound("a", "used", gpus=units), **bad("c", gpus=units)}
    kueue.cluster.show(nodes, pods={user.metadata.key: user})
    fit = 2 * units - 3
    kueue.reserve("fits", pods("workers", fit, gpus=1))
    kueue.reserve("does-not", pods("workers", fit + 1, gpus=1))
    async with kueue.led():
        await kueue.says("fits", "Ready")
        kueue.at += admission_checks.PROMISED_S
        await kueue.says("does-not", "Pending", f"{fit} of {fit + 1} pods")
        kueue.at += WAITS
        await kueue.says("does-not", "Retry")


async def test_bad_units_among_many_are_not_counted(kueue: Kueue) -> None:
    worn = {f"gpu-{i}": 0.0 for i in range(13)}
    kueue.cluster.show({**sound("a", gpus=64), "b": b.node("b", gpus=64, units=worn)})
    kueue.reserve("fits", pods("workers", 115, gpus=1))
    kueue.reserve("does-not", pods("workers", 116, gpus=1))
    async with kueue.led():
        await kueue.says("fits", "Ready")
        kueue.at += admission_checks.PROMISED_S
        await kueue.says("does-not", "Pending", "115 of 116 pods")


async def test_pod_sets_of_one_workload_share_nodes_as_far_as_devices_go(kueue: Kueue) -> None:
    kueue.cluster.show({**sound("a", "b"), **bad("c")})
    kueue.reserve("fits", pods("small", 4, gpus=1), pods("large", 2, gpus=6))
    kueue.reserve("does-not", pods("small", 5, gpus=1), pods("large", 2, gpus=6))
    async with kueue.led():
        await kueue.says("fits", "Ready")
        kueue.at += admission_checks.PROMISED_S
        await kueue.says("does-not", "Pending", "small: 16 of 17 pods")


@pytest.mark.parametrize("gpus", [1, 2, 4])
async def test_several_pods_go_on_one_node(kueue: Kueue, gpus: int) -> None:
    kueue.cluster.show({**sound("a"), **bad("b")})
    kueue.reserve("fits", pods("workers", 8 // gpus, gpus=gpus))
    kueue.reserve("does-not", pods("workers", 8 // gpus + 1, gpus=gpus))
    async with kueue.led():
        await kueue.says("fits", "Ready")
        kueue.at += admission_checks.PROMISED_S
        await kueue.says("does-not", "Pending", f"{8 // gpus} of {8 // gpus + 1} pods")


async def test_claims_are_counted_as_the_scheduler_would_allocate_them(kueue: Kueue) -> None:
    def node(name: str, *scores: float) -> NodeView:
        devices = [b.device(f"gpu-{i}", s, pool=name, local=name) for i, s in enumerate(scores)]
        return b.node(name, pools=(b.looked_at(b.pool(*devices, name=name)),))

    nodes = {"a": node("a", 1.0, 1.0, 1.0), "b": node("b", 1.0, 0.0, 1.0)}
    templates = {"ml/t": claim_view()["templates"]["default/t"]}
    kueue.cluster.show(nodes, templates=templates, classes=claim_view()["classes"])
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    for count in (4, 5):
        workers = pods("workers", count, gpus=0, resourceClaims=claims)
        kueue.reserve(f"of-{count}", workers)
    await kueue.cluster.engine.start()
    try:
        async with kueue.led():
            await kueue.says("of-4", "Ready")
            kueue.at += admission_checks.PROMISED_S
            await kueue.says("of-5", "Pending", "4 of 5 pods")
    finally:
        await kueue.cluster.engine.close()


async def test_workloads_that_wait_keep_no_other_from_its_turn(kueue: Kueue) -> None:
    kueue.cluster.show({**sound("a"), **bad("b")})
    kueue.answers_per_s = 10.0
    for number in range(25):
        kueue.reserve(f"too-large-{number}", *(pods(f"set-{i}", 2) for i in range(8)))
    kueue.reserve("zz-small", pods("workers", 1))
    async with kueue.led():
        await kueue.says("zz-small", "Ready")


async def test_only_nodes_of_its_flavor_and_node_selector_count(api: FakeApi, kueue: Kueue) -> None:
    gpus = {"metadata": {"name": "gpus"}, "spec": {"nodeLabels": {"pool": "gpus"}}}
    api.put("resourceflavors", gpus)
    nodes = sound("elsewhere", "here", "there") | bad("bad")
    of_pool = {"here": "x", "there": "y", "bad": "x"}
    for name, zone in of_pool.items():
        labels = {"pool": "gpus", "zone": zone}
        nodes[name] = msgspec.structs.replace(nodes[name], labels=labels)
    kueue.cluster.show(nodes)
    kueue.reserve("fits", pods("workers", 2))
    kueue.reserve("does-not", pods("workers", 2, nodeSelector={"zone": "x"}))
    async with kueue.led():
        await kueue.says("fits", "Ready")
        kueue.at += admission_checks.PROMISED_S
        await kueue.says("does-not", "Pending", "1 of 2 pods")


async def test_what_needs_no_devices_and_what_is_only_observed_starts(kueue: Kueue) -> None:
    kueue.cluster.show(bad("a"))
    kueue.reserve("cpus", pods("workers", 100, gpus=0))
    async with kueue.led():
        await kueue.says("cpus", "Ready")
    kueue.settings = OBSERVES
    kueue.reserve("gpus", pods("workers", 1))
    async with kueue.led():
        await kueue.says("gpus", "Ready")


async def test_a_workload_that_cannot_be_read_starts(api: FakeApi, kueue: Kueue) -> None:
    kueue.cluster.show(bad("a"))
    odd = {"name": "odd", "count": "many", "template": 7}
    kueue.reserve("odd", odd)
    async with kueue.led() as checks:
        await kueue.says("odd", "Ready", "cannot read its pods")
        assert any("ml/odd" in note for note in checks.notes())


async def test_one_that_cannot_be_answered_stops_no_other(api: FakeApi, kueue: Kueue) -> None:
    kueue.cluster.show(sound("a"))
    kueue.reserve("odd", pods("workers", 1), conditions=7)
    kueue.reserve("first", pods("workers", 1))
    async with kueue.led() as checks:
        await kueue.says("first", "Ready")
        await until(lambda: any("ml/odd" in note for note in checks.notes()))
        await until(lambda: api.verbs("workloads").count("get") > 2)  # it is tried again
        # What fails for all has all of them wait.
        assert not any("cannot be answered" in note for note in checks.notes())


@pytest.mark.parametrize(
    "status",
    [
        {"admission": None},
        {"conditions": []},
        {"admissionChecks": [{"name": "other", "state": "Pending", "message": ""}]},
        {"admissionChecks": [{"name": "sound", "state": "Ready", "message": ""}]},
    ],
)
async def test_what_holds_no_quota_or_does_not_ask_is_left_alone(
    api: FakeApi, kueue: Kueue, status: Any
) -> None:
    kueue.cluster.show(sound("a"))
    kueue.reserve("not", pods("workers", 1), **status)
    kueue.reserve("asks", pods("workers", 1))
    async with kueue.led():
        await kueue.says("asks", "Ready")
    assert not [one for one in api.asked if one.verb == "patch" and one.target.name == "not"]


async def test_the_check_is_called_active_and_those_of_others_are_not_touched(
    api: FakeApi, kueue: Kueue
) -> None:
    other = {"metadata": {"name": "other"}, "spec": {"controllerName": "somebody/else"}}
    api.put("admissionchecks", other)
    kueue.cluster.show(sound("a"))
    async with kueue.led():
        await until(lambda: "status" in api.objects["admissionchecks"]["sound"])
    (condition,) = api.objects["admissionchecks"]["sound"]["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("Active", "True")
    assert "status" not in api.objects["admissionchecks"]["other"]


async def test_nothing_of_kueue_is_read_unless_it_is_switched_on(
    api: FakeApi, kueue: Kueue
) -> None:
    kueue.settings = Settings()
    kueue.cluster.show(bad("a"))
    kueue.reserve("train", pods("workers", 1))
    async with kueue.led():
        assert not api.verbs("workloads")
    assert kueue.check("train")["message"] == ""
