"""The Secret and the webhook configurations, as an API server has them."""

import base64
import time
from typing import Any

import pytest

from certs import issuing
from certs.secrets import KINDS, Bundles, SecretStore
from fettle.errors import ClusterError
from fettle.kube.session import Session
from tests.fettle.kube.fake_api import FakeApi

NAME = "fettle-webhook-ca"
HOOKS = "mutatingwebhookconfigurations"


@pytest.fixture
def store(session: Session) -> SecretStore:
    return SecretStore(session, "fettle-system", NAME)


def put(api: FakeApi, **more: Any) -> None:
    api.put("secrets", {"metadata": {"name": NAME, "namespace": "fettle-system"}, **more})


async def test_what_was_written_is_read(store: SecretStore) -> None:
    assert await store.read() is None
    await store.create({"a": b"\x00one"})
    assert await store.read() == {"a": b"\x00one"}
    await store.replace({"b": b"two"})
    assert await store.read() == {"b": b"two"}


@pytest.mark.parametrize("data", [{}, {"data": None}, {"data": {}}])
async def test_a_secret_may_be_empty(
    api: FakeApi, store: SecretStore, data: dict[str, None]
) -> None:
    put(api, **data)
    assert await store.read() == {}


async def test_a_proxys_page_is_no_secret(api: FakeApi, store: SecretStore) -> None:
    api.pages.add(NAME)
    with pytest.raises(ClusterError, match=f"not a valid Secret fettle-system/{NAME}.*proxy"):
        await store.read()


async def test_an_answer_at_no_version_is_not_taken_for_an_empty_secret(
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


async def test_a_proxys_page_is_no_webhook_configuration(api: FakeApi, session: Session) -> None:
    api.pages.add("fettle")
    with pytest.raises(ClusterError, match=f"not a valid {HOOKS} fettle.*proxy"):
        await Bundles(session, "fettle").live()
    with pytest.raises(ClusterError, match=f"not a valid {HOOKS} fettle.*proxy"):
        await Bundles(session, "fettle").publish(b"")


def configured(api: FakeApi, *bundles: bytes | None) -> None:
    """Both configurations, each with a webhook entry for each of these caBundles."""
    for kind in KINDS:
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
    bundles = Bundles(session, "fettle")
    assert await bundles.publish(OURS) == len(KINDS)
    assert await bundles.live() == [OURS] * len(found) * len(KINDS)
    (entry, *_) = api.objects[KINDS[0]]["fettle"]["webhooks"]
    assert entry["clientConfig"]["service"]["name"] == "fettle-webhook"


async def test_a_bundle_that_is_ours_is_not_written_again(api: FakeApi, session: Session) -> None:
    configured(api, b"# a comment\n" + OURS, OURS)
    assert await Bundles(session, "fettle").publish(OURS) == 0
    assert "patch" not in api.verbs(KINDS[0])
