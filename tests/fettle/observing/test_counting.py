"""How many devices are counted."""

import msgspec

from fettle.cluster import PluginView
from fettle.model import State
from fettle.observing import counting
from tests.fettle import building as b


def test_units_of_device_plugins_and_devices_of_drivers_are_counted_by_state() -> None:
    ill = b.node("n1", gpus=4, units={"u": 0.2})
    drivers = b.node("n2", pools=(b.pool(b.device("a"), b.device("b", 0.5)),))
    assert counting.devices(b.view(ill, drivers)) == {
        (b.RESOURCE, State.UNHEALTHY): 1,
        (b.RESOURCE, State.HEALTHY): 3,
        (b.DRIVER, State.HEALTHY): 1,
        (b.DRIVER, State.DEGRADED): 1,
    }


def test_an_amount_of_memory_is_no_number_of_devices() -> None:
    gpus = b.node(gpus=8)
    memory = PluginView("gpu.intel.com/memory.max", 6_700_149_198_926, 6_700_149_198_926)
    node = msgspec.structs.replace(gpus, plugins={**gpus.plugins, memory.resource: memory})
    counted = counting.devices(b.view(node))
    assert {resource for resource, _ in counted} == {b.RESOURCE}
