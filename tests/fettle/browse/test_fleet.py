"""What the page is told: the fleet in one compact answer, the headline, and its own files."""

import time
from typing import Any

import msgspec
import pytest

from fettle.api import core, kinds
from fettle.browse import TRUSTED
from fettle.browse.fleet import (
    LONGEST_TEXT,
    MOST_CELLS,
    MOST_TEXTS,
    CompactFleet,
    FleetHandlers,
)
from fettle.browse.page_serving import MOST_WAITING, page_files
from fettle.cel import SelectorEngine
from fettle.cluster import Publisher, View
from fettle.config import Settings
from fettle.explain import list_nodes
from fettle.observing import LastRequests, count_missing
from fettle.scheduling import Answers
from tests.fettle import building as b
from tests.fettle.browse.showing import known, reply_of, told
from tests.fettle.cluster.inventory import fleets, saying


def letters(view: View) -> dict[str, list[str]]:
    """Of each kind of devices on each node."""
    fleet = msgspec.json.decode(msgspec.json.encode(CompactFleet().fleet(view)))
    return {name: [kind[3] for kind in kinds_] for name, *_, kinds_ in fleet["nodes"]}


def running(node: str, gpus: int) -> core.Pod:
    """A pod that holds so many units; nobody names them."""
    raw = b.gpu_pod(gpus)
    raw["spec"]["nodeName"] = node
    raw["status"] = {"phase": "Running"}
    return b.pod(raw)


def answers(view: View) -> Answers:
    publisher = Publisher()
    publisher.publish(view, frozenset())
    return Answers(publisher, SelectorEngine(), Settings())


def test_a_letter_is_a_device_and_a_small_one_is_in_use() -> None:
    devices = [b.device("a"), b.device("b", 0.1), b.device("c", 0.5, allocated=True)]
    dra = b.node("dra", pools=(b.pool(*devices, name="dra"),))
    plugin = b.node("plugin", gpus=4, units={"GPU-1": 0.1})
    pod = running("plugin", 4)
    assert letters(b.view(dra, plugin, pods={"default/p": pod})) == {
        "dra": ["HUd"],
        "plugin": ["uhhh"],
    }


def test_units_without_a_name_are_in_use_as_far_as_pods_have_taken_them() -> None:
    pod = b.pod(b.gpu_pod())
    raw = b.gpu_pod()
    raw["spec"]["nodeName"] = "n"
    pods = {"default/p": b.pod(raw), "default/q": pod}
    (found,) = letters(b.view(b.node("n", gpus=4), pods=pods)).values()
    assert found == ["hHHH"]


def test_a_unit_is_in_use_exactly_where_devices_says_that_a_pod_certainly_holds_it() -> None:
    node = b.node("n", gpus=8, units={"GPU-1": 0.1})
    for gpus in range(1, 9):
        view = b.view(node, pods={"default/p": running("n", gpus)})
        (listed,) = list_nodes(view, only_unsound=False)
        (unit,) = listed["resources"][0]["units"]
        ((shown,),) = letters(view).values()
        assert shown[0].islower() == (unit["use"] == "certain")
        assert sum(map(str.islower, shown)) == gpus


def test_units_in_use_of_which_nobody_can_say_which_they_are_are_counted() -> None:
    node = b.node("n", gpus=8, units={f"GPU-{i}": 0.9 for i in range(8)})
    view = b.view(node, pods={"default/p": running("n", 5)})
    (found,), _ = in_full(CompactFleet().fleet(view))
    (kind,) = found[-1]
    assert (kind[3], kind[-1]) == ("H" * 8, 5)


def test_no_more_units_are_drawn_than_the_node_has() -> None:
    node = b.node("n", gpus=8, units={f"GPU-{i}": 0.9 for i in range(8)})
    plugin = msgspec.structs.replace(node.plugins[b.RESOURCE], allocatable=6)
    node = msgspec.structs.replace(node, plugins={b.RESOURCE: plugin})
    assert letters(b.view(node)) == {"n": ["H" * 8]}
    some = msgspec.structs.replace(plugin, units=plugin.units[:3])
    node = msgspec.structs.replace(node, plugins={b.RESOURCE: some})
    assert letters(b.view(node)) == {"n": ["HHH" + "HHH" + "WW"]}


