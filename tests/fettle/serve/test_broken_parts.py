"""Nothing that acts can end what answers: each part of a process is broken in turn, and filter and
admission are answered before, meanwhile and afterwards."""

import ast
import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from fettle.config import Settings
from fettle.pacing import KeptPart, Pauses
from fettle.serve.serving import Runtime
from tests.controlplane.processes import free_port
from tests.fettle.client.fake_api import OPERATOR, FakeApi
from tests.fettle.serve.builders import let_preempt_nobody, node, refused, running
from tests.fettle.serve.runtimes import serve_options
from tests.webhook.reviews import review

REPOSITORY = Path(__file__).parents[3]
GPU = "nvidia.com/gpu"


class Process:
    """A process with all roles, and those who call it."""

    def __init__(self, api: FakeApi, client: aiohttp.ClientSession) -> None:
        self.api = api
        self._client = client
        self._numbers = count()
        self.extender, self.webhook, self.browse, self.alerts = (free_port() for _ in range(4))

    async def answers(self) -> None:
        """A scheduler and the API server call, and are answered."""
        name = f"p{next(self._numbers)}"
        for each in (name, f"{name}-too"):
            asked = {"Pod": refused(each), "NodeNames": ["gpu-1"]}
            reply = await self._post(f"http://127.0.0.1:{self.extender}/filter", asked)
            assert not reply.get("Error"), reply
            assert reply["NodeNames"] == ["gpu-1"]
        pod = {"apiVersion": "v1", "kind": "Pod", **refused(name)}
        for path in ("mutate", "validate"):
            reply = await self._post(f"https://127.0.0.1:{self.webhook}/{path}", review(pod))
            assert reply["response"]["allowed"] is True, reply

    async def stir(self) -> None:
        """Have everything in the cluster change that a part may wait for."""
        number = next(self._numbers)
        sound = node("gpu-1", gpus=8)
        sound["metadata"]["labels"] = {"turn": str(number)}
        self.api.put("nodes", sound)
        asked = {"Pod": refused(f"q{number}"), "NodeNames": ["gpu-1"]}
        await self._post(f"http://127.0.0.1:{self.extender}/filter", asked)
        pod = {"apiVersion": "v1", "kind": "Pod", **refused(f"q{number}")}
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        await self._post(f"https://127.0.0.1:{self.webhook}/mutate", review(pod))
        self.api.put("pods", running(f"q{number - 3}", "gpu-1", 1))
        self.api.put("pods", refused("waits"))
        self.api.put("pods", let_preempt_nobody("preempts"))
        await asyncio.sleep(0.02)

    async def until(self, true: Callable[[], bool], what: str, *, stirring: bool) -> None:
        try:
            async with asyncio.timeout(20):
                while not true():
                    await (self.stir() if stirring else asyncio.sleep(0.01))
        except TimeoutError:
            pytest.fail(what)

    async def said(self, path: str) -> str:
        async with self._client.get(
            f"http://127.0.0.1:{self.browse}/{path}", headers=OPERATOR
        ) as reply:
            return await reply.text()

    async def _post(self, url: str, asked: Any) -> Any:
        async with self._client.post(url, json=asked, ssl=False) as reply:
            assert reply.status == 200, await reply.text()
            return msgspec.json.decode(await reply.read())


@asynccontextmanager
async def served(api: FakeApi, folder: Path) -> AsyncIterator[tuple[Process, Runtime]]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(20)) as client:
        process = Process(api, client)
        settings = {
            "steward": {"wakeIntervalSeconds": 0.02},
            "webhook": {"events": True},
            "prometheus": {"url": f"http://127.0.0.1:{free_port()}", "intervalSeconds": 1},
            "alertmanager": {"listen": f"127.0.0.1:{process.alerts}"},
        }
        options = serve_options(
            api.kubeconfig(folder),
            extender=process.extender,
            webhook=process.webhook,
            browse=process.browse,
        )
        pauses = Pauses(first_s=0.01, longest_s=0.05, goes_on_s=0.1)
        runtime = Runtime(options, msgspec.convert(settings, Settings), pauses=pauses)
        staying = None
        try:
            await runtime.open()
            staying = asyncio.create_task(runtime.stay(asyncio.Event()))
            async with asyncio.timeout(20):
                while "not ready" in await process.said("readyz"):
                    await asyncio.sleep(0.02)
            yield process, runtime
            assert not staying.done(), staying
        finally:
            if staying is not None:
                staying.cancel()
            await runtime.close()


