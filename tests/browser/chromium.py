"""A headless chromium, and a tab of it: as much of the DevTools protocol as the tests of the page
need. Every wait is bounded.
"""

import asyncio
import base64
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.browser import SKIPPED

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
REQUIRED = "FETTLE_REQUIRE_BROWSER"
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and os.environ.get(REQUIRED) != "1", reason=SKIPPED
)
START_S, ANSWER_S, WAIT_S = 60.0, 30.0, 30.0
WATCHED = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.__violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
window.__ran = [];
window.alert = (text) => window.__ran.push(String(text));
"""
"""Noted from before the first script of the page: what its policy forbade, and what an attack
would call."""


class Tab:
    """One tab. `complaints` are errors and warnings of its console."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if (asked := self._asked.pop(told.get("id", 0), None)) is not None:
                if not asked.done():
                    asked.set_result(told)
            elif told.get("method") == "Runtime.exceptionThrown":
                details = told["params"]["exceptionDetails"]
                self.complaints.append(str(details.get("exception", details))[:2000])
            elif told.get("method") == "Log.entryAdded":
                entry = told["params"]["entry"]
                if entry["level"] in ("error", "warning"):
                    self.complaints.append(f"{entry['text']} {entry.get('url', '')}")

    async def do(self, method: str, **params: Any) -> Any:
        self._number += 1
        asked = self._asked[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": params})
        async with asyncio.timeout(ANSWER_S):
            told = await asked
        assert "error" not in told, told["error"]
        return told["result"]

    async def open(self) -> None:
        for domain in ("Page", "Runtime", "Log"):
            await self.do(f"{domain}.enable")
        await self.do("Page.addScriptToEvaluateOnNewDocument", source=WATCHED)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait((self._reading,))
        await self._socket.close()

    async def look(self, wide: int = 1400, high: int = 900, *, dark: bool = False) -> None:
        """The size of the window, and what the user prefers."""
        await self.do(
            "Emulation.setDeviceMetricsOverride",
            width=wide,
            height=high,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.do("Emulation.setEmulatedMedia", features=[scheme])

    async def go(self, url: str) -> None:
        await self.do("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """What an expression of the page is, as JSON."""
        told = await self.do(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, expression: str, within_s: float = WAIT_S) -> Any:
        """Its first value that is something. An element is {}."""
        until = time.monotonic() + within_s
        while (found := await self.value(expression)) in (None, False, 0, "", []):
            if time.monotonic() > until:
                said = await self.value("document.body.innerText.slice(0, 1500)")
                raise AssertionError(
                    f"not within {within_s:g} s: {expression}\n{said}\n{self.complaints}"
                )
            await asyncio.sleep(0.05)
        return found

    async def text(self, selector: str = "main") -> str:
        text: str = await self.value(f"document.querySelector({selector!r})?.innerText ?? ''")
        return text

    async def press(self, key: str) -> None:
        codes = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r"} if key == "Enter" else {}
        for type_ in ("keyDown", "keyUp"):
            await self.do(
                "Input.dispatchKeyEvent",
                type=type_,
                key=key,
                code=key,
                windowsVirtualKeyCode=codes[key],
                **(text if type_ == "keyDown" else {}),
            )

    async def write(self, text: str) -> None:
        await self.do("Input.insertText", text=text)

    async def point(self, x: float, y: float) -> None:
        await self.do("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def picture(self, file: Path) -> None:
        told = await self.do("Page.captureScreenshot", format="png")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(told["data"]))


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Tab]:
    """A tab of a browser of its own, whose files are in this folder."""
    assert CHROMIUM is not None, SKIPPED
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        port = await _port(folder / "DevToolsActivePort", process)
        async with aiohttp.ClientSession() as client:
            new = f"http://127.0.0.1:{port}/json/new?about:blank"
            async with client.put(new) as reply:
                where = (await reply.json())["webSocketDebuggerUrl"]
            tab = Tab(await client.ws_connect(where, max_msg_size=0))
            try:
                await tab.open()
                yield tab
            finally:
                await tab.close()
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.returncode is None:
        if file.exists() and (lines := file.read_text().split()):
            return int(lines[0])
        await asyncio.sleep(0.05)
    raise AssertionError(f"{CHROMIUM} does not listen, exit code {process.returncode}")
