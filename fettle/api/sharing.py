"""What devices of a slice say alike, kept once: partitions of a GPU differ in little but names, and
a node has hundreds. Each decoded value would be an object of its own. Pure.
"""

from typing import Any

from fettle.api.resource import ResourceSlice


def share(slice_: ResourceSlice) -> None:
    """Make equal values of a slice's devices the same object, before anybody else has it.

    Quantities without quotes are left alone: 1 equals 1.0, and is read in another way.
    """
    kept: dict[Any, Any] = {}
    keep = kept.setdefault
    for device in slice_.spec.devices or ():
        if attributes := device.attributes:
            for name, attribute in attributes.items():
                attributes[name] = keep(attribute, attribute)
        if capacities := device.capacity:
            for name, capacity in capacities.items():
                if type(capacity.value) is str and capacity.request_policy is None:
                    capacities[name] = keep(capacity, capacity)
        for consumption in device.consumes_counters or ():
            if counters := consumption.counters:
                for name, counter in counters.items():
                    if type(counter.value) is str:
                        counters[name] = keep(counter, counter)
