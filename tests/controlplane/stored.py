"""What etcd holds, and how it comes to hold again what it held before: between two tests on one API
server. This is written past the API server, which follows etcd: no kind is overlooked, and neither
finalizers nor admission nor a missing controller hold anything back."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import aiohttp

_RENEWED = (b"/registry/leases/kube-system/apiserver-", b"/registry/peerserverleases/")
"""The API server's own, which it writes again and again."""
_MOST = 2000
"""An API server that held more objects is large, and not worth keeping."""
_OPERATIONS = 100
"""Of one transaction; etcd allows 128."""


class Stored:
    """What the etcd on this port held when this was made, by `of`."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/v3/kv"
        self._values: dict[str, str] = {}
        """Both keys and values are in base64."""
        self._revisions: dict[str, str] = {}

    @classmethod
    async def of(cls, port: int) -> Stored:
        stored = cls(port)
        for key, entry in (await stored._read()).items():
            stored._values[key] = entry["value"]
            stored._revisions[key] = entry["mod_revision"]
        return stored

    async def restore(self) -> bool:
        """Whether it holds that again; False if it was too much, or somebody still writes."""
        for _ in range(100):
            found = await self._read(keys_only=True)
            made = found.keys() - self._revisions.keys()
            lost = [
                key
                for key, revision in self._revisions.items()
                if key not in found or found[key]["mod_revision"] != revision
            ]
            if not made and not lost:
                return True
            if len(made) > _MOST:
                return False
            await self._write(
                [
                    *({"request_delete_range": {"key": key}} for key in made),
                    *({"request_put": {"key": key, "value": self._values[key]}} for key in lost),
                ]
            )
            await asyncio.sleep(0.02)
        return False

    async def _read(self, *, keys_only: bool = False) -> dict[str, dict[str, str]]:
        found = await self._ask(
            "range",
            key=_encoded(b"/registry/"),
            range_end=_encoded(b"/registry0"),
            keys_only=keys_only,
        )
        entries = {entry["key"]: entry for entry in found["kvs"]}
        renewed = [key for key in entries if base64.b64decode(key).startswith(_RENEWED)]
        for key in renewed:
            del entries[key]
        return entries

    async def _write(self, operations: list[dict[str, dict[str, str]]]) -> None:
        for start in range(0, len(operations), _OPERATIONS):
            some = operations[start : start + _OPERATIONS]
            written = await self._ask("txn", success=some)
            for operation in some:
                if put := operation.get("request_put"):
                    self._revisions[put["key"]] = written["header"]["revision"]

    async def _ask(self, method: str, **body: Any) -> dict[str, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self._url}/{method}", json=body, raise_for_status=True) as reply,
        ):
            answer: dict[str, Any] = await reply.json(content_type=None)
            return answer


def _encoded(key: bytes) -> str:
    return base64.b64encode(key).decode()