def tasks() -> dict[str, asyncio.Task[Any]]:
    return {task.get_name(): task for task in asyncio.all_tasks()}


def interrupt(name: str) -> None:
    """Break what the part's task waits for now, if it is one that is kept."""
    waiter = getattr(tasks().get(name), "_fut_waiter", None)
    if waiter is not None and not isinstance(waiter, asyncio.Task) and not waiter.done():
        waiter.set_exception(KeyError("interrupted"))


def broken(*_: Any, **__: Any) -> Any:
    raise KeyError("broken")


@pytest.mark.long
async def test_each_part_may_fail_and_goes_on_while_filter_and_admission_are_answered(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("pods", {"metadata": {"name": "fettle-wake-up", "namespace": "fettle-system"}})
    api.put("nodes", node("gpu-1", gpus=8))
    async with served(api, tmp_path) as (process, runtime):
        for _ in range(5):
            await process.stir()
        await process.answers()
        kept = {one.name for one in runtime.parts} & tasks().keys()
        tried: set[str] = set()

        def all_go_on() -> bool:
            return kept <= tasks().keys() and not runtime.parts.notes()

        while left := [one.name for one in runtime.parts if one.name not in tried]:
            tried.add(left[0])
            await process.until(all_go_on, f"before {left[0]}", stirring=True)
            (part,) = [one for one in runtime.parts if one.name == left[0]]
            await breaks(process, part)
    assert len(kept) > 40
    assert len(tried) > 70


async def breaks(process: Process, part: KeptPart) -> None:
    name, sound, before = part.name, part.work, part.errors
    part.work = broken

    def is_tried_again() -> bool:
        if part.errors == before:  # what it waits for may just not be to interrupt
            interrupt(name)
        return part.errors >= before + 2

    await process.until(is_tried_again, f"{name} was not tried", stirring=True)
    await process.answers()
    told = (await process.said("readyz?verbose")).splitlines()
    (why,) = [line for line in told if line.startswith(f"failing: {name}: ")]
    assert why.endswith("KeyError('broken')")
    series = f'fettle_part_errors_total{{part="{name}"}}'
    metric = next(x for x in (await process.said("metrics")).splitlines() if x.startswith(series))
    assert float(metric.rpartition(" ")[2]) >= before + 2
    part.work = sound
    await process.until(lambda: not part.problem, f"{name} did not go on", stirring=True)
    await process.answers()


ENDLESS = {
    "fettle/browse/fleet.py": "ends with the next answer that is made, which a rest bounds",
    "fettle/cli/": "commands: their errors are for who called them",
    "fettle/client/leader_election.py": "ends with the lease, within the election that is kept",
    "fettle/client/reflector.py": "the look of a reading that is kept",
    "fettle/pacing/keeping.py": "this is what keeps",
    "fettle/pacing/pausing.py": "one piece of work, slice by slice",
    "fettle/records/fates.py": "waits for a view, within half a second",
    "fettle/scheduling/answers.py": "judges one demand",
    "fettle/serve/listening.py": "opens a listener, once: without it nothing is answered",
    "fettle/serve/readiness.py": "waits for the first view, before a listener opens",
}
"""Endless loops that wait and are not kept, and why they need not be."""


@pytest.mark.long
def test_no_loop_goes_on_for_ever_but_by_what_keeps_it() -> None:
    found = {str(file.relative_to(REPOSITORY)) for file in modules() if any(endless_loops(file))}
    unkept = [file for file in found if not file.startswith(tuple(ENDLESS))]
    assert unkept == [], "say what to look at and when, and let `fettle.pacing.keep` do it"
    unused = [place for place in ENDLESS if not any(file.startswith(place) for file in found)]
    assert unused == []


def modules() -> Iterator[Path]:
    for package in ("fettle", "extender", "webhook", "certs"):
        yield from (REPOSITORY / package).rglob("*.py")


def endless_loops(file: Path) -> Iterator[ast.AST]:
    """Loops without a condition that wait for something."""
    for loop in ast.walk(ast.parse(file.read_text())):
        is_endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)
        if is_endless and any(isinstance(inner, ast.Await) for inner in ast.walk(loop)):
            yield loop