def test_devices_are_missing_at_once_as_status_says_and_withdrawn_ones_are_withdrawn() -> None:
    fleet = fleets.Fleet()
    annotated = {"annotations": {"fettle.dev/expected-devices": f"{b.RESOURCE}=10"}}
    fleet.put(kinds.NODE, fleets.node("n", gpus=8, allocatable=6, **annotated))
    view = fleet.look()
    assert letters(view) == {"n": ["H" * 6 + "WWMM"]}
    missing = count_missing(view, fleet.now)[b.RESOURCE].devices
    assert CompactFleet().fleet(view)["missing"] == missing == 4


def test_what_is_long_or_many_is_cut() -> None:
    many = b.node("n", pools=(b.pool(*[b.device(f"d{i}") for i in range(500)]),))
    record = msgspec.json.decode(CompactFleet().fleet(b.view(many))["nodes"][0])
    _, _, _, shown, more, *_ = record[-1][0]
    assert (len(shown), more) == (MOST_CELLS, 500 - MOST_CELLS)
    long = b.node("n", gpus=1, own=b.health(0.1, text="x" * 10_000))
    assert max(map(len, CompactFleet().fleet(b.view(long))["texts"])) == LONGEST_TEXT + 1


def test_a_device_of_the_network_is_told_once_however_many_nodes_see_it() -> None:
    shared = b.pool(b.device("nic", local=""), name="fabric")
    fleet = CompactFleet().fleet(b.view(b.node("a", pools=(shared,)), b.node("b", pools=(shared,))))
    assert [kind[3] for kind in fleet["network"]] == ["H"]
    assert fleet["nodes"] == []


def test_nodes_are_grouped_by_the_label_that_somebody_names() -> None:
    node = msgspec.structs.replace(b.node("n", gpus=1), labels={"row": "7", "other": "x"})
    fleet = CompactFleet("row").fleet(b.view(node))
    assert fleet["groups"] == ["pool", "model", "rack", "row"]
    record = msgspec.json.decode(fleet["nodes"][0])
    assert [fleet["texts"][i] for i in record[1]] == ["", "", "", "7"]


def in_full(fleet: Any) -> Any:
    """With texts and layouts in place of their numbers."""
    texts, layouts = fleet["texts"], fleet["layouts"]

    def kind(told: Any) -> Any:
        name, pool, layout, shown, more, said, used = told
        of_cells = [[*one[:3], texts[one[3]], texts[one[4]], one[5]] for one in said]
        return texts[name], texts[pool], [*layouts[layout]], shown, more, of_cells, used

    nodes = []
    for record in fleet["nodes"]:
        name, labels, score, state, since, cause, text, flags, kinds_ = msgspec.json.decode(record)
        own = [texts[at] for at in (*labels, cause, text)]
        nodes.append((name, own, score, state, since, flags, [*map(kind, kinds_)]))
    return nodes, [*map(kind, fleet["network"])]


def test_what_is_kept_of_former_views_is_as_if_it_were_told_anew() -> None:
    """Each view differs from the one before in one thing."""
    raw = b.gpu_pod()
    raw["spec"]["nodeName"] = "n2"
    shared = b.pool(b.device("nic", local=""), name="fabric")
    first = [b.node("n1", gpus=4), b.node("n2", gpus=4), b.node("n3", pools=(shared,))]
    ill = b.node("n1", gpus=4, own=b.health(0.1, text="broken"))
    labelled = msgspec.structs.replace(first[1], labels={"row": "7"})
    views = [
        b.view(*first),
        b.view(ill, *first[1:]),
        b.view(ill, *first[1:], pods={"default/p": b.pod(raw)}),
        b.view(ill, labelled, first[2], pods={"default/p": b.pod(raw)}),
        b.view(ill, labelled),
        b.view(*first),
    ]
    kept = CompactFleet("row")
    for view in views:
        assert in_full(kept.fleet(view)) == in_full(CompactFleet("row").fleet(view))


def test_texts_that_nobody_says_any_more_are_forgotten() -> None:
    kept, fresh = CompactFleet(), CompactFleet()
    for number in range(100):
        view = b.view(b.node("n", gpus=1, own=b.health(0.1, text=f"{number} errors")))
        told = kept.fleet(view)
    few = len(fresh.fleet(view)["texts"])
    assert len(told["texts"]) <= (MOST_TEXTS + 1) * (few + 1)


