"""Which pods use a device, so that people know whom to tell of a fault."""

from collections.abc import Iterable
from typing import Any

import pytest

from fettle.api import resource
from fettle.cli.printing import print_devices
from fettle.cluster import NodeView, View
from fettle.explain.devices import list_network_devices, list_nodes
from fettle.explain.users import Users
from fettle.model import Health
from tests.fettle import building as b

Raw = dict[str, Any]


def placed(name: str, node: str = "n", units: tuple[str, ...] = ()) -> Raw:
    """A pod on a node, with the units that it holds as the kubelet reports."""
    pod = b.gpu_pod(name=name)
    pod["metadata"]["uid"] = f"uid-{name}"
    pod["spec"]["nodeName"] = node
    held = [{"resourceID": unit, "health": "Healthy"} for unit in units]
    said = [{"name": b.RESOURCE, "resources": held}]
    pod["status"] = {"phase": "Running", "containerStatuses": [{"allocatedResourcesStatus": said}]}
    return pod


def holding(claim: str, *devices: str, pods: tuple[str, ...] = (), **result: Any) -> Raw:
    results = [
        {"request": "r", "driver": b.DRIVER, "pool": "n", "device": device, **result}
        for device in devices
    ]
    reserved = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return {
        "metadata": {"name": claim, "namespace": "default"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved},
    }


def seen(node: NodeView, *, pods: tuple[Raw, ...] = (), claims: tuple[Raw, ...] = ()) -> View:
    return b.view(
        node,
        pods={pod.metadata.key: pod for pod in map(b.pod, pods)},
        claims={claim.metadata.key: claim for claim in map(b.claim, claims)},
    )


def users(view: View) -> dict[str, list[str]]:
    """The users by device or unit, and by node."""
    (node,) = list_nodes(view)
    units = [unit for resource in node["resources"] for unit in resource["units"]]
    return {
        "node": node["usedBy"],
        **{device["device"].rpartition("/")[2]: device["usedBy"] for device in node["devices"]},
        **{unit["unit"]: unit["usedBy"] for unit in units},
    }


def test_the_pods_of_a_claim_are_looked_up_once_however_many_devices_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    of_claim = Users._of_claim

    def counted(self: Users, claim: resource.ResourceClaim) -> Iterable[str]:
        asked.append(claim.metadata.name)
        return of_claim(self, claim)

    monkeypatch.setattr(Users, "_of_claim", counted)
    devices = [f"d{number}" for number in range(100)]
    view = seen(
        divided(*devices), pods=(placed("p"),), claims=(holding("c", *devices, pods=("p",)),)
    )
    assert users(view)["d99"] == ["default/p"]
    assert asked == ["c"]


def divided(*names: str) -> NodeView:
    return b.node(pools=(b.pool(*(b.device(name, 0.5) for name in names)),))


def test_a_device_names_every_pod_that_its_claim_is_reserved_for() -> None:
    claims = (
        holding("shared", "gpu-0", pods=("a", "b")),
        holding("own", "gpu-1", pods=("c",)),
    )
    pods = (placed("a"), placed("b"), placed("c"))
    assert users(seen(divided("gpu-0", "gpu-1", "gpu-2"), pods=pods, claims=claims)) == {
        "node": ["default/a", "default/b", "default/c"],
        "gpu-0": ["default/a", "default/b"],
        "gpu-1": ["default/c"],
        "gpu-2": [],
    }


def test_a_device_whose_claim_no_known_pod_uses_names_the_claim() -> None:
    claims = (holding("kept", "gpu-0"), holding("odd", "gpu-1", pods=("gone",)))
    assert users(seen(divided("gpu-0", "gpu-1"), claims=claims)) == {
        "node": [],
        "gpu-0": ["claim default/kept"],
        "gpu-1": ["claim default/odd"],
    }


def test_a_pod_with_admin_access_does_not_use_the_device() -> None:
    claims = (holding("monitor", "gpu-0", pods=("m",), adminAccess=True),)
    view = seen(divided("gpu-0"), pods=(placed("m"),), claims=claims)
    assert users(view)["gpu-0"] == []


def test_a_unit_names_the_pods_that_hold_it_or_a_replica_of_it() -> None:
    node = b.node(gpus=8, units={"GPU-1": 0.5, "GPU-2": 0.5})
    pods = (
        placed("a", units=("GPU-1::0",)),
        placed("b", units=("GPU-1::3", "GPU-2")),
        placed("elsewhere", node="other", units=("GPU-2",)),
    )
    found = users(seen(node, pods=pods))
    assert found["GPU-1"] == ["default/a", "default/b"]
    assert found["GPU-2"] == ["default/b"]
    assert found["node"] == ["default/a", "default/b"]


def shown(view: View, capsys: pytest.CaptureFixture[str]) -> list[str]:
    listed = {"nodes": list_nodes(view), "network": list_network_devices(view)}
    print_devices({**listed, "quarantined": {}}, everything=False)
    return capsys.readouterr().out.splitlines()


def test_the_first_users_of_a_device_are_printed_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ("a", "b", "c", "d", "e")
    claims = (holding("shared", "gpu-0", pods=names),)
    lines = shown(seen(divided("gpu-0"), pods=tuple(map(placed, names)), claims=claims), capsys)
    assert lines[0].split() == ["NODE", "DEVICE", "SCORE", "STATE", "USED", "BY", "WHY"]
    first, *more = (line.split() for line in lines[1:])
    assert first[4:] == ["default/a", "a", "fault"]
    assert more == [["default/b"], ["default/c"], ["…", "2", "more"]]


def test_the_column_of_users_is_left_out_if_there_are_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "USED" not in shown(seen(divided("gpu-0")), capsys)[0]


def test_an_unhealthy_node_names_its_pods(capsys: pytest.CaptureFixture[str]) -> None:
    ill: Health = b.health(0.2)
    lines = shown(seen(b.node(gpus=8, own=ill), pods=(placed("a"),)), capsys)
    assert lines[1].split()[:5] == ["n", "(node)", "0.20", "Unhealthy", "default/a"]
