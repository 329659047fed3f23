"""The scheduler asks about each pod of a PodGroup in turn, and again for each placement."""

from typing import Any

from tests.extender.conftest import Extender
from tests.extender.test_freshness import CLAIMS
from tests.fettle import building as b


def member(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
            "schedulingGroup": {"podGroupName": "gang"},
        },
    }


async def test_a_placement_is_scored_as_if_no_other_one_had_been_tried(extender: Extender) -> None:
    devices = [b.device(f"d{number}", 1.0 if number < 2 else 0.1) for number in range(4)]
    extender.show(b.node("half", pools=(b.looked_at(b.pool(*devices)),)), **CLAIMS)

    async def placement() -> list[int]:
        """The score of the node for one member after the other."""
        scores = []
        for name in "abc":
            assert (await extender.filter(member(name), "half"))["NodeNames"] == ["half"]
            scores.append((await extender.prioritize(member(name), "half"))["half"])
        return scores

    first = await placement()
    assert first[0] > first[2]  # for the third one, two that are in flight took what is sound
    assert await placement() == first
