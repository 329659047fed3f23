"""What `fettle lint --kubeconfig` says where the cluster cannot be read."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fettle.api import kinds
from fettle.cli.linting import known_objects
from fettle.config import LintSettings, Settings
from fettle.model import ClusterError
from tests.fettle.client.fake_api import FakeApi, fake_api


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeApi]:
    monkeypatch.setattr(known_objects, "_PATIENCE_S", 0.3)
    async with fake_api() as server:
        yield server


async def reading(api: FakeApi, folder: Path, settings: Settings | None = None) -> tuple[str, ...]:
    """Notes about what was skipped; raises ClusterError."""
    given = settings or Settings()
    async with (
        asyncio.timeout(20),
        known_objects.known(None, api.kubeconfig(folder), given, ()) as known,
    ):
        return known.notes


async def test_the_right_that_is_missing_is_named(api: FakeApi, tmp_path: Path) -> None:
    api.forbidden = {("watch", "pods"), ("list", "pods")}
    with pytest.raises(ClusterError, match='"list" and "watch" on the resource "pods"') as said:
        await reading(api, tmp_path)
    assert "other kinds" not in str(said.value)


async def test_one_of_many_rights_that_are_missing_is_named_and_the_others_are_counted(
    api: FakeApi, tmp_path: Path
) -> None:
    for kind in kinds.KINDS:
        api.forbidden |= {("watch", kind.plural), ("list", kind.plural)}
    with pytest.raises(ClusterError, match='"list" and "watch" on the resource') as said:
        await reading(api, tmp_path)
    assert str(said.value).endswith(f"; other kinds that cannot be read: {len(kinds.KINDS) - 1}")


async def test_that_nobody_answers_is_said_once(api: FakeApi, tmp_path: Path) -> None:
    await api.stop()
    with pytest.raises(ClusterError, match="cannot be reached") as said:
        await reading(api, tmp_path)
    assert str(said.value).count("cannot be reached") == 1


async def test_a_kind_that_need_not_be_there_is_only_noted(api: FakeApi, tmp_path: Path) -> None:
    api.unserved = {kinds.POLICY.plural, kinds.TAINT_RULE.plural}
    api.forbidden = {("watch", kinds.QUOTA.plural), ("list", kinds.QUOTA.plural)}
    wanted = Settings(lint=LintSettings(watch=("ResourceQuota",)))
    notes = await reading(api, tmp_path, wanted)
    assert any("resourcequotas" in n and "rules that need it are skipped" in n for n in notes)
