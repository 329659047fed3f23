"""Who is answered by the browse listener, and what they see: attacked, on the real listener."""

import asyncio
import stat
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from fettle.api import kinds
from fettle.browse import Reviews, by_review, by_token, make_browse_app, screened, trusting
from fettle.browse.reviews import LONGEST_TOKEN, STRANGE_TOKENS_OF_SOURCE
from fettle.cel import SelectorEngine
from fettle.client import Session
from fettle.cluster import Publisher
from fettle.config import ListenAddress, Settings, SocketPath
from fettle.model import SettingsError
from fettle.observing import DecisionMetrics
from fettle.records import DecisionLog, Journal, Placed, Recorder
from fettle.scheduling import Answers
from fettle.serve.listening import AppListener
from tests.controlplane.processes import free_port
from tests.fettle import building as b
from tests.fettle.browse.showing import known
from tests.fettle.client.fake_api import FakeApi
from tests.fettle.cluster.inventory import fleets, saying
from tests.fettle.records.building import decision

SECRET = "secret-project"
"""The name of a namespace that nobody may learn of who may not see it."""
REBINDING = "evil.example"
ANSWERED = (
    *("/explain?pod=ours/p", "/policy?pod=ours/p", "/policy?name=training", "/explain?node=n"),
    *("/devices", "/pods", "/status", "/decisions", "/records"),
    *("/fleet", "/headline", "/report", "/usage", "/what-if?pod=ours/p&cordon=n"),
)
OF_PROBES = ("/livez", "/readyz", "/metrics")


class Listening:
    """A Fettle, over TCP. In it are a waiting pod and a running one of `ours`, and pods of SECRET,
    one of which the kubelet of `n` refused."""

    def __init__(self, api: FakeApi, session: Session | None) -> None:
        self.api = api
        fleet = fleets.Fleet()
        fleet.put(kinds.NODE, fleets.node("n"))
        for number in range(3):
            refused = saying.refused(f"refused-{number}")
            refused["metadata"] |= {"namespace": SECRET, "uid": f"r{number}"}
            fleet.put(kinds.POD, refused)
        for namespace, name, on in (("ours", "p", ""), ("ours", "q", "n"), (SECRET, "s", "n")):
            pod = b.gpu_pod(name=name)
            pod["metadata"] |= {"namespace": namespace, "uid": f"{namespace}-{name}"}
            pod["spec"]["nodeName"] = on
            fleet.put(kinds.POD, pod)
        for name in ("ours", SECRET):
            labels = {"fettle.dev/policy": "training"}
            fleet.put(kinds.NAMESPACE, {"metadata": {"name": name, "labels": labels}})
        publisher, registry = Publisher(), CollectorRegistry()
        publisher.publish(fleet.look(), frozenset())
        answers = Answers(publisher, SelectorEngine(), Settings())
        recorder = Recorder(
            answers, DecisionLog(100, 2**20), Journal(None, 2**20), DecisionMetrics(registry)
        )
        why, now = f"kubelet refused pod {SECRET}/refused-0", time.time()
        placed = Placed(node="n", at=now, why=why)
        of: dict[str, Any] = {"why": why, "end": why, "placed": placed, "at": now}
        recorder.log.note(decision(key="ours/q", uid="ours-q", **of))
        recorder.log.note(decision(key=f"{SECRET}/s", uid="s", **of))
        recorder.log.note(decision(key="n", uid="n", kind="Node", **of))
        self.known = known(
            answers, registry=registry, recorder=recorder, recoveries=fleet.inventory
        )
        access = by_review(Reviews(lambda: session))
        self.port = free_port()
        self.listener = AppListener(
            "browse",
            ListenAddress("127.0.0.1", self.port),
            None,
            make_browse_app(self.known, access, screened(["fettle.example"])),
        )

    async def get(
        self, path: str, token: str = "", headers: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as reply:
            return reply.status, await reply.text()

    def reviews(self, plural: str = "tokenreviews") -> int:
        return len(self.api.verbs(plural))

    def let(self, user: str, right: str, namespace: str = "") -> None:
        verb, resource = right.split()
        self.api.granted.add((user, verb, resource, namespace))


@pytest.fixture
async def fettle(api: FakeApi, session: Session) -> AsyncIterator[Listening]:
    listening = Listening(api, session)
    await listening.listener.start()
    api.users |= {"tenant-token": "tenant", "reader-token": "reader", "nobody-token": "nobody"}
    listening.let("tenant", "list pods", "ours")
    for right in ("list pods", "list devicehealths", "get devicepolicies"):
        listening.let("reader", right)
    yield listening
    await listening.listener.stop()


# Where requests come from


@pytest.mark.parametrize(
    "host",
    [
        REBINDING,
        f"{REBINDING}:8090",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "[::1",
        "",
    ],
)
async def test_a_name_that_is_not_ours_is_answered_nothing(fettle: Listening, host: str) -> None:
    for path in (*ANSWERED, *OF_PROBES):
        status, said = await fettle.get(path, "reader-token", {"Host": host})
        assert status in (400, 421), path  # 400 where it is no Host at all
        assert SECRET not in said, path
        if status == 421:
            assert "nor among the names in browse.hostNames" in said, path


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.7:8090", "[::1]:8090", "[fd00::7]", "LOCALHOST:1", "fettle.example:80"],
)
async def test_addresses_localhost_and_names_of_the_settings_are_answered(
    fettle: Listening, host: str
) -> None:
    assert (await fettle.get("/devices", "reader-token", {"Host": host}))[0] == 200


