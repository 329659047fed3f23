"""Whoever removes Fettle as docs/installing.md says is left with nothing of it in the cluster."""

from __future__ import annotations

import json
from pathlib import Path

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes
from tests.controlplane.installed import start_registered

APPLIED = ("rbac", "rbac/optional", "crds")
"""Folders of deploy/ that are applied, and deleted in this order. Fettle is a process here."""
LOST = objects.taint("gpu.nvidia.com/xid", "None", "79")
HOLD = "fettle.dev/hold"

SETTINGS = """
deviceTaints: {unhealthy: NoSchedule, confirmSeconds: 0}
nodeMarks: {label: true, condition: true}
"""
"""Everything that the steward writes because of health is switched on."""
MARKS = {"DeviceTaintRule", "DeviceHealth", "Node", "Lease"}
"""Kinds of what bears a mark of Fettle then, beside what was applied."""


async def traces(api: Api) -> list[str]:
    """All objects that mention Fettle anywhere. Events are not counted: they end by themselves."""
    groups = json.loads(await api.request_text("GET", "/apis"))["groups"]
    versions = ["/api/v1", *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups)]
    found = []
    for version in versions:
        for resource in (await api.request("GET", version))["resources"]:
            kind = resource["kind"]
            if "/" in resource["name"] or "list" not in resource["verbs"] or kind == "Event":
                continue
            try:
                listed = await api.request("GET", f"{version}/{resource['name']}")
            except ApiError:
                continue  # its definition has just been deleted
            found += [f"{kind} {_key(one)}" for one in listed["items"] if _mentions(one)]
    return found


def _key(one: Object) -> str:
    metadata = one["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".lstrip("/")


def _mentions(one: Object) -> bool:
    metadata = {k: v for k, v in one["metadata"].items() if k != "managedFields"}
    return "fettle" in json.dumps({**one, "metadata": metadata}).lower()


async def delete(api: Api, documents: list[Object]) -> None:
    """As `kubectl delete -f` does."""
    for document in documents:
        metadata = document["metadata"]
        group = document["apiVersion"].rpartition("/")[0]
        plural = {
            "PriorityClass": "priorityclasses",
            "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
        }.get(document["kind"], f"{document['kind'].lower()}s")
        name = f"{plural}.{group}" if group else plural
        if await api.find(name, metadata["name"], metadata.get("namespace", "default")):
            await api.delete(name, metadata["name"], metadata.get("namespace", "default"))


async def test_what_the_documents_say_about_removing_leaves_nothing(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    assert await traces(api) == []
    await control_plane.start_controller_manager()
    await create_dra_node(api, "ill", objects.gpu_devices(8, taints={0: [LOST]}))
    await create_dra_node(api, "held", 8)
    await create_gpu_nodes(api, "gpu")
    held = {"metadata": {"annotations": {HOLD: "fan swap"}}}
    await api.patch("nodes", "held", held)
    for folder in APPLIED:
        await shipped.apply(api, shipped.manifests(shipped.DEPLOY / folder))
        await waiting.wait_until(  # else the pod among the optional files is refused
            lambda: api.find("serviceaccounts", "default", shipped.NAMESPACE),
            what="the namespace has its service account",
        )
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS)
    fettle = await start_registered(api, start_fettle, settings=file)
    marked = await waiting.wait_until(
        lambda: traces(api),
        lambda seen: {one.partition(" ")[0] for one in seen} >= MARKS and "Node ill" in seen,
        what=f"there are {MARKS} of Fettle",
        every_s=0.5,
    )
    assert {"Node held", "Node ill"} <= {*marked}

    # The steps of docs/installing.md
    await delete(api, shipped.manifests(shipped.DEPLOY / "webhook"))
    file.write_text("mode: observe\nsteward: {dryRun: true}\n")
    await waiting.wait_until(
        lambda: api.list("devicetaintrules"), lambda rules: rules == [], what="taints are gone"
    )
    await api.patch("nodes", "held", {"metadata": {"annotations": {HOLD: None}}})
    await waiting.wait_until(
        lambda: traces(api),
        lambda seen: not [one for one in seen if one.startswith("Node ")],
        what="nodes bear no mark",
        every_s=0.5,
    )
    await fettle.stop()
    await delete(api, shipped.manifests(shipped.DEPLOY / "one-process" / "rights.yaml"))
    for folder in APPLIED:
        await delete(api, shipped.manifests(shipped.DEPLOY / folder))
    await waiting.wait_until(
        lambda: traces(api), lambda seen: seen == [], what="all is gone", timeout_s=60, every_s=0.5
    )
