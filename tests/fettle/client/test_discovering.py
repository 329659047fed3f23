"""Asking an API server what it serves."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fettle.client import discovering
from fettle.client.discovering import ServedKind
from fettle.client.session import Session
from fettle.model import ClusterError

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
async def session(aiohttp_server: Any, tmp_path: Path) -> AsyncIterator[Session]:
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


async def test_the_kinds_of_all_served_versions_the_preferred_one_first(session: Session) -> None:
    assert await discovering.kinds(session, "x.io") == (
        ServedKind("v1", "Thing", "things"),
        ServedKind("v1beta1", "Old", "olds"),
    )
    assert await discovering.versions(session, "x.io") == ("v1", "v1beta1")


async def test_subresources_are_no_kinds_and_the_core_group_has_one_version(
    session: Session,
) -> None:
    assert await discovering.kinds(session, "") == (ServedKind("v1", "Pod", "pods"),)


async def test_a_group_that_is_not_served_has_none(session: Session) -> None:
    assert await discovering.kinds(session, "absent.io") == ()


async def test_an_answer_that_is_no_discovery_is_said(session: Session) -> None:
    with pytest.raises(ClusterError, match=r"not a valid discovery document for odd\.io"):
        await discovering.kinds(session, "odd.io")
