"""What the nearest device lacks, where no device of any node matches."""

from fettle.api.resource import DeviceAttribute
from fettle.cel import SelectorEngine
from fettle.dra import Claim
from fettle.dra.claims import Alternative, Request
from fettle.explain import nearest_devices
from fettle.explain.wording import texts
from fettle.model import reasons
from fettle.scheduling import Verdict
from tests.fettle import building as b

WANTED = 'device.attributes["gpu.example.com"].memory >= 96'
CLAIM = Claim("gpu", (Request("big", (Alternative("big", selectors=(WANTED,)),)),))


async def told(*rejected: reasons.Reason) -> list[str]:
    attributes = {"gpu.example.com/memory": DeviceAttribute(int_=80)}
    node = b.node("n1", pools=(b.pool(b.device("gpu-0", attributes=attributes)),))
    verdicts = {
        f"n{at}": Verdict(True, 1.0, 10, rejected=(reasons.NoAllocation((why,)),))
        for at, why in enumerate(rejected)
    }
    engine = SelectorEngine()
    await engine.start()
    try:
        return texts(await nearest_devices([CLAIM], verdicts, b.view(node), engine))
    finally:
        await engine.close()


async def test_the_nearest_device_is_told_if_none_of_any_node_matches() -> None:
    missed = reasons.NoDeviceMatches(("gpu/big",))
    assert await told(missed, reasons.NoDevices(("gpu/big",))) == [
        "gpu/big: no device of any node matches; the nearest one: memory 80 < 96"
    ]


async def test_it_is_not_told_where_some_node_has_one_that_is_only_in_use() -> None:
    missed = reasons.NoDeviceMatches(("gpu/big",))
    assert await told(missed, reasons.NoDeviceMatches(("gpu/big",), in_use=1)) == []
