"""The writes that wake pods, one by one."""

import pytest

from fettle.client import Session
from fettle.cluster import EMPTY
from fettle.steward.nudging import Nudge
from tests.fettle.client.fake_api import FakeApi

CLAIM = "fettle-system/wake-up"


@pytest.mark.parametrize("made", [False, True])
async def test_pods_are_woken_by_a_stamp_also_where_the_claim_is_made_first(
    made: bool, api: FakeApi, session: Session
) -> None:
    if made:
        api.put("resourceclaims", {"metadata": {"name": "wake-up", "namespace": "fettle-system"}})
    await Nudge(session, "fettle-system", "wake-up").wake(EMPTY, 1_700_000_000.5)
    stamps = api.objects["resourceclaims"][CLAIM]["metadata"]["annotations"]
    assert stamps["fettle.dev/woken-at"] == "2023-11-14T22:13:20.500000Z"
