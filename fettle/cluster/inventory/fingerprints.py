"""Fingerprints: digests of what a pool offers to a demand, without names.

Nodes with equal fingerprints share a verdict. Which nodes are equal depends on the attributes that
a demand reads, so there is one digest for each attribute and one for all the rest, made once with
the pool's record. A demand then costs look-ups and never reads a device. Equal digests mean equal
content, except by chance (128 bits).
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from fettle.cel import Reads, rows
from fettle.cluster.inventory.gathered_pools import Gathered
from fettle.dra import DeviceView, PoolView, PublishedDevice
from fettle.health import DIGITS
from fettle.model import SOUND, Health
from fettle.pacing import pause

Attribute = tuple[str, str]
"""(domain, name). The domain is "" for a name that is looked up without one."""
EVERYTHING: Attribute = ("*", "")
"""Stands for all attributes together. No attribute has such a domain."""
AttributeFingerprints = Mapping[Attribute, bytes]

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def slice_fingerprints(gathered: Gathered) -> tuple[bytes, AttributeFingerprints]:
    """Digests of what slices alone say: of everything but attributes, and of each attribute of all
    devices.

    Names with and without the driver's domain share a digest, but are told apart in it: selectors
    treat them the same, constraints do not.
    """
    driver = gathered.id.driver
    more = (driver, gathered.incomplete, gathered.slices, gathered.invalid, gathered.unclear)
    plain: list[object] = []
    attribute_fingerprints: dict[Attribute, list[object]] = {}
    for at, (published, here, misplaced) in enumerate(gathered.devices):
        plain.append((here, misplaced, *_plain(published)))
        for name, value in (published.device.attributes or {}).items():
            domain, bare = rows.split_name(name, driver)
            entry = (at, value) if name == bare else (at, value, name)
            attribute_fingerprints.setdefault((domain or driver, bare), []).append(entry)
        pause()
    digests = {}
    for split, values in attribute_fingerprints.items():
        digests[split] = _digest(values)
        pause()
    digests[EVERYTHING] = _digest(sorted(digests.items()))
    return _digest((plain, more)), digests


def mark_unclear(gathered: Gathered, why: str) -> Gathered:
    """The pool, marked as unclear for this reason."""
    unclear = msgspec.structs.replace(gathered, unclear=gathered.unclear or why)
    fingerprint, attribute_fingerprints = slice_fingerprints(unclear)
    return msgspec.structs.replace(
        unclear, fingerprint=fingerprint, attribute_fingerprints=attribute_fingerprints
    )


def with_fingerprints(
    pool: PoolView, fixed: bytes, attribute_fingerprints: AttributeFingerprints
) -> PoolView:
    """The pool with its digests: what slices say (`fixed`), and what others do to devices and
    counters."""
    odd = [(at, *_state(d)) for at, d in enumerate(pool.devices) if not _is_usual(d)]
    fingerprint = fixed
    if odd or pool.counters:
        fingerprint = _digest((fixed, odd, _amounts(pool.counters)))
    return msgspec.structs.replace(
        pool, fingerprint=fingerprint, attribute_fingerprints=attribute_fingerprints
    )


def attribute_digests(pool: PoolView, attributes: Iterable[Attribute]) -> list[bytes | None]:
    """The digests of a pool's attributes; None for those that none of its devices has."""
    find, driver = pool.attribute_fingerprints.get, pool.driver
    return [find(a if a[0] else (driver, a[1])) for a in attributes]


def attributes_read(reads: Iterable[Reads]) -> tuple[Attribute, ...]:
    """The attributes that selectors can see."""
    seen: set[Attribute] = set()
    for read in reads:
        if read is None or any(r.field == "attributes" and not r.name for r in read):
            return (EVERYTHING,)
        seen.update((r.domain, r.name) for r in read if r.field == "attributes")
    return tuple(sorted(seen))


def _plain(published: PublishedDevice) -> tuple[object, ...]:
    device = published.device
    return (
        device.capacity,
        device.consumes_counters,
        device.allow_multiple_allocations,
        bool(device.binding_conditions),
        published.abort,
        published.unclear,
        published.skips,
        published.pins,
        published.terms,
        rows.problem(published.id.driver, device),
    )


def _is_usual(device: DeviceView) -> bool:
    return (
        device.health is SOUND and not device.allocated and not device.shares and not device.taints
    )


def _state(device: DeviceView) -> tuple[object, ...]:
    health = device.health
    return (
        device.allocated,
        bool(device.shares),
        _amounts(device.consumed),
        [(t.key, t.value, t.effect) for t in device.taints],
        len(device.device.taints or ()),  # taints of rules may not count
        (health.score, health.state, health.held, health.tenant_caused, health.suspected),
        _weights(health) if any(w.evidence.taints for w in health.evidence) else (),
    )


def _weights(health: Health) -> list[tuple[object, ...]]:
    """What a score is made of, for demands that tolerate part of it
    (`scheduling/judge/acceptance.py`)."""
    return [
        (
            e.taints,
            e.family,
            e.kind,
            round(weight, DIGITS),
            e.source,
            e.reporting_namespace,
            e.together,
        )
        for e, weight in ((w.evidence, w.weight) for w in health.evidence)
    ]


def _amounts(amounts: Mapping[Any, int]) -> list[tuple[object, str]]:
    """Amounts in 1e-9 exceed what can be encoded as a number."""
    return [(name, str(value)) for name, value in sorted(amounts.items())]


def _digest(content: object) -> bytes:
    try:
        encoded = _encode(content)
    except OverflowError:  # a number beyond 64 bits, which no API server stores
        encoded = repr(content).encode()
    return blake2b(encoded, digest_size=16).digest()
