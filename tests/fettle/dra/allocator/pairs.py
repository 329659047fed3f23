"""Nodes with GPUs and NICs, each on a PCIe root, and claims for pairs of them."""

from collections.abc import Collection, Iterable

import msgspec

from fettle.api.resource import DeviceAttribute
from fettle.cel import Outcome
from fettle.cel.runtime.protocol import MATCH, NO_MATCH
from fettle.dra.claims import Alternative, Claim, Constraint, Request
from fettle.dra.pools import DeviceView, PoolView
from tests.fettle import building as b

ROOT = "resource.kubernetes.io/pcieRoot"
GPU, NIC = "gpu.example.com", "nic.example.com"


def match(driver: str, device: DeviceView) -> Outcome:
    return MATCH if device.id.driver == driver else NO_MATCH


def node(
    gpus: Iterable[int], nics: Iterable[int], shared: Collection[int] = ()
) -> tuple[PoolView, ...]:
    """A device on each root that is named; NICs on some roots may be `shared`."""
    return (pool(GPU, "gpu", gpus), pool(NIC, "nic", nics, shared))


def pool(driver: str, name: str, roots: Iterable[int], shared: Collection[int] = ()) -> PoolView:
    devices = tuple(
        _shared(
            root in shared,
            b.device(
                f"{name}-{number}",
                driver=driver,
                attributes={
                    ROOT: DeviceAttribute(string=f"pci{root}"),
                    "uuid": DeviceAttribute(string=f"{name}-{number}"),
                },
            ),
        )
        for number, root in enumerate(roots)
    )
    return PoolView(driver, "n", devices)


def _shared(shared: bool, device: DeviceView) -> DeviceView:
    published = device.published
    raw = msgspec.structs.replace(published.device, allow_multiple_allocations=shared)
    return msgspec.structs.replace(
        device, published=msgspec.structs.replace(published, device=raw, plain=not shared)
    )


def claim(pairs: int, *, grouped: bool = True, gpus: int = 1) -> Claim:
    """`grouped`: all GPUs are requested before the NICs; of each pair, so many `gpus` for a NIC."""
    of_gpus = [request(f"g{i}", GPU, gpus) for i in range(pairs)]
    of_nics = [request(f"n{i}", NIC) for i in range(pairs)]
    constraints = [agreeing(f"g{i}", f"n{i}") for i in range(pairs)]
    if grouped:
        return Claim("k", (*of_gpus, *of_nics), tuple(constraints))
    mixed = (each for pair in zip(of_gpus, of_nics, strict=True) for each in pair)
    return Claim("k", tuple(mixed), tuple(constraints))


def request(name: str, driver: str, count: int = 1) -> Request:
    return Request(name, (Alternative(name, driver, (driver,), count=count),))


def agreeing(*requests: str) -> Constraint:
    return Constraint(ROOT, requests=frozenset(requests))
