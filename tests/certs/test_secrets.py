"""The Secret and the webhook configurations, as an API server has them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from certs.secrets import Bundles, SecretStore
from fettle.errors import ClusterError
from fettle.kube.session import Session
from tests.fettle.kube.fake_api import FakeApi, fake_api

NAME = "fettle-webhook-ca"
HOOKS = "mutatingwebhookconfigurations"


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as server:
        yield server


@pytest.fixture
async def session(api: FakeApi, tmp_path: Path) -> AsyncIterator[Session]:
    async with await Session.open(api.kubeconfig(tmp_path)) as opened:
        yield opened


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
    with pytest.raises(ClusterError, match=f"no Secret fettle-system/{NAME}.*proxy"):
        await store.read()


async def test_an_answer_at_no_version_is_not_taken_for_an_empty_secret(
    api: FakeApi, store: SecretStore
) -> None:
    put(api)
    del api.objects["secrets"][f"fettle-system/{NAME}"]["metadata"]["resourceVersion"]
    with pytest.raises(ClusterError, match=f"no Secret fettle-system/{NAME}"):
        await store.read()


async def test_what_is_no_base64_is_no_secret(api: FakeApi, store: SecretStore) -> None:
    put(api, data={"ca.crt": "!"})
    with pytest.raises(ClusterError, match=f"no Secret fettle-system/{NAME}"):
        await store.read()


async def test_a_proxys_page_is_no_webhook_configuration(api: FakeApi, session: Session) -> None:
    api.pages.add("fettle")
    with pytest.raises(ClusterError, match=f"no {HOOKS} fettle.*proxy"):
        await Bundles(session, "fettle").live()
    with pytest.raises(ClusterError, match=f"no {HOOKS} fettle.*proxy"):
        await Bundles(session, "fettle").publish(b"")
