"""The steward writes on Nodes how healthy their devices are, and all of it goes when its reason
ends."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.fettle_process import FettleProcess
from tests.controlplane.fleet import create_dra_node
from tests.controlplane.taints import RIGHTS, condition, marks, publish, until_marked

CORDON = "cordon: AnyDevice, confirmSeconds: 0, maxCordonedShare: 1"
ALL = f"label: true, condition: true, holdSeconds: 1, {CORDON}"
NOTHING = ("", "", "")


def settings(folder: Path, marks: str = ALL, more: str = "") -> Path:
    file = folder / "settings.yaml"
    file.write_text(f"nodeMarks: {{{marks}}}\n{more}\n")
    return file


async def notes(fettle: FettleProcess) -> list[str]:
    """What /readyz says of these marks."""
    _, said = await fettle.browse("/readyz", verbose="true")
    return [line for line in str(said).splitlines() if "node marks: " in line]


async def explained_marks(fettle: FettleProcess, node: str) -> Any:
    _, explained = await fettle.browse("/explain", node=node)
    return explained["marks"]


async def until_noted(fettle: FettleProcess, what: str) -> None:
    await waiting.wait_until(
        lambda: notes(fettle), lambda said: what in str(said), what=f"/readyz says {what!r}"
    )


async def fleet(api: Api, names: Collection[str]) -> None:
    for name in names:
        await create_dra_node(api, name, 2)
    await shipped.apply(api, shipped.manifests(RIGHTS))


async def test_marks_follow_the_health_of_devices_and_cordons_a_budget(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await fleet(api, ("part", "whole", "theirs", "sound"))
    await api.patch("nodes", "theirs", {"spec": {"unschedulable": True}})
    file = settings(tmp_path, f"{ALL}, maxCordoned: 2")
    fettle = await start_fettle("steward", settings=file)
    healthy = ("healthy", "True", "")
    await until_marked(api, part=healthy, whole=healthy, theirs=("healthy", "True", "others'"))

    await publish(api, "part", 2, (1,))
    await until_marked(api, part=("degraded", "False", "ours"))
    node, said = await api.get("nodes", "part"), await condition(api, "part")
    assert said["reason"] == "DevicesUnhealthy"
    assert said["message"].startswith(f"1 Unhealthy of 2 devices: {objects.DRIVER} gpu-1: ")
    assert node["metadata"]["annotations"]["fettle.dev/health-reason"].endswith(said["message"])
    assert node["metadata"]["annotations"]["fettle.dev/cordoned"] == said["message"]
    assert "Ready" in [c["type"] for c in node["status"]["conditions"]]
    shown = await waiting.wait_until(
        lambda: explained_marks(fettle, "part"),
        lambda shown: shown and shown["cordoned"] and shown["label"] == "degraded",
        what="explain shows what was written",
    )
    assert shown["condition"]["status"] == "False"
    assert shown["cordoned"] == said["message"]

    # Two are cordoned now, and more are not allowed.
    await publish(api, "theirs", 2, (0,))
    await publish(api, "whole", 2, (0, 1))
    await until_marked(
        api, theirs=("degraded", "False", "others'"), whole=("unhealthy", "False", "")
    )
    await until_noted(fettle, "1 more nodes are bad enough to be cordoned")

    await publish(api, "part", 2)
    await until_marked(api, part=healthy, whole=("unhealthy", "False", "ours"))
    # Somebody uncordons it all the same, and it stays so.
    await api.patch("nodes", "whole", {"spec": {"unschedulable": False}})
    await publish(api, "theirs", 2)
    await until_marked(
        api, theirs=("healthy", "True", "others'"), whole=("unhealthy", "False", "ours, left")
    )
    await publish(api, "whole", 2)
    await until_marked(api, whole=healthy, sound=healthy)


async def test_what_a_killed_leader_began_its_successor_ends_and_it_goes_when_it_is_off(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    names = [f"n{i}" for i in range(6)]
    await fleet(api, names)
    await publish(api, "n0", 2, (0,))
    slow, observing = "steward: {leaseSeconds: 3}", "mode: observe\nsteward: {leaseSeconds: 3}"
    file = settings(tmp_path, f"{ALL}, writesPerSecond: 1", slow)
    first = await start_fettle("steward", settings=file)
    await until_marked(api, n0=("degraded", "False", "ours"))
    first.kill()
    assert NOTHING in (await marks(api)).values()
    fettle = await start_fettle("steward", settings=file)
    of_all = dict.fromkeys(names, ("healthy", "True", "")) | {"n0": ("degraded", "False", "ours")}
    await until_marked(api, **of_all)

    settings(tmp_path, ALL, observing)  # it reads them again
    await until_marked(api, **dict.fromkeys(names, NOTHING))
    annotations = [n["metadata"].get("annotations", {}) for n in await api.list("nodes")]
    assert not [key for each in annotations for key in each if key.startswith("fettle.dev/")]
    await until_noted(fettle, "in mode observe none is written")


async def test_without_a_right_that_mark_alone_is_missing_and_it_is_said_once(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await fleet(api, ("n",))
    role = await api.get("clusterroles", "fettle-node-marks")
    fettle = await start_fettle("steward", settings=settings(tmp_path))
    await until_marked(api, n=("healthy", "True", ""))
    assert await notes(fettle) == []

    await api.patch("clusterroles", "fettle-node-marks", {"rules": role["rules"][:2]})
    await publish(api, "n", 2, (0,))
    await until_noted(fettle, "node marks: condition cannot be written")
    await until_marked(api, n=("degraded", "True", "ours"))
    log = fettle.process.log.read_text().splitlines()
    assert sum("cannot be written" in line and "node-marks.yaml" in line for line in log) == 1

    await api.patch("clusterroles", "fettle-node-marks", {"rules": role["rules"]})
    await until_marked(api, n=("degraded", "False", "ours"))
    await waiting.wait_until(lambda: notes(fettle), lambda said: said == [], what="all is well")
