"""Following the cluster's version."""

import asyncio

import pytest

from fettle.client import versions
from fettle.client.session import Session
from fettle.model import ClusterError
from tests.fettle.client.fake_api import FakeApi


async def test_a_version_is_told_once_and_again_when_it_changes(
    api: FakeApi, session: Session
) -> None:
    told: list[str] = []
    following = asyncio.create_task(versions.follow(session, told.append, every_s=0.01))
    try:
        async with asyncio.timeout(20):
            while not told:
                await asyncio.sleep(0.01)
            api.git_version = "v1.38.0"
            while len(told) < 2:
                await asyncio.sleep(0.01)
    finally:
        following.cancel()
    assert told == ["v1.37.1", "v1.38.0"]


async def test_a_proxys_page_is_no_version(api: FakeApi, session: Session) -> None:
    api.pages.add("version")
    with pytest.raises(ClusterError, match=r"not a valid version.*proxy"):
        await versions.read(session)


async def test_a_cluster_that_does_not_say_is_asked_again(api: FakeApi, session: Session) -> None:
    told: list[str] = []
    api.git_version = ""
    following = asyncio.create_task(versions.follow(session, told.append, every_s=0.01))
    async with asyncio.timeout(20):
        while api.gave["version"] < 3:
            await asyncio.sleep(0.01)
        assert told == []
        api.git_version = "v1.36.3"
        while not told:
            await asyncio.sleep(0.01)
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
