"""What the verdicts on a pod come to, in one line."""

from typing import Any

import msgspec
import pytest

from fettle.api import core
from fettle.browse import Known
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher
from fettle.config import Settings
from fettle.explain import conclusion
from fettle.explain.withholding import withhold_of_pod
from fettle.scheduling import Answers
from tests.fettle import building as b
from tests.fettle.browse.showing import known, told


def labelled(
    name: str, *taints: core.Taint, unschedulable: bool = False, **labels: str
) -> NodeView:
    node = b.node(name, gpus=8)
    return msgspec.structs.replace(node, labels=labels, taints=taints, unschedulable=unschedulable)


def cluster(*nodes: NodeView, **spec: Any) -> Known:
    """One pod `default/p` that asks for one GPU, and these nodes."""
    raw = b.gpu_pod()
    raw["spec"] |= spec
    publisher = Publisher()
    publisher.publish(b.view(*nodes, pods={"default/p": b.pod(raw)}), frozenset())
    return known(Answers(publisher, SelectorEngine(), Settings()))


async def explained(*nodes: NodeView, **spec: Any) -> dict[str, Any]:
    _, answer = await told(cluster(*nodes, **spec), "/explain?pod=default/p")
    found: dict[str, Any] = answer
    return found


async def answered(*nodes: NodeView, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await explained(*nodes, **spec))["answer"]
    return found


async def test_the_answer_says_how_many_fit_which_are_best_and_why_the_rest_do_not() -> None:
    ill = b.node("ill", gpus=8, own=b.health(0.1))
    answer = await answered(b.node("a", gpus=8), b.node("b", gpus=8), ill)
    assert answer["text"].startswith("default/p fits 2 of 3 nodes; best a, b (score ")
    assert answer["text"].endswith("; 1 refused (node Unhealthy)")
    assert (answer["fit"], answer["best"], answer["next"]) == (2, ["a", "b"], "")


async def test_the_answer_counts_each_cause_beside_its_words() -> None:
    ill = [b.node(name, gpus=8, own=b.health(0.1)) for name in ("ill", "dead")]
    held = b.node("held", gpus=8, own=b.health(0.0, held=True))
    answer = await answered(b.node("a", gpus=8), *ill, held)
    words = [one["words"] for one in answer["causes"]]
    assert answer["text"].endswith(f"; 3 refused ({words[0]}: 2, {words[1]}: 1)")


async def test_where_no_node_fits_the_answer_says_who_must_do_what() -> None:
    answer = await answered(b.node("ill", gpus=8, own=b.health(0.1)))
    assert "fits none of 1 node; 1 refused (node Unhealthy)" in answer["text"]
    assert answer["next"].startswith("an administrator must mend it (`fettle explain node ill`")


@pytest.mark.parametrize(
    ("spec", "by", "detail"),
    [
        ({"nodeSelector": {"gpu": "h100"}}, "nodeSelector", "gpu=h100"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "gpu", "operator": "In", "values": ["h100"]}
                                    ]
                                }
                            ]
                        }
                    }
                }
            },
            "nodeAffinity",
            "",
        ),
    ],
    ids=["selector", "affinity"],
)
async def test_a_node_that_the_pod_itself_excludes_does_not_count_as_one_that_fits(
    spec: dict[str, Any], by: str, detail: str
) -> None:
    nodes = (labelled("a1", gpu="a100"), labelled("h1", gpu="h100"), labelled("a2"))
    answer = await answered(*nodes, **spec)
    assert answer["text"].startswith("default/p fits 1 of 3 nodes; best h1 ")
    assert answer["excluded"] == [{"by": by, "detail": detail, "nodes": 2, "first": "a1"}]


async def test_taints_and_cordons_exclude_nodes_unless_the_pod_tolerates_them() -> None:
    taint = core.Taint(key="team", value="x", effect="NoSchedule")
    soft = core.Taint(key="soft", effect="PreferNoSchedule")
    nodes = (labelled("t", taint), labelled("s", soft), labelled("c", unschedulable=True))
    found = await answered(*nodes)
    assert {(one["by"], one["first"]) for one in found["excluded"]} == {
        ("taint", "t"),
        ("cordon", "c"),
    }
    tolerant = await answered(*nodes, tolerations=[{"operator": "Exists"}])
    assert (tolerant["fit"], tolerant["excluded"]) == (3, [])


async def test_nodes_without_its_devices_can_never_matter() -> None:
    answer = await answered(b.node("gpu", gpus=8), b.node("cpu-1"), b.node("cpu-2"))
    assert answer["excluded"] == [{"by": "noDevices", "detail": "", "nodes": 2, "first": "cpu-1"}]
    nowhere = await answered(b.node("cpu-1"))
    assert "nodes with its devices" in nowhere["next"]


async def test_busy_devices_are_told_as_waiting_for_other_pods() -> None:
    answer = conclusion(
        {
            "pod": "ns/p",
            "policy": {},
            "reasons": {"notes": []},
            "nodes": {
                "n": {
                    "allowed": True,
                    "fits": False,
                    "score": 0,
                    "rejected": ["x"],
                    "undecided": [],
                    "reasons": {"rejected": [{"code": "UnitsTaken", "text": "x"}]},
                }
            },
        }
    )
    assert answer["next"] == "other pods must end first"


async def test_an_answer_to_somebody_without_rights_names_no_label_or_taint() -> None:
    told_all = await explained(labelled("a"), nodeSelector={"secret": "x"})
    hidden = withhold_of_pod(told_all | {"placed": None})
    assert hidden["nodes"]["a"]["excluded"] == {"by": "nodeSelector", "detail": ""}
    assert "secret" not in conclusion(hidden)["text"]


async def test_a_held_node_without_such_devices_is_excluded_for_all_who_read_its_answer() -> None:
    bare = b.node("bare", own=msgspec.structs.replace(b.health(0.1), held=True))
    found = await explained(b.node("n", gpus=8), bare, b.node("ill", gpus=8, own=b.health(0.1)))
    excluded = {name: one["excluded"] for name, one in found["nodes"].items()}
    assert excluded == {"n": None, "bare": {"by": "noDevices", "detail": ""}, "ill": None}
    refused = [one["nodes"] for one in found["answer"]["causes"] if one["verdict"] == "refused"]
    assert refused == [1]
