"""What people read where one node is enough for the scheduler to give a pod up."""

from typing import Any

from fettle.cel import Outcome
from fettle.cel.runtime import outcomes
from fettle.cel.runtime.outcomes import MATCH
from fettle.dra import Alternative, Claim, DeviceView, Request
from fettle.explain.pods import explain_pod
from fettle.model import BUILT_IN, Policies
from fettle.scheduling import Demand
from fettle.scheduling.judge.acceptance import Acceptance
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import judge
from tests.fettle import building as b

POLICY = BUILT_IN["inference"]
ASK = Demand(POLICY, claims=(Claim("k", (Request("r", (Alternative("r", b.DRIVER, ("any",)),)),)),))


def odd(_expression: str, device: DeviceView) -> Outcome:
    return outcomes.would_abort("no such key: model") if device.id.device == "odd" else MATCH


def notes(**devices: str) -> list[str]:
    """About a pod, by the device of each node."""
    nodes = {name: b.node(name, pools=(b.pool(b.device(d)),)) for name, d in devices.items()}
    acceptance, allocator = Acceptance(POLICY.placement), Allocator(odd)
    verdicts = {name: judge(ASK, node, acceptance, allocator) for name, node in nodes.items()}
    view = b.view(*nodes.values(), pods={"ns/p": b.pod(b.gpu_pod())})
    resolved = Policies().resolve({}, {}, {}, {})
    told: dict[str, Any] = explain_pod("ns/p", resolved, ASK, verdicts, view)
    found: list[str] = told["notes"]
    return found


def test_a_node_that_ends_the_attempt_is_said_to_keep_the_pod_from_all_others() -> None:
    (note,) = notes(n1="a", n2="odd", n3="b")
    assert note == (
        "node n2 can keep the pod off all other nodes: if the scheduler looks at it, its attempt "
        "to place the pod ends in an error: k/r on gpu.example.com/n/odd: no such key: "
        "model"
    )


def test_of_several_such_nodes_the_first_is_named() -> None:
    (note,) = notes(n1="a", n2="odd", n3="odd")
    assert note.startswith("node n2 (and 1 more) can keep the pod off all other nodes: ")


def test_where_every_node_says_so_no_more_is_said() -> None:
    assert notes(n1="odd", n2="odd") == []


def test_where_no_node_does_nothing_is_said() -> None:
    assert notes(n1="a", n2="b") == []
