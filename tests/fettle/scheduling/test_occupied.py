"""On which nodes pods have devices."""

from typing import Any

from fettle.api import core
from fettle.scheduling.occupied import OccupiedNodes
from tests.fettle import building as b


def pod(name: str, node: str | None, count: int = 1) -> core.Pod:
    raw: dict[str, Any] = b.gpu_pod(name=name, count=count)
    raw["spec"]["nodeName"] = node
    return b.pod(raw)


def test_a_node_is_occupied_while_a_pod_with_devices_is_there() -> None:
    occupied, view = OccupiedNodes(), b.view()
    for pods, names in (
        ([pod("a", None)], set()),
        ([pod("a", "n"), pod("b", "n"), pod("none", "m", count=0)], {"n"}),
        ([pod("b", "n"), pod("c", "m")], {"n", "m"}),
        ([pod("b", "m"), pod("c", "m")], {"m"}),
        ([], set()),
    ):
        after = b.view(pods={one.metadata.key: one for one in pods})
        occupied.follow(view, after)
        view = after
        assert occupied.names == names
