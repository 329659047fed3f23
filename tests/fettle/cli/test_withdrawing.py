"""`fettle withdraw`: nothing of Fettle stays on others' objects, or it says on which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from fettle.cli import withdrawing
from fettle.cli.commands import main
from tests.fettle.client.fake_api import FakeApi, fake_api

SETTINGS = "mode: enforce\nsteward: {lease: ours}\nnodeMarks: {label: true}\n"
LABELLED = {"metadata": {"name": "ill", "labels": {"fettle.dev/health": "unhealthy"}}}
RULE = {
    "metadata": {"name": "fettle-health-a"},
    "spec": {"taint": {"key": "fettle.dev/unhealthy", "effect": "NoSchedule"}},
}
CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    monkeypatch.setattr(withdrawing, "EVERY_S", 0.02)
    async with fake_api() as api:
        for resource in CONFIGURATIONS:
            api.put(resource, {"metadata": {"name": "fettle"}})
            api.put(resource, {"metadata": {"name": "of-others"}})
        metadata = {"name": "fettle", "namespace": "fettle-system"}
        api.put("configmaps", {"metadata": metadata, "data": {"settings.yaml": SETTINGS}})
        yield api


async def withdraw(api: FakeApi, folder: Path, *arguments: str) -> Result:
    given = ["withdraw", "--kubeconfig", str(api.kubeconfig(folder)), *arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, given)


def settings(api: FakeApi) -> Any:
    return yaml.safe_load(
        api.objects["configmaps"]["fettle-system/fettle"]["data"]["settings.yaml"]
    )


async def test_without_marks_only_our_webhook_configurations_go(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("nodes", {"metadata": {"name": "n", "labels": {"fettle.dev/policy": "training"}}})
    ended = await withdraw(api, tmp_path)
    assert ended.exit_code == 0, ended.output
    assert [[*api.objects[resource]] for resource in CONFIGURATIONS] == [["of-others"]] * 2
    assert settings(api)["mode"] == "enforce"
    assert (await withdraw(api, tmp_path)).exit_code == 0, "it may be done again"


async def test_with_marks_the_steward_is_told_and_awaited(api: FakeApi, tmp_path: Path) -> None:
    api.put("nodes", LABELLED)
    ending = asyncio.create_task(withdraw(api, tmp_path, "--within", "60s"))
    while settings(api)["mode"] != "observe":
        assert not ending.done()
        await asyncio.sleep(0.02)
    assert settings(api) == {
        "mode": "observe",
        "steward": {"lease": "ours", "dryRun": True},
        "nodeMarks": {"label": True},
    }
    api.put("nodes", {"metadata": {"name": "ill"}})
    assert (await ending).exit_code == 0


@pytest.mark.parametrize(
    ("plural", "marked"),
    [
        ("nodes", LABELLED),
        ("nodes", {"metadata": {"name": "n", "annotations": {"fettle.dev/cordoned": "why"}}}),
        (
            "nodes",
            {
                "metadata": {"name": "n"},
                "status": {"conditions": [{"type": "FettleDevicesSound", "status": "True"}]},
            },
        ),
        ("devicetaintrules", RULE),
        (
            "pods",
            {
                "metadata": {"name": "p", "namespace": "ml"},
                "spec": {},
                "status": {"conditions": [{"type": "fettle.dev/DeviceFailed", "status": "True"}]},
            },
        ),
    ],
)
async def test_what_is_still_marked_in_the_end_is_said(
    api: FakeApi, tmp_path: Path, plural: str, marked: dict[str, Any]
) -> None:
    api.put(plural, marked)
    ended = await withdraw(api, tmp_path, "--within", "0.2s")
    assert ended.exit_code == 1
    assert f"{marked['metadata']['name']} is still marked by Fettle" in ended.output
    assert "does it run, and may it write?" in ended.output


async def test_of_many_some_are_named(api: FakeApi, tmp_path: Path) -> None:
    for number in range(30):
        api.put("nodes", {"metadata": {**LABELLED["metadata"], "name": f"n-{number}"}})
    ended = await withdraw(api, tmp_path, "--within", "0.1s")
    assert ended.output.count("is still marked") == withdrawing.MOST_SAID
    assert "and 20 more" in ended.output


async def test_holds_are_said_and_left(api: FakeApi, tmp_path: Path) -> None:
    api.put("nodes", {"metadata": {"name": "n", "annotations": {"fettle.dev/hold": "fan swap"}}})
    ended = await withdraw(api, tmp_path)
    assert ended.exit_code == 0
    assert "Node n is held, and keeps its taint: `fettle release`" in ended.output


@pytest.mark.parametrize("stored", ["mode: [", "- a list", "steward: 3"])
async def test_settings_that_cannot_be_read_are_an_error_and_stay(
    api: FakeApi, tmp_path: Path, stored: str
) -> None:
    api.put("nodes", LABELLED)
    api.objects["configmaps"]["fettle-system/fettle"]["data"]["settings.yaml"] = stored
    ended = await withdraw(api, tmp_path)
    assert ended.exit_code == 1
    assert "the steward's settings cannot be read" in ended.output
    assert api.objects["configmaps"]["fettle-system/fettle"]["data"]["settings.yaml"] == stored


async def test_where_the_settings_are_elsewhere_that_is_said(api: FakeApi, tmp_path: Path) -> None:
    api.put("nodes", LABELLED)
    ended = await withdraw(api, tmp_path, "--namespace", "elsewhere")
    assert ended.exit_code == 1
    assert "there is no ConfigMap elsewhere/fettle" in ended.output


CHECK = {
    "metadata": {"name": "sound"},
    "spec": {"controllerName": "fettle.dev/sound-devices"},
}
OF_OTHERS = {"metadata": {"name": "budget"}, "spec": {"controllerName": "example.com/budget"}}


async def test_while_queues_of_kueue_may_wait_for_an_answer_nothing_is_taken_back(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("nodes", LABELLED)
    api.put("admissionchecks", CHECK)
    api.put("admissionchecks", OF_OTHERS)
    ended = await withdraw(api, tmp_path, "--within", "0.2s")
    assert ended.exit_code == 1
    assert "AdmissionCheck sound is answered by Fettle alone" in ended.output
    assert "Take it out of all ClusterQueues and delete it" in ended.output
    assert "budget" not in ended.output
    assert "fettle" in api.objects[CONFIGURATIONS[0]], "what answers goes on"
    assert settings(api)["mode"] == "enforce"

    api.remove("admissionchecks", "sound")
    api.put("nodes", {"metadata": {"name": "ill"}})
    assert (await withdraw(api, tmp_path)).exit_code == 0


@pytest.mark.parametrize("without", ["kueue", "the right to list them"])
async def test_without_kueue_or_rights_in_it_all_else_is_taken_back(
    api: FakeApi, tmp_path: Path, without: str
) -> None:
    if without == "kueue":
        api.unserved.add("admissionchecks")
    else:
        api.forbidden.add(("list", "admissionchecks"))
    ended = await withdraw(api, tmp_path)
    assert ended.exit_code == 0, ended.output
    assert "fettle" not in api.objects[CONFIGURATIONS[0]]
