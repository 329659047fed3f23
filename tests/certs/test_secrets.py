"""The Secret and the webhook configurations, on an API server."""

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from certs import issuing
from certs.secrets import CABundles, SecretStore
from fettle.api.kinds import WEBHOOK_CONFIGURATIONS
from fettle.client import Session
from fettle.model import ClusterError, NotFound
from tests.fettle.client.fake_api import FakeApi

NAME = "fettle-webhook-ca"
HOOKS = "MutatingWebhookConfiguration"
PLURALS = [kind.plural for kind in WEBHOOK_CONFIGURATIONS]


@pytest.fixture
def store(session: Session) -> SecretStore:
    return SecretStore(session, "fettle-system", NAME)


def put(api: FakeApi, **more: Any) -> None:
    api.put("secrets", {"metadata": {"name": NAME, "namespace": "fettle-system"}, **more})


async def test_a_written_secret_can_be_read(store: SecretStore) -> None:
    assert await store.read() == {}
    await store.replace({"a": b"\x00one"})
    assert await store.read() == {"a": b"\x00one"}
    await store.replace({"b": b"two"})
    assert await store.read() == {"b": b"two"}


async def test_a_write_keeps_what_else_is_on_the_secret(api: FakeApi, store: SecretStore) -> None:
    """As labels by which somebody's tool knows what it has applied."""
    of_a_tool = {"labels": {"app": "fettle"}, "annotations": {"applied": "{}"}}
    metadata = {"name": NAME, "namespace": "fettle-system", **of_a_tool}
    api.put("secrets", {"metadata": metadata, "type": "Opaque"})
    await store.read()
    await store.replace({"a": b"one"})
    written = api.objects["secrets"][f"fettle-system/{NAME}"]
    assert written["metadata"].items() >= of_a_tool.items()
    assert written["type"] == "Opaque"


async def test_no_secret_is_created(api: FakeApi, store: SecretStore) -> None:
    api.remove("secrets", f"fettle-system/{NAME}")
    assert await store.read() is None
    with pytest.raises(NotFound):
        await store.replace({"a": b"one"})
    assert "create" not in api.verbs("secrets")


@pytest.mark.parametrize("data", [{}, {"data": None}, {"data": {}}])
async def test_a_secret_may_be_empty(
    api: FakeApi, store: SecretStore, data: dict[str, None]
) -> None:
    put(api, **data)
    assert await store.read() == {}


async def test_the_page_of_a_proxy_is_not_taken_for_a_secret(
    api: FakeApi, store: SecretStore
) -> None:
    api.pages.add(NAME)
    with pytest.raises(ClusterError, match=f"not a valid Secret fettle-system/{NAME}.*proxy"):
        await store.read()


async def test_a_response_without_resource_version_is_not_taken_for_an_empty_secret(
    api: FakeApi, store: SecretStore
) -> None:
    put(api)
    del api.objects["secrets"][f"fettle-system/{NAME}"]["metadata"]["resourceVersion"]
    with pytest.raises(ClusterError, match=f"not a valid Secret fettle-system/{NAME}"):
        await store.read()


async def test_what_is_no_base64_is_no_secret(api: FakeApi, store: SecretStore) -> None:
    put(api, data={"ca.crt": "!"})
    with pytest.raises(ClusterError, match=f"not a valid Secret fettle-system/{NAME}"):
        await store.read()


async def test_the_page_of_a_proxy_is_not_taken_for_a_webhook_configuration(
    api: FakeApi, session: Session
) -> None:
    api.pages.add("fettle")
    with pytest.raises(ClusterError, match=f"not a valid {HOOKS} fettle.*proxy"):
        await CABundles(session, "fettle").live()
    with pytest.raises(ClusterError, match=f"not a valid {HOOKS} fettle.*proxy"):
        await CABundles(session, "fettle").publish(b"")


def configured(api: FakeApi, *bundles: bytes | None) -> None:
    """Both configurations, each with a webhook entry for each of these caBundles."""
    for kind in PLURALS:
        entries = [
            {"name": f"w{i}", "clientConfig": _calling(bundle)} for i, bundle in enumerate(bundles)
        ]
        api.put(kind, {"metadata": {"name": "fettle"}, "webhooks": entries})


def _calling(bundle: bytes | None) -> dict[str, Any]:
    service = {"service": {"name": "fettle-webhook", "namespace": "fettle-system"}}
    return service | ({"caBundle": base64.b64encode(bundle).decode()} if bundle is not None else {})


def root(name: str) -> bytes:
    return issuing.root(name, now_s=time.time(), lifetime_s=3600.0).certificate