@pytest.mark.parametrize("origin", [f"http://{REBINDING}", "null", "http://127.0.0.1", ""])
async def test_a_page_of_another_origin_is_answered_nothing(fettle: Listening, origin: str) -> None:
    for path in (*ANSWERED, *OF_PROBES):
        status, said = await fettle.get(path, "reader-token", {"Origin": origin})
        assert status == 403, path
        assert SECRET not in said, path


async def test_our_own_origin_is_answered(fettle: Listening) -> None:
    own = f"http://127.0.0.1:{fettle.port}"
    assert (await fettle.get("/devices", "reader-token", {"Origin": own}))[0] == 200


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.6"])
async def test_loopback_proves_nothing(fettle: Listening, source: str) -> None:
    """127.0.0.6 is where a sidecar of Istio passes on what anybody sends."""
    for path in ANSWERED:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", fettle.port, local_addr=(source, 0)
        )
        asked = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        writer.write(asked.encode())
        said = (await asyncio.wait_for(reader.read(), 30)).decode()
        writer.close()
        assert said.startswith("HTTP/1.1 401 "), path
        assert "kubectl -n fettle-system create token fettle-reader" in said, path
        assert SECRET not in said, path


# Tokens


async def test_probes_and_prometheus_need_no_token(fettle: Listening) -> None:
    for path in OF_PROBES:
        assert (await fettle.get(path))[0] == 200, path
    assert fettle.reviews() == 0


async def test_names_of_objects_are_for_whoever_may_list_devicehealths(fettle: Listening) -> None:
    assert "mode: " in (await fettle.get("/readyz?verbose", "reader-token"))[1]
    for token, why in (("", "this needs a token"), ("tenant-token", "not for tenant")):
        status, said = await fettle.get("/readyz?verbose", token)
        assert status == 200
        assert "mode: " not in said
        assert why in said


@pytest.mark.parametrize(
    "header",
    [
        "Bearer",
        "Bearer ",
        "Basic reader-token",
        "Bearer a b",
        "Bearer \xe9",
        "Bearer reader-token,",
    ],
)
async def test_what_is_no_token_is_reviewed_by_nobody(fettle: Listening, header: str) -> None:
    status, _ = await fettle.get("/pods", headers={"Authorization": header})
    assert status == 401
    assert fettle.reviews() == 0


async def test_a_token_of_absurd_length_is_reviewed_by_nobody(fettle: Listening) -> None:
    for length in (LONGEST_TOKEN + 1, 60_000):
        status, _ = await fettle.get("/pods", "x" * length)
        assert status in (400, 401)
    assert fettle.reviews() == 0


async def test_a_flood_of_random_tokens_reaches_the_api_server_a_few_times(
    fettle: Listening,
) -> None:
    assert (await fettle.get("/devices", "reader-token"))[0] == 200
    before = fettle.reviews()
    found = await asyncio.gather(*(fettle.get("/pods", f"random-{n}") for n in range(200)))
    assert {status for status, _ in found} == {401, 429}
    # Two, if a window of time ended meanwhile.
    assert fettle.reviews() - before <= 2 * STRANGE_TOKENS_OF_SOURCE
    assert (await fettle.get("/devices", "reader-token"))[0] == 200


