"""What Prometheus, or what stands in its place, may answer."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from fettle.client import Answer, Prometheus
from fettle.config import PrometheusSettings
from fettle.model import PrometheusError
from tests.controlplane.certificates import Authority
from tests.fettle.client.serving_tls import server_tls
from tests.waiting import PATIENCE_S

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def entry(value: str, **labels: str) -> dict[str, Any]:
    return {"metric": labels, "value": [1_790_000_000.5, value]}


def success(*entries: dict[str, Any], **more: Any) -> web.Response:
    data = {"resultType": "vector", "result": entries}
    text = json.dumps({"status": "success", "data": data, **more}, separators=(",", ":"))
    return web.Response(text=text, content_type="application/json")


async def asked(answer: Handler, tls: ssl.SSLContext | None = None, **settings: Any) -> Answer:
    app = web.Application()
    app.router.add_post("/prom/api/v1/query", answer)
    app.router.add_route("*", "/{rest:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)  # nobody waits for the answer any more
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        scheme = "http" if tls is None else "https"
        asked_of = PrometheusSettings(url=f"{scheme}://127.0.0.1:{port}/prom", **settings)
        async with Prometheus(asked_of) as prometheus:
            return await prometheus.query("up == 0")
    finally:
        await runner.cleanup()


def always(reply: Callable[[], web.StreamResponse]) -> Handler:
    async def answer(_: web.Request) -> web.StreamResponse:
        return reply()

    return answer


def refused(reply: Callable[[], web.StreamResponse], **settings: Any) -> PrometheusError:
    with pytest.raises(PrometheusError) as raised:
        asyncio.run(asked(always(reply), **settings))
    return raised.value


def test_a_query_is_posted_as_a_form_with_the_credentials_of_the_files(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    seen: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.path, dict(await request.post()), request.headers))
        return success(entry("1", node="n1"))

    found = asyncio.run(
        asked(answer, bearer_token_file=str(token), headers={"X-Scope-OrgID": "gpus"})
    )
    assert [(s.labels, s.value) for s in found.samples] == [({"node": "n1"}, 1.0)]
    ((path, form, headers),) = seen
    assert (path, form["query"]) == ("/prom/api/v1/query", "up == 0")
    assert headers["Authorization"] == "Bearer s3cret"
    assert headers["X-Scope-OrgID"] == "gpus"


def test_basic_authentication_takes_name_and_password_from_files(tmp_path: Path) -> None:
    (tmp_path / "user").write_text("fettle")
    (tmp_path / "password").write_text("pa:ss")
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return success()

    asyncio.run(
        asked(
            answer,
            username_file=str(tmp_path / "user"),
            password_file=str(tmp_path / "password"),
        )
    )
    assert seen == ["Basic ZmV0dGxlOnBhOnNz"]


def test_a_redirect_is_not_followed_so_that_no_other_server_sees_the_credentials() -> None:
    error = refused(lambda: web.Response(status=302, headers={"Location": "https://login.example"}))
    assert (error.reason, error.whole) == ("redirect", True)
    assert "'https://login.example', which is not followed" in str(error)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_where_a_redirect_points_to_no_request_arrives(tmp_path: Path, status: int) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret")
    seen: list[tuple[str, str]] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("Authorization", "")))
        location = str(request.url.with_path("/elsewhere"))
        return web.Response(status=status, headers={"Location": location})

    with pytest.raises(PrometheusError, match="which is not followed"):
        asyncio.run(asked(elsewhere, bearer_token_file=str(token)))
    assert seen == [("/prom/api/v1/query", "Bearer s3cret")]


@pytest.mark.parametrize("status", [200, 404])
def test_a_login_page_is_not_taken_for_an_answer(status: int) -> None:
    page = "<!doctype html><HTML><body>Sign in</body></HTML>"
    error = refused(lambda: web.Response(text=page, content_type="text/html", status=status))
    assert error.reason == "not_prometheus"
    assert "a web page" in str(error)
    assert "login page" in str(error)


@pytest.mark.parametrize("body", [{}, {"status": "success"}, {"kind": "Status", "status": "ok"}])
def test_json_of_something_else_is_not_taken_for_an_answer(body: dict[str, str]) -> None:
    error = refused(lambda: web.json_response(body))
    assert error.reason == "not_prometheus"
    assert "answers with JSON of another kind (status 200), not as Prometheus does" in str(error)


def test_the_words_of_prometheus_are_passed_on() -> None:
    body = {"status": "error", "errorType": "bad_data", "error": "parse error: unexpected <EOF>"}
    error = refused(lambda: web.json_response(body, status=400))
    assert (error.reason, error.whole) == ("query", False)
    assert "bad_data: parse error: unexpected <EOF>" in str(error)


def test_a_server_that_is_not_ready_is_named_unavailable() -> None:
    assert refused(lambda: web.Response(status=503, text="starting")).reason == "unavailable"
    body = {"status": "error", "errorType": "timeout", "error": "query timed out"}
    assert refused(lambda: web.json_response(body, status=503)).reason == "unavailable"


def test_credentials_that_are_refused_or_missing_are_named(tmp_path: Path) -> None:
    assert "does not accept our credentials" in str(refused(lambda: web.Response(status=401)))
    error = refused(success, bearer_token_file=str(tmp_path / "none"))
    assert error.reason == "credentials"
    assert "No such file" in str(error)


def test_an_answer_that_does_not_come_ends_at_the_timeout() -> None:
    async def answer(_: web.Request) -> web.Response:
        await asyncio.sleep(PATIENCE_S)
        return success()

    with pytest.raises(PrometheusError, match=r"no answer within 0\.2 s") as raised:
        asyncio.run(asked(answer, timeout_seconds=0.2))
    assert raised.value.reason == "timeout"


def test_an_answer_of_400000_series_is_cut_off_and_named() -> None:
    one = json.dumps(entry("1", UUID="GPU-" + "x" * 40, hostname="node", gpu="0"))
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"status":"success","data":{"resultType":"vector","result":[')
        try:
            for _ in range(400):
                await response.write((one + ",").encode() * 1000)
                sent += 1000
        except ConnectionError:
            pass
        return response

    with pytest.raises(
        PrometheusError, match=r"larger than prometheus.maxMebibytes \(4\)"
    ) as raised:
        asyncio.run(asked(answer, max_mebibytes=4))
    assert raised.value.reason == "too_large"
    assert sent < 400_000


def test_what_is_no_usable_number_is_set_aside() -> None:
    blank = str(2**63 - 14)  # DCGM: not supported
    values = ("NaN", "+Inf", "-Inf", blank, "3.5")
    found = asyncio.run(asked(always(lambda: success(*(entry(v, v=v) for v in values)))))
    assert [s.value for s in found.samples] == [3.5]
    assert [s.labels["v"] for s in found.odd] == ["NaN", "+Inf", "-Inf", blank]


def test_a_partial_answer_says_so() -> None:
    reply = always(lambda: success(entry("1"), warnings=["store 10.0.0.3 is not available"]))
    assert asyncio.run(asked(reply)).warnings == ("store 10.0.0.3 is not available",)


def test_a_scalar_is_no_answer_for_a_rule() -> None:
    body = {"status": "success", "data": {"resultType": "scalar", "result": [1.0, "1"]}}
    assert "gives a scalar" in str(refused(lambda: web.json_response(body)))


@pytest.mark.parametrize(
    "more", [{}, {"warnings": ["a store is away"]}, {"infos": ["metric might not be a counter"]}]
)
@pytest.mark.parametrize("spaced", [False, True])
def test_a_large_answer_is_read_in_pieces_as_a_small_one_is_read(
    more: dict[str, Any], spaced: bool
) -> None:
    entries = [entry(str(i), node=f'n{i}"]}}]}}', text='{"metric":') for i in range(3000)]
    data = {"resultType": "vector", "result": entries}
    body = {"status": "success", "data": data, **more}
    text = json.dumps(body, separators=None if spaced else (",", ":"))
    found = asyncio.run(
        asked(always(lambda: web.Response(text=text, content_type="application/json")))
    )
    assert [s.value for s in found.samples] == [float(i) for i in range(3000)]
    assert found.samples[7].labels == {"node": 'n7"]}]}', "text": '{"metric":'}
    assert found.at == 1_790_000_000.5
    assert found.warnings == tuple(more.get("warnings", ()))


def test_a_client_certificate_is_presented_and_only_the_named_authority_trusted(
    tmp_path: Path,
) -> None:
    authority = Authority("metrics")
    pair = authority.client("fettle")
    (tmp_path / "client.crt").write_bytes(pair.certificate)
    (tmp_path / "client.key").write_bytes(pair.key)
    tls = server_tls(authority, tmp_path)
    named = {
        "ca_file": str(tmp_path / "ca.pem"),
        "certificate_file": str(tmp_path / "client.crt"),
        "key_file": str(tmp_path / "client.key"),
    }
    found = asyncio.run(asked(always(lambda: success(entry("1"))), tls, **named))
    assert len(found.samples) == 1
    for missing in ({"ca_file": named["ca_file"]}, {}):
        with pytest.raises(PrometheusError) as raised:
            asyncio.run(asked(always(success), tls, **missing))
        assert raised.value.reason == "unreachable"
