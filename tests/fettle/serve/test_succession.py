"""Changed files are noticed, and a successor takes over while callers notice nothing."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from fettle.cli.demo import story
from fettle.serve.channel import Channel
from fettle.serve.succession import SettingsFiles, Succession
from tests.controlplane.processes import free_port

WITHIN_S = 60
OFTEN_S = 0.05


@asynccontextmanager
async def noticed(files: SettingsFiles) -> AsyncIterator[list[None]]:
    """One entry for each change that was noticed."""
    found: list[None] = []
    watching = asyncio.create_task(files.watch(lambda: found.append(None)))
    yield found
    watching.cancel()


async def until_noticed(found: list[None], times: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while len(found) < times:
            await asyncio.sleep(0.01)


async def test_a_change_of_the_settings_and_of_each_file_they_name_is_noticed_once(
    tmp_path: Path,
) -> None:
    settings, rules, schemas = (tmp_path / name for name in ("settings", "rules", "schemas"))
    schemas.mkdir()
    rules.write_text("{}")
    named = f"health: {{rulesFile: {rules}}}\nlint: {{driverSchemas: {schemas}}}\n"
    settings.write_text(named)
    async with noticed(SettingsFiles(settings, OFTEN_S)) as found:
        await asyncio.sleep(0.3)
        assert not found
        rules.write_text("# other\n{}")
        await until_noticed(found, 1)
        (schemas / "own.json").write_text("{}")
        await until_noticed(found, 2)
        settings.write_text(f"# other\n{named}")
        await until_noticed(found, 3)
        settings.unlink()
        await until_noticed(found, 4)
        await asyncio.sleep(0.3)
        assert len(found) == 4


async def test_a_kubelets_swap_of_links_is_a_change(tmp_path: Path) -> None:
    for name, text in (("one", "{}"), ("two", "defaultPolicy: training")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.yaml").write_text(text)
    data = tmp_path / "..data"
    data.symlink_to("one")
    (tmp_path / "settings.yaml").symlink_to("..data/settings.yaml")
    async with noticed(SettingsFiles(tmp_path / "settings.yaml", OFTEN_S)) as found:
        (tmp_path / "new").symlink_to("two")
        (tmp_path / "new").replace(data)
        await until_noticed(found, 1)


async def test_a_file_that_is_still_being_written_is_left_alone(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("{}")
    async with noticed(SettingsFiles(settings, 0.5)) as found:
        for number in range(15):
            settings.write_text(f"# {number}\n{{}}")
            await asyncio.sleep(0.1)
        assert not found
        await until_noticed(found, 1)


async def test_what_failed_stays_told_while_another_successor_tries() -> None:
    ours, its = socket.socketpair()
    with ours, its:
        serving = Succession(Channel(its))
        serving.receive(lambda: None)
        staying = Channel(ours)
        for word, sentence in (
            ("failed", "mode is wrong"),
            ("starting", ""),
            ("starting", "nodes"),
        ):
            staying.send(word, sentence)
        async with asyncio.timeout(WITHIN_S):
            while len(serving.notes()) < 2 or "nodes" not in serving.notes()[1]:
                await asyncio.sleep(0.01)
        assert serving.notes() == [
            "settings: not reloaded, the old ones stay: mode is wrong",
            "settings: a successor reads them anew, which is not ready yet: nodes",
        ]
        asyncio.get_running_loop().remove_reader(its)


@pytest.mark.long
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "new"])
async def test_no_call_fails_while_a_successor_takes_over(
    snapshot: Path, tmp_path: Path, kept: bool
) -> None:
    extender, browse = free_port(), free_port()
    settings = tmp_path / "settings.yaml"
    settings.write_text("{}")
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "fettle", "serve", "extender", "--snapshot", str(snapshot)),
            *("--settings", str(settings), "--extender-listen", f"127.0.0.1:{extender}"),
            *("--browse-listen", f"127.0.0.1:{browse}"),
        ],
        stderr=log,
    )
    body = json.dumps({"Pod": story.plugin_pod("training", 1), "NodeNames": ["hgx-01", "hgx-04"]})
    connector = aiohttp.TCPConnector(force_close=not kept)
    try:
        async with aiohttp.ClientSession(connector=connector) as client:

            async def start() -> str:
                """Of the process that answers people now, as its metrics tell it; "" if none does
                or if it is not ready."""
                try:
                    async with client.get(f"http://127.0.0.1:{browse}/readyz") as reply:
                        if reply.status != 200:
                            return ""
                    async with client.get(f"http://127.0.0.1:{browse}/metrics") as reply:
                        lines = (await reply.text()).splitlines()
                except aiohttp.ClientError:
                    return ""
                return next(x for x in lines if x.startswith("process_start_time_seconds "))

            async def until_replaced(started: str) -> str:
                while True:
                    url = f"http://127.0.0.1:{extender}/filter"
                    async with client.post(url, data=body) as reply:
                        assert reply.status == 200
                        assert (await reply.json())["NodeNames"] == ["hgx-01"]
                    if (now := await start()) not in ("", started):
                        return now

            async with asyncio.timeout(WITHIN_S):
                while not (first := await start()):
                    await asyncio.sleep(0.05)
                settings.write_text("defaultPolicy: training")
                second = await until_replaced(first)
                process.send_signal(signal.SIGHUP)
                await until_replaced(second)
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, WITHIN_S) == 0
        log.close()


@pytest.mark.long
async def test_a_serving_process_whose_parent_is_killed_ends_in_order(
    snapshot: Path, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fettle", "serve", "extender"),
                *("--snapshot", str(snapshot), "--extender-listen", f"127.0.0.1:{free_port()}"),
                *("--browse-listen", f"127.0.0.1:{free_port()}"),
            ],
            stderr=log,
        )
    async with asyncio.timeout(WITHIN_S):
        while "extender" not in (tmp_path / "log").read_text():
            await asyncio.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        while '"stopped"' not in (tmp_path / "log").read_text():
            await asyncio.sleep(0.05)
    assert "the process that started this one has ended" in (tmp_path / "log").read_text()
