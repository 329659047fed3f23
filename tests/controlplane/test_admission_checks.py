"""Kueue's AdmissionCheck `fettle.dev/sound-devices`, with Kueue's definitions and Kueue's part
played by hand. `test_kueue.py` has Kueue itself."""

from __future__ import annotations

from pathlib import Path

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.admission_checks import (
    CHECK,
    FLAVOR,
    POOL,
    RIGHTS,
    SERVED,
    is_active,
    start_answering,
    until_checked,
)
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import kueue_definitions
from tests.controlplane.fleet import create_node


async def reserve(api: Api, name: str, pods: int, at: str = "") -> None:
    """As Kueue does: a Workload of this many pods with eight GPUs, that holds quota."""
    template = objects.pod_template(gpus=8, annotations={"fettle.dev/policy": "training"})
    sets = [{"name": "main", "count": pods, "template": template}]
    metadata = {"name": name, "namespace": "default"}
    await api.create(
        {"apiVersion": SERVED, "kind": "Workload", "metadata": metadata, "spec": {"podSets": sets}}
    )
    at = at or objects.now()
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "",
        "lastTransitionTime": at,
    }
    assigned = {"name": "main", "flavors": {objects.GPU: "gpus"}, "count": pods}
    state = {"state": "Pending", "message": "", "lastTransitionTime": at}
    status = {
        "conditions": [reserved],
        "admission": {"clusterQueue": "all", "podSetAssignments": [assigned]},
        "admissionChecks": [{"name": name, **state} for name in ("other", "sound-devices")],
    }
    await api.patch_status("workloads", name, status, "default")


async def test_a_workload_starts_once_there_are_enough_sound_devices_for_all_of_its_pods(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await shipped.apply(api, kueue_definitions())
    await api.create(CHECK)
    await api.create(FLAVOR)
    await create_node(api, objects.node("elsewhere", 8))
    for name in ("a", "b"):
        await create_node(api, objects.node(name, 8, labels=POOL))
    await api.patch("nodes", "b", {"metadata": {"annotations": {"fettle.dev/hold": "broken"}}})
    await start_answering(api, start_fettle, tmp_path)
    await is_active(api)

    await reserve(api, "gang", 2)
    found = await until_checked(api, "gang", "Pending")
    assert found["message"].startswith("main: 1 of 2 pods fit on sound devices now")
    assert found["message"].endswith("refused: b")
    await reserve(api, "patient", 2, at="2026-01-01T00:00:00Z")
    await until_checked(api, "patient", "Retry")
    await api.patch("nodes", "b", {"metadata": {"annotations": {"fettle.dev/hold": None}}})
    await until_checked(api, "gang", "Ready")
    checks = (await api.get("workloads", "gang", "default"))["status"]["admissionChecks"]
    assert {one["name"]: one["state"] for one in checks} == {
        "other": "Pending",
        "sound-devices": "Ready",
    }


async def test_of_a_workload_the_account_may_change_what_its_own_check_says_and_no_more(
    control_plane: ControlPlane, api: Api
) -> None:
    await shipped.apply(api, kueue_definitions())
    await shipped.apply_rbac(api)
    await shipped.apply(api, shipped.manifests(RIGHTS))
    others = {**CHECK, "metadata": {"name": "other"}, "spec": {"controllerName": "example.com/x"}}
    for check in (CHECK, others):
        await api.create(check)
    await reserve(api, "gang", 2)
    status = (await api.get("workloads", "gang", "default"))["status"]
    other, own = status["admissionChecks"]
    update = {"name": "main", "nodeSelector": {"a": "b"}}
    said = {"message": "so", "lastTransitionTime": objects.now()}
    allowed: dict[str, Object] = {
        state: {"admissionChecks": [other, {**own, **said, "state": state}]}
        for state in ("Ready", "Retry", "Pending")
    }
    forbidden: dict[str, Object] = {
        "the end": {"conditions": [{**status["conditions"][0], "type": "Finished"}]},
        "no quota": {"admission": None},
        "another queue": {"admission": {**status["admission"], "clusterQueue": "another"}},
        "a count": {"requeueState": {"count": 9}},
        "an answer for another": {"admissionChecks": [{**other, "state": "Ready"}, own]},
        "a word for another": {"admissionChecks": [{**other, "message": "no"}, own]},
        "a check less": {"admissionChecks": [own]},
        "a check more": {"admissionChecks": [other, own, {**own, "name": "third"}]},
        "the end of it": {"admissionChecks": [other, {**own, "state": "Rejected"}]},
        "a change of its pods": {"admissionChecks": [other, {**own, "podSetUpdates": [update]}]},
        "a wait": {"admissionChecks": [other, {**own, "requeueAfterSeconds": 9}]},
    }
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    active["lastTransitionTime"] = objects.now()
    of_workload, of_check = (
        f"{SERVED}/namespaces/default/workloads/gang",
        f"{SERVED}/admissionchecks",
    )
    tried = {what: (of_workload, change) for what, change in {**allowed, **forbidden}.items()}
    for name in ("other", "sound-devices"):
        tried[f"active {name}"] = (f"{of_check}/{name}", {"conditions": [active]})
    steward = await control_plane.api_as_service_account(shipped.STEWARD_ACCOUNT, shipped.NAMESPACE)
    async with steward:

        async def passing() -> set[str]:
            return {what for what, change in tried.items() if await passes(steward, *change)}

        own_changes = {*allowed, "active sound-devices"}
        await waiting.wait_until(passing, lambda found: found == own_changes, what="its own pass")
        for policy in ("fettle-kueue", "fettle-kueue-checks"):
            await api.delete("validatingadmissionpolicybindings", policy)
        await waiting.wait_until(passing, lambda found: found == {*tried}, what="all pass without")


async def passes(account: Api, path: str, status: Object) -> bool:
    try:
        await account.request(
            "PATCH", f"/apis/{path}/status?dryRun=All", body={"status": status}, form="merge"
        )
    except ApiError as error:
        if error.code != 403:
            raise
        return False
    return True
