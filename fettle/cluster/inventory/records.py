"""What a view says of one node's DRA devices, made from what the inventory and the health book
know; `units.py` does so for device plugins."""

from collections.abc import Mapping
from itertools import starmap

from fettle.cluster.inventory import shapes
from fettle.cluster.inventory.devices import Devices
from fettle.cluster.inventory.holdings import Holdings
from fettle.cluster.inventory.placing import Placing
from fettle.cluster.inventory.pools import Gathered
from fettle.dra import CounterId, DeviceView, PoolView, PublishedDevice
from fettle.health import HealthBook
from fettle.model import Subject
from fettle.pacing import pause


def pool(
    gathered: Gathered,
    devices: Devices,
    book: HealthBook,
    placing: Placing,
    now: float,
) -> PoolView:
    """One pool as a node sees it, with each device's health."""

    def device(published: PublishedDevice, here: bool = True, misplaced: str = "") -> DeviceView:
        pause()
        return DeviceView(
            published=published,
            taints=(published.device.taints or ()) + devices.taints.of(published.id),
            health=placing.told(book.assess(published.id, _subjects(published, placing), now)),
            allocated=devices.holdings.alone(published.id),
            shares=devices.holdings.shares(published.id),
            consumed=devices.holdings.consumed(published.id),
            here=here,
            misplaced=misplaced,
        )

    made = PoolView(
        driver=gathered.id.driver,
        name=gathered.id.pool,
        devices=tuple(starmap(device, gathered.devices)),
        withheld=tuple(map(device, gathered.withheld)),
        counters=counters_left(gathered, devices.holdings),
        incomplete=gathered.incomplete,
        slices=gathered.slices,
        invalid=gathered.invalid,
        unclear=gathered.unclear,
    )
    return shapes.with_fingerprints(made, gathered.look, gathered.attribute_fingerprints)


def counters_left(gathered: Gathered, holdings: Holdings) -> Mapping[CounterId, int]:
    """A pool's shared counters without what allocated devices consume, in 1e-9; may be negative."""
    if not gathered.counters:
        return gathered.counters
    left = dict(gathered.counters)
    for published in (*(p for p, _, _ in gathered.devices), *gathered.others):
        if holdings.alone(published.id) or holdings.shares(published.id):
            for counter, value in published.consumes:
                left[counter] = left.get(counter, 0) - value
    return left


def _subjects(published: PublishedDevice, placing: Placing) -> tuple[Subject, ...]:
    """The subjects that evidence about a device may name: the device, and more if it is
    node-local.
    """
    if not published.local:
        return (published.id,)
    return (published.id, *placing.whole, *placing.by_device.get(published.id, ()))
