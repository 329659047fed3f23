"""What filter remembers of the pods that it was asked about."""

from fettle.scheduling.placed import RecentPods
from tests.extender.conftest import Extender, listening
from tests.fettle import building as b


async def test_the_pods_last_asked_about_are_remembered_and_no_more() -> None:
    async with listening(Extender(recent=RecentPods(2))) as extender:
        extender.show(b.node("n1"))
        for name in ("p", "q", "p", "r"):
            await extender.filter(b.gpu_pod(name=name), "n1")
        assert list(extender.recent) == ["default/p", "default/r"]
