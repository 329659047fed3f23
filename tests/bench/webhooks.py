"""Fettle's webhook on its own, over TLS, on a snapshot."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from certs import issuing
from tests.controlplane.fettle_process import FettleProcess


@asynccontextmanager
async def served(
    folder: Path, snapshot: Path, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[tuple[FettleProcess, ssl.SSLContext]]:
    """The process, with these settings too, and the context of a client that trusts it."""
    folder.mkdir(exist_ok=True)
    root = issuing.root("bench", now_s=time.time(), lifetime_s=86400)
    leaf = issuing.leaf(root, ["localhost"], now_s=time.time(), lifetime_s=86400)
    (folder / "tls.crt").write_bytes(leaf.certificate)
    (folder / "tls.key").write_bytes(leaf.key)
    files = {"certificateFile": f"{folder}/tls.crt", "keyFile": f"{folder}/tls.key"}
    whole = {"webhook": {"certificates": "files", "tls": files}, **(settings or {})}
    path = folder / "settings.yaml"
    path.write_bytes(msgspec.json.encode(whole))
    fettle = FettleProcess(
        folder / "fettle", roles=["webhook"], settings=path, arguments=["--snapshot", snapshot]
    )
    fettle.start()
    try:
        await fettle.ready(60)
        yield fettle, ssl.create_default_context(cadata=root.certificate.decode())
    finally:
        fettle.kill()
