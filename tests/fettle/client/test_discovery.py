"""Requesting what an API server serves, and following its version."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fettle.client.discovery import (
    ServedKind,
    keep_server_version,
    served_kinds,
    served_versions,
    server_version,
)
from fettle.client.session import Session
from fettle.model import ClusterError
from tests.fettle.client.fake_api import FakeApi

ANSWERS: dict[str, Any] = {
    "/api/v1": {
        "resources": [
            {"name": "pods", "kind": "Pod"},
            {"name": "pods/status", "kind": "Pod"},
        ]
    },
    "/apis/x.io": {"versions": [{"version": "v1"}, {"version": "v1beta1"}]},
    "/apis/x.io/v1": {"resources": [{"name": "things", "kind": "Thing"}]},
    "/apis/x.io/v1beta1": {"resources": [{"name": "olds", "kind": "Old"}]},
    "/apis/odd.io": ["no group"],
}


@pytest.fixture
async def discovered(aiohttp_server: Any, tmp_path: Path) -> AsyncIterator[Session]:
    async def answer(request: web.Request) -> web.Response:
        if request.path not in ANSWERS:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        return web.json_response(ANSWERS[request.path])

    app = web.Application()
    app.add_routes([web.get("/{path:.*}", answer)])
    server = await aiohttp_server(app)
    file = tmp_path / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": str(server.make_url(""))}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    async with await Session.open(file) as opened:
        yield opened


async def test_kinds_of_all_served_versions_are_listed_the_preferred_version_first(
    discovered: Session,
) -> None:
    assert await served_kinds(discovered, "x.io") == (
        ServedKind("v1", "Thing", "things"),
        ServedKind("v1beta1", "Old", "olds"),
    )
    assert await served_versions(discovered, "x.io") == ("v1", "v1beta1")


async def test_subresources_are_no_kinds_and_the_core_group_has_one_version(
    discovered: Session,
) -> None:
    assert await served_kinds(discovered, "") == (ServedKind("v1", "Pod", "pods"),)


async def test_a_group_that_is_not_served_has_no_kinds(discovered: Session) -> None:
    assert await served_kinds(discovered, "absent.io") == ()


async def test_an_invalid_discovery_document_is_an_error(discovered: Session) -> None:
    with pytest.raises(ClusterError, match=r"not a valid discovery document for odd\.io"):
        await served_kinds(discovered, "odd.io")


async def test_a_version_is_reported_once_and_again_when_it_changes(
    api: FakeApi, session: Session
) -> None:
    seen: list[str] = []
    following = asyncio.create_task(keep_server_version(session, seen.append, every_s=0.01))
    try:
        async with asyncio.timeout(20):
            while not seen:
                await asyncio.sleep(0.01)
            api.git_version = "v1.38.0"
            while len(seen) < 2:
                await asyncio.sleep(0.01)
    finally:
        following.cancel()
    assert seen == ["v1.37.1", "v1.38.0"]


async def test_a_proxys_page_instead_of_a_version_is_an_error(
    api: FakeApi, session: Session
) -> None:
    api.pages.add("version")
    with pytest.raises(ClusterError, match=r"not a valid version.*proxy"):
        await server_version(session)


async def test_a_cluster_that_gives_no_version_is_asked_again(
    api: FakeApi, session: Session
) -> None:
    seen: list[str] = []
    api.git_version = ""
    following = asyncio.create_task(keep_server_version(session, seen.append, every_s=0.01))
    async with asyncio.timeout(20):
        while api.gave["version"] < 3:
            await asyncio.sleep(0.01)
        assert seen == []
        api.git_version = "v1.36.3"
        while not seen:
            await asyncio.sleep(0.01)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