async def test_whoever_has_a_fleet_is_told_the_newest_and_whoever_has_none_is_told_at_once() -> (
    None
):
    publisher, node = Publisher(), b.node("n", gpus=8)
    publisher.publish(b.view(node), frozenset())
    handlers = FleetHandlers(known(Answers(publisher, SelectorEngine(), Settings())))

    async def generation(**query: str) -> int:
        reply = await handlers.fleet(query, TRUSTED)
        assert isinstance(reply.body, bytes)
        told: int = msgspec.json.decode(reply.body)["generation"]
        return told

    first = await generation()
    view = msgspec.structs.replace(publisher.view, generation=first + 1)
    publisher.publish(view, frozenset())
    assert await generation() in (first, first + 1)  # whatever is there
    assert await generation(tag="older") == first + 1


async def test_while_nothing_changes_only_the_tag_is_answered() -> None:
    shown = known(answers(b.view(b.node("n", gpus=8))))
    _, first = await told(shown, "/fleet")
    status, second = await told(shown, f"/fleet?tag={first['tag']}")
    assert status == 200
    assert second == {"version": 1, "tag": first["tag"]}
    _, third = await told(shown, "/fleet?tag=another")
    assert third["nodes"] == first["nodes"]


async def test_the_headline_lists_pods_that_wait_the_oldest_first_and_says_how_many() -> None:
    pods = {}
    for number in range(MOST_WAITING + 1):
        raw = b.gpu_pod(name=f"p{number}")
        minutes, seconds = divmod(MOST_WAITING - number, 60)
        raw["metadata"]["creationTimestamp"] = f"2026-01-01T00:{minutes:02}:{seconds:02}Z"
        pods[f"default/p{number}"] = b.pod(raw)
    _, found = await told(known(answers(b.view(b.node("n", gpus=8), pods=pods))), "/headline")
    assert found["waitingTotal"] == MOST_WAITING + 1
    assert found["waiting"][0]["pod"] == f"default/p{MOST_WAITING}"
    assert len(found["waiting"]) == MOST_WAITING
    assert found["mode"] == "enforce"


async def test_the_headline_has_by_role_how_long_ago_it_was_asked_and_notes_about_callers() -> None:
    last = LastRequests("extender", ("filter", "prioritize"), "nobody has asked yet")
    last.at["filter"] = time.perf_counter()
    shown = known(
        answers(b.view()),
        last_requests=lambda: {"extender": last},
        notes=lambda: ["extender: a sentence about something else"],
        caller_notes=lambda: ["extender: asked in vain for /bind"],
    )
    _, found = await told(shown, "/headline")
    assert found["callers"] == ["extender: asked in vain for /bind"]
    ages = found["asked"]["extender"]
    assert 0 <= ages["filter"] < 60
    assert ages["prioritize"] is None


async def test_an_ill_device_says_why_and_since_when() -> None:
    fleet = fleets.Fleet()
    fleet.put(kinds.NODE, saying.naming("GPU-1a2b", plugin=True))
    _, found = await told(known(answers(fleet.look())), "/fleet")
    (node,) = found["nodes"]
    _, _, _, cells, _, details, _ = node[-1][0]
    assert cells[0] in "DU"
    (place, score, _, cause, why, flags) = details[0]
    assert (place, flags) == (0, 0)
    assert score < 0.8
    assert "GpuMemWatch" in found["texts"][cause]
    assert "GPU-1a2b" in found["texts"][why]


@pytest.mark.parametrize(
    ("taint", "cause"),
    [
        ("example.com/crc", "taint example.com/crc"),
        ("gpu.nvidia.com/xid", "taint gpu.nvidia.com/xid"),
    ],
)
def test_what_no_rule_names_is_its_own_cause(taint: str, cause: str) -> None:
    fleet = fleets.Fleet()
    tainted = [{"key": taint, "value": "79", "effect": "NoSchedule"}]
    fleet.put(kinds.NODE, fleets.node("n", gpus=0))
    fleet.put(kinds.SLICE, fleets.slice_("n", devices=1, taints=tainted))
    (found,), _ = in_full(CompactFleet().fleet(fleet.look()))
    (of_device,) = found[-1][0][-2]
    assert of_device[3] == cause


# The page's own files


@pytest.mark.parametrize("path", sorted(page_files()))
async def test_the_files_of_the_page_are_for_everybody_under_a_strict_policy(path: str) -> None:
    reply = await reply_of(known(answers(b.view())), path)
    policy = reply.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert "unsafe" not in policy
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", sorted(page_files()))
def test_the_page_parses_no_text_as_html_and_loads_nothing_from_elsewhere(path: str) -> None:
    text = page_files()[path].content.decode()
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "style="):
        assert word not in text
    assert "https://" not in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