OURS, FOREIGN = root("ours"), root("foreign")


@pytest.mark.parametrize(
    "found",
    [(None,), (b"",), (b"garbage",), (FOREIGN,), (OURS + FOREIGN,), (OURS, FOREIGN)],
    ids=["none", "empty", "garbage", "foreign", "more", "one of two"],
)
async def test_a_bundle_that_is_not_ours_is_replaced_in_every_entry(
    api: FakeApi, session: Session, found: tuple[bytes | None, ...]
) -> None:
    configured(api, *found)
    bundles = CABundles(session, "fettle")
    assert await bundles.publish(OURS) == len(PLURALS)
    assert await bundles.live() == [OURS] * len(found) * len(PLURALS)
    (entry, *_) = api.objects[PLURALS[0]]["fettle"]["webhooks"]
    assert entry["clientConfig"]["service"]["name"] == "fettle-webhook"


async def test_a_bundle_that_is_ours_is_not_written_again(api: FakeApi, session: Session) -> None:
    configured(api, b"# a comment\n" + OURS, OURS)
    assert await CABundles(session, "fettle").publish(OURS) == 0
    assert "patch" not in api.verbs(PLURALS[0])


@contextlib.asynccontextmanager
async def followed(bundles: CABundles) -> AsyncIterator[None]:
    task = asyncio.create_task(bundles.watch())
    try:
        yield
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until_live(bundles: CABundles, expected: list[bytes]) -> None:
    async with asyncio.timeout(20):
        while await bundles.live() != expected:
            await asyncio.sleep(0.01)


async def reads(api: FakeApi, bundles: CABundles) -> bool:
    before = len(api.asked)
    await bundles.live()
    return any(asked.verb == "get" for asked in api.asked[before:])


async def until_reads(api: FakeApi, bundles: CABundles, expected: bool) -> None:
    async with asyncio.timeout(20):
        while await reads(api, bundles) is not expected:
            await asyncio.sleep(0.01)


async def until_unknown(bundles: CABundles) -> None:
    async with asyncio.timeout(20):
        with contextlib.suppress(ClusterError):
            while True:
                await bundles.live()
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("watch_list", [True, False])
async def test_a_watched_configuration_is_not_read_again(
    api: FakeApi, session: Session, watch_list: bool
) -> None:
    api.watch_list = watch_list
    configured(api, FOREIGN)
    bundles = CABundles(session, "fettle")
    async with followed(bundles):
        await until_reads(api, bundles, False)
        assert await bundles.live() == [FOREIGN] * len(PLURALS)
        asked = [a.query["fieldSelector"] for a in api.asked if a.verb in ("list", "watch")]
        assert set(asked) == {"metadata.name=fettle"}
        turned = bundles.changed
        configured(api, OURS)
        await asyncio.wait_for(turned.wait(), 20)
        await until_live(bundles, [OURS] * len(PLURALS))
        api.remove(PLURALS[0], "fettle")
        await until_live(bundles, [OURS])
        assert not await reads(api, bundles)


async def test_what_was_just_written_is_not_written_again_before_the_watch_shows_it(
    api: FakeApi, session: Session
) -> None:
    configured(api, None)
    bundles = CABundles(session, "fettle")
    async with followed(bundles):
        await until_reads(api, bundles, False)
        api.silent = True
        assert await bundles.publish(OURS) == len(PLURALS)
        assert await bundles.publish(OURS) == 0


async def test_a_configuration_that_cannot_be_watched_is_read_each_time(
    api: FakeApi, session: Session
) -> None:
    configured(api, FOREIGN)
    bundles = CABundles(session, "fettle")
    async with followed(bundles):
        await until_reads(api, bundles, False)
        await api.stop()
        await until_unknown(bundles)
        await api.start()
        await until_reads(api, bundles, False)


async def test_a_missing_right_to_watch_is_logged_once(api: FakeApi, session: Session) -> None:
    api.forbidden = {("watch", plural) for plural in PLURALS}
    configured(api, FOREIGN)
    bundles = CABundles(session, "fettle")
    with capture_logs() as logs:
        async with followed(bundles), asyncio.timeout(20):
            while api.verbs(PLURALS[0]).count("watch") < 4:
                await asyncio.sleep(0.01)
            assert await reads(api, bundles)
            assert await bundles.publish(OURS) == len(PLURALS)
            assert await bundles.live() == [OURS] * len(PLURALS)
    said = [entry["reason"] for entry in logs]
    assert len(said) == len(PLURALS)
    assert all("grant the verbs" in one and '"watch"' in one for one in said)