async def test_one_token_that_many_send_at_once_is_reviewed_once(fettle: Listening) -> None:
    fettle.api.answers_after_s = 0.2
    found = await asyncio.gather(*(fettle.get("/devices", "reader-token") for _ in range(30)))
    assert {status for status, _ in found} == {200}
    assert fettle.reviews() == 1
    assert fettle.reviews("subjectaccessreviews") == 1


async def test_what_the_api_server_does_not_say_is_never_an_answer(fettle: Listening) -> None:
    fettle.api.forbidden = {("create", "subjectaccessreviews")}
    status, said = await fettle.get("/devices", "reader-token")
    assert status == 503
    assert "cannot be checked" in said
    assert "subjectaccessreviews" in said
    fettle.api.forbidden = {("create", "tokenreviews")}
    assert (await fettle.get("/devices", "tenant-token"))[0] == 503
    await fettle.api.stop()
    status, said = await fettle.get("/devices", "nobody-token")
    assert status == 503
    assert "cannot be reached" in said
    await fettle.api.start()
    fettle.api.forbidden = set()
    assert (await fettle.get("/devices", "reader-token"))[0] == 200


async def test_before_there_is_a_session_nobody_is_answered(api: FakeApi) -> None:
    early = Listening(api, None)
    await early.listener.start()
    try:
        status, said = await early.get("/devices", "reader-token")
    finally:
        await early.listener.stop()
    assert status == 503
    assert "still reading its own credentials" in said


# What somebody sees


async def test_a_reader_sees_everything(fettle: Listening) -> None:
    for path in ANSWERED:
        assert (await fettle.get(path, "reader-token"))[0] == 200
    for path in ("/pods", "/decisions", "/records", "/policy?name=training", "/explain?node=n"):
        assert SECRET in (await fettle.get(path, "reader-token"))[1]


async def test_a_tenant_sees_pods_and_decisions_of_their_own_namespaces_alone(
    fettle: Listening,
) -> None:
    fettle.let("tenant", "get devicepolicies")
    named = ("/policy?name=training", "/policy?pod=ours/p")
    for path in ("/pods", "/decisions", "/records", "/headline", *named):
        status, said = await fettle.get(path, "tenant-token")
        assert status == 200
        assert SECRET not in said
    told = msgspec.json.decode((await fettle.get("/pods", "tenant-token"))[1])
    assert ([pod["pod"] for pod in told["pods"]], told["total"]) == (["ours/q"], 1)
    for path in ("/decisions", "/records"):
        told = msgspec.json.decode((await fettle.get(path, "tenant-token"))[1])
        assert [one["key"] for one in told["decisions"]] == ["ours/q"]
        assert told.get("leftOut", 0) == 0
    told = msgspec.json.decode((await fettle.get("/policy?name=training", "tenant-token"))[1])
    assert (told["namespaces"], told["pods"]) == (["ours"], ["ours/p", "ours/q"])


@pytest.mark.parametrize("pod", ["ours/p", "ours/q"])
async def test_an_explanation_for_a_tenant_names_nothing_of_other_namespaces(
    fettle: Listening, pod: str
) -> None:
    whole = (await fettle.get(f"/explain?pod={pod}", "reader-token"))[1]
    assert SECRET in whole  # the kubelet refused its pods
    status, said = await fettle.get(f"/explain?pod={pod}", "tenant-token")
    assert status == 200
    assert SECRET not in said
    told, all_of_it = msgspec.json.decode(said), msgspec.json.decode(whole)
    assert told["notes"][0].startswith("of nodes and devices only codes of reasons are shown")
    (node,), (of_all,) = told["nodes"].values(), all_of_it["nodes"].values()
    codes = [one["code"] for one in of_all["reasons"]["refusals"]]
    assert codes
    assert (node["fits"], node["refusals"]) == (of_all["fits"], codes)


