"""Timed calls to extenders by the Go client, which calls as kube-scheduler does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec


class Outcome(msgspec.Struct):
    """What one URL did; `allowed` and `refused` are counts of its last reply's nodes."""

    p50_ms: float
    p99_ms: float
    mean_ms: float
    allowed: int
    refused: int
    reply_error: str = ""


class CallFailed(RuntimeError):
    """The client ended with an error."""


async def alternate(
    binary: Path, urls: Sequence[str], bodies: Iterable[bytes], *, count: int, warmup: int
) -> list[Outcome]:
    """`warmup` and then `count` timed calls to each URL, A B A B; the bodies in turn."""
    with TemporaryDirectory(prefix="fettle-bench-") as folder:
        files = []
        for number, body in enumerate(bodies):
            files.append(Path(folder) / str(number))
            files[-1].write_bytes(body)
        return await _run(
            binary,
            f"--count={count}",
            f"--warmup={warmup}",
            *(f"--url={url}" for url in urls),
            *(f"--body={file}" for file in files),
        )


async def _run(binary: Path, *flags: str) -> list[Outcome]:
    process = await asyncio.create_subprocess_exec(
        binary,
        "extender-client",
        *flags,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    if process.returncode != 0:
        raise CallFailed(f"extender-client: {err.decode()[-1000:]}")
    outcomes = msgspec.json.decode(out, type=list[Outcome])
    for outcome in outcomes:
        if outcome.reply_error:
            raise CallFailed(f"an extender answered Error: {outcome.reply_error}")
    return outcomes
