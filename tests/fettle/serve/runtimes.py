"""Runs a process's parts on the test's own loop."""

import asyncio
import contextlib
from pathlib import Path

from fettle.cli.setting_up import ROLES
from fettle.serve import ServeOptions


def serve_options(
    kubeconfig: Path,
    *roles: str,
    extender: int = 0,
    webhook: int = 0,
    browse: int = 0,
) -> ServeOptions:
    """On loopback; all roles where none is named."""
    return ServeOptions(
        roles=frozenset(roles or ROLES),
        kubeconfig=kubeconfig,
        snapshot=None,
        settings=None,
        extender_listen=f"127.0.0.1:{extender}",
        webhook_listen=f"127.0.0.1:{webhook}",
        browse_listen=(f"127.0.0.1:{browse}",),
        log_level="info",
    )


async def is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def until_open(port: int) -> None:
    """Listeners open once the first view is there."""
    async with asyncio.timeout(20):
        while not await is_open(port):
            await asyncio.sleep(0.02)