async def test_the_status_takes_pods_of_all_namespaces_too(fettle: Listening) -> None:
    fettle.let("tenant", "list devicehealths")
    status, said = await fettle.get("/status", "tenant-token")
    assert (status, "tenant may not list pods, which" in said) == (403, True)


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("/explain?pod=secret-project/s", "list pods in namespace 'secret-project'"),
        ("/explain?pod=secret-project/none", "list pods in namespace 'secret-project'"),
        ("/policy?pod=secret-project/s", "list pods in namespace 'secret-project'"),
        ("/policy?name=training", "get devicepolicies.fettle.dev 'training'"),
        ("/devices", "list devicehealths.fettle.dev"),
        ("/explain?node=n", "list devicehealths.fettle.dev"),
        ("/explain?device=x", "list devicehealths.fettle.dev"),
        ("/status", "list devicehealths.fettle.dev"),
        ("/usage", "list devicehealths.fettle.dev"),
        ("/what-if?pod=secret-project/s&cordon=n", "list pods in namespace 'secret-project'"),
        ("/what-if?pod=ours/p&cordon=n", "list devicehealths.fettle.dev"),
    ],
)
async def test_what_a_tenant_may_not_see_is_refused_by_the_right_that_it_needs(
    fettle: Listening, path: str, needed: str
) -> None:
    status, said = await fettle.get(path, "tenant-token")
    assert (status, f"tenant may not {needed}, which" in said) == (403, True)


async def test_what_the_api_server_said_of_somebody_is_asked_again_only_after_a_while(
    fettle: Listening,
) -> None:
    for _ in range(3):
        for path in ("/pods", "/decisions"):
            assert (await fettle.get(path, "tenant-token"))[0] == 200
    assert fettle.reviews() == 1
    # Pods everywhere, in each of the two namespaces, and devices.
    assert fettle.reviews("subjectaccessreviews") == 4


async def test_who_may_see_nothing_sees_nothing_and_no_hint(fettle: Listening) -> None:
    told = msgspec.json.decode((await fettle.get("/pods", "nobody-token"))[1])
    assert (told["pods"], told["total"]) == ([], 0)
    told = msgspec.json.decode((await fettle.get("/decisions", "nobody-token"))[1])
    assert (told["decisions"], told["leftOut"]) == ([], 0)


# Without a cluster, and by a Unix socket


async def test_without_a_cluster_one_token_opens_everything(fettle: Listening) -> None:
    port = free_port()
    app = make_browse_app(fettle.known, by_token("right"), screened(()))
    listener = AppListener("browse", ListenAddress("127.0.0.1", port), None, app)
    await listener.start()
    try:
        for token, status in (("right", 200), ("wrong", 401), ("right ", 200), ("\xe9", 401)):
            headers = {"Authorization": f"Bearer {token}"}
            url = f"http://127.0.0.1:{port}/devices"
            async with (
                aiohttp.ClientSession() as client,
                client.get(url, headers=headers) as reply,
            ):
                assert reply.status == status
    finally:
        await listener.stop()


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short name, as sockets need."""
    return tmp_path_factory.mktemp("s")


async def test_whoever_can_open_the_unix_socket_sees_everything(
    fettle: Listening, short: Path
) -> None:
    path = short / "sock"
    for _ in range(2):  # the second time in place of the first one's, on which nobody listens
        listener = AppListener(
            "browse", SocketPath(path), None, make_browse_app(fettle.known, trusting)
        )
        await listener.start()
        try:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            connector = aiohttp.UnixConnector(str(path))
            async with (
                aiohttp.ClientSession(connector=connector) as client,
                client.get("http://any.name/devices") as reply,
            ):
                assert reply.status == 200
            other = AppListener(
                "browse", SocketPath(path), None, make_browse_app(fettle.known, trusting)
            )
            with pytest.raises(SettingsError, match="address already in use"):
                await other.start()
        finally:
            await listener.stop()
    assert [one.name for one in short.iterdir()] == ["sock"]


async def test_a_file_that_is_no_socket_stays(fettle: Listening, short: Path) -> None:
    (short / "file").write_text("of somebody")
    address = SocketPath(short / "file")
    listener = AppListener("browse", address, None, make_browse_app(fettle.known, trusting))
    with pytest.raises(SettingsError, match="file exists"):
        await listener.start()
    assert (short / "file").read_text() == "of somebody"
    too_long = SocketPath(short / ("x" * 120))
    with pytest.raises(SettingsError, match="path too long"):
        await AppListener("browse", too_long, None, make_browse_app(fettle.known, trusting)).start()
