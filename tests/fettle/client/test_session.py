"""Calls, and the errors when they fail."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest

from fettle.client.session import Session
from fettle.model import Conflict, Forbidden, NotFound, NotServed, Silent, Unauthorized, Unreachable
from tests.controlplane.certificates import Authority
from tests.fettle.client.fake_api import USER, FakeApi
from tests.fettle.client.serving_tls import serve_tls

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"


async def test_objects_are_created_read_and_changed(session: Session) -> None:
    made = await session.create(LEASES, {"metadata": {"name": "a"}, "spec": {"x": 1}})
    lease = json.loads(made)
    assert lease["metadata"]["namespace"] == "ns"
    await session.patch(f"{LEASES}/a", {"spec": {"y": 2}})
    assert json.loads(await session.get(f"{LEASES}/a"))["spec"] == {"x": 1, "y": 2}
    with pytest.raises(Conflict):
        await session.replace(f"{LEASES}/a", lease)
    with pytest.raises(Conflict):
        await session.create(LEASES, {"metadata": {"name": "a"}})
    with pytest.raises(NotFound, match='leases "b" not found'):
        await session.get(f"{LEASES}/b")


async def test_parameters_reach_the_server_as_they_are(api: FakeApi, session: Session) -> None:
    await session.get("/api/v1/nodes", {"limit": 5, "labelSelector": "a=b,c!=d/e f+%"})
    assert api.asked[0].query == {"limit": "5", "labelSelector": "a=b,c!=d/e f+%"}


async def test_a_resource_that_does_not_exist_is_not_served(api: FakeApi, session: Session) -> None:
    api.unserved = {"resourceclaims"}
    with pytest.raises(
        NotServed, match=r"does not serve /apis/resource\.k8s\.io/v1/resourceclaims"
    ):
        await session.get("/apis/resource.k8s.io/v1/resourceclaims")


async def test_a_refusal_by_rbac_names_verb_resource_namespace_and_user(
    api: FakeApi, session: Session
) -> None:
    api.forbidden = {("create", "leases")}
    with pytest.raises(Forbidden) as caught:
        await session.create(LEASES, {"metadata": {"name": "a"}})
    assert str(caught.value) == (
        f'{api.url} denied access by RBAC: grant the verb "create" on the resource "leases" of the '
        f'API group "coordination.k8s.io" in the namespace "ns" to {USER}; '
        "deploy/rbac/ has the roles"
    )


async def test_a_server_that_is_away_is_named(api: FakeApi, session: Session) -> None:
    await api.stop()
    with pytest.raises(Unreachable, match=api.url):
        await session.get("/api/v1/nodes")


async def test_connections_that_are_cut_as_they_begin_give_one_text(
    tmp_path: Path,
) -> None:
    """Resets and ends alternate behind a load balancer."""
    greeted: list[bool] = []

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if greeted:
            await reader.read(65536)
        writer.close()

    said = []
    async with await asyncio.start_server(cut, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(kubeconfig))
        async with await Session.open(file) as session:
            for _ in range(2):
                with pytest.raises(Unreachable, match="cannot be reached") as caught:
                    await session.get("/api/v1/nodes")
                said.append(str(caught.value))
                greeted.append(True)
    assert said[0] == said[1]


async def test_a_call_that_is_not_answered_ends(api: FakeApi, session: Session) -> None:
    api.answers_nothing = True
    with pytest.raises(Unreachable, match="no answer in time"):
        await session.get("/api/v1/nodes", timeout_s=0.05)


@pytest.mark.long
async def test_a_stream_that_sends_nothing_is_silent(api: FakeApi, session: Session) -> None:
    stream = session.stream("/api/v1/nodes", {"watch": True}, silence_s=5)
    async with aclosing(stream) as chunks:
        assert await anext(chunks) == b"", "accepted"
        with pytest.raises(Silent, match=r"sent nothing for 5 s"):
            await anext(chunks)


async def test_the_token_is_sent(api: FakeApi, tmp_path: Path) -> None:
    api.token = "right"
    async with await Session.open(api.kubeconfig(tmp_path, token="right")) as session:
        await session.get("/api/v1/nodes")


async def test_a_token_file_may_end_with_a_newline(api: FakeApi, tmp_path: Path) -> None:
    api.token = "right"
    path = api.kubeconfig(tmp_path)
    config = json.loads(path.read_text())
    config["users"][0]["user"] = {"tokenFile": "token"}
    path.write_text(json.dumps(config))
    (tmp_path / "token").write_text("right\n")
    async with await Session.open(path) as session:
        await session.get("/api/v1/nodes")


async def test_credentials_are_read_again_when_they_are_refused(
    api: FakeApi, tmp_path: Path
) -> None:
    api.token = "new"
    async with await Session.open(api.kubeconfig(tmp_path, token="old")) as session:
        api.kubeconfig(tmp_path, token="new")
        await asyncio.gather(*(session.get("/api/v1/nodes") for _ in range(4)))


async def test_credentials_that_stay_refused_are_an_error(api: FakeApi, tmp_path: Path) -> None:
    api.token = "right"
    async with await Session.open(api.kubeconfig(tmp_path, token="wrong")) as session:
        for _ in range(2):
            with pytest.raises(Unauthorized, match="does not accept our credentials"):
                await session.get("/api/v1/nodes")


@pytest.mark.parametrize(("minutes", "said"), [(-1, True), (5, False)])
async def test_a_client_certificate_that_ended_is_named_where_it_is_refused(
    api: FakeApi, tmp_path: Path, minutes: int, said: bool
) -> None:
    authority = Authority()
    pair = authority.client("eve", lifetime=timedelta(minutes=minutes))
    await serve_tls(api, authority, tmp_path)
    api.token = "right"
    embedded = {
        f"client-{name}-data": base64.b64encode(content).decode()
        for name, content in (("certificate", pair.certificate), ("key", pair.key))
    }
    path = api.kubeconfig(tmp_path, user=embedded)
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path.write_text(json.dumps(config))
    async with await Session.open(path) as session:
        with pytest.raises(Unauthorized) as caught:
            await session.get("/api/v1/nodes")
    ended = "the client certificate of the kubeconfig's user 'fake' ended at 2"
    assert (ended in str(caught.value)) is said
    assert "does not accept our credentials" in str(caught.value)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7.0), ("0", 0.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.0), ("-1", 0.0)],
)
async def test_an_overloaded_server_says_how_long_to_wait(
    api: FakeApi, session: Session, said: str, seconds: float
) -> None:
    api.overloaded = said
    with pytest.raises(Unreachable, match="returned 429") as refused:
        await session.get("/api/v1/nodes")
    assert refused.value.retry_after_s == seconds


async def test_what_the_servers_clock_shows_is_known_by_any_answer_and_goes_on(
    api: FakeApi, session: Session
) -> None:
    assert session.server_clock() is None
    api.clock = lambda: 1_800_000_000.0
    with pytest.raises(NotFound):
        await session.get("/api/v1/namespaces/ml/configmaps/none")
    first = session.server_clock()
    assert first == pytest.approx(1_800_000_000, abs=5)
    await asyncio.sleep(0.01)
    assert (session.server_clock() or 0) > (first or 0)


async def test_a_date_that_cannot_be_read_tells_nothing(api: FakeApi, session: Session) -> None:
    api.date = "the other day"
    await session.get("/version")
    assert session.server_clock() is None
