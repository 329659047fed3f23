"""Short ways to write the objects that tests of the core are about."""

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from fettle.api import core, kinds, resource
from fettle.cluster import EMPTY, NodeView, PluginView, UnitView, View
from fettle.cluster.inventory.fingerprints import slice_fingerprints, with_fingerprints
from fettle.cluster.inventory.gathered_pools import Gathered, PoolId
from fettle.config import HealthSettings
from fettle.dra import DeviceView, PoolView, PublishedDevice
from fettle.explain.wording import text, texts
from fettle.health import START, assess
from fettle.model import (
    SOUND,
    DeviceId,
    Evidence,
    EvidenceKind,
    Family,
    Health,
    NodeId,
    Placement,
    ReporterId,
    Source,
    SourceKind,
    State,
    Weighed,
)
from fettle.model.reasons import Reason
from fettle.scheduling.judge.acceptance import node_refusal

DRIVER = "gpu.example.com"
RESOURCE = "example.com/gpu"


def pod(raw: dict[str, Any]) -> core.Pod:
    decoded = kinds.POD.decode(msgspec.json.encode(raw))
    assert isinstance(decoded, core.Pod)
    return decoded


def claim(raw: dict[str, Any]) -> resource.ResourceClaim:
    decoded = kinds.CLAIM.decode(msgspec.json.encode(raw))
    assert isinstance(decoded, resource.ResourceClaim)
    return decoded


def template(raw: dict[str, Any]) -> resource.ResourceClaimTemplate:
    decoded = kinds.TEMPLATE.decode(msgspec.json.encode(raw))
    assert isinstance(decoded, resource.ResourceClaimTemplate)
    return decoded


def device_class(
    name: str = DRIVER, *selectors: str, created: str | None = None, **spec: Any
) -> resource.DeviceClass:
    expressions = selectors or (f'device.driver == "{DRIVER}"',)
    raw = {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"selectors": [{"cel": {"expression": e}} for e in expressions], **spec},
    }
    decoded = kinds.CLASS.decode(msgspec.json.encode(raw))
    assert isinstance(decoded, resource.DeviceClass)
    return decoded


def gpu_pod(
    count: int = 1, *, annotations: dict[str, str] | None = None, name: str = "p"
) -> dict[str, Any]:
    limits = {RESOURCE: str(count)}
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": limits, "requests": limits}}]
        },
    }


SOURCE = Source(SourceKind.TAINT, "test")


def health(score: float, *, held: bool = False, text: str = "a fault") -> Health:
    """A health as the book would give it for one piece of evidence."""
    if score == 1.0:
        return SOUND
    state = State.UNHEALTHY if score < 0.3 else State.DEGRADED if score < 0.8 else State.HEALTHY
    evidence = Evidence(
        subject=NodeId("n"),
        family=Family.NODE,
        kind=EvidenceKind.LEVEL,
        weight=1 - score,
        source=SOURCE,
        reporter=ReporterId("Node", "n"),
        said=text,
        observed_at=0.0,
    )
    return Health(score, state, 0.0, (Weighed(evidence, 1 - score),), held)


def ill(*causes: tuple[str, float], kind: EvidenceKind = EvidenceKind.LEVEL) -> Health:
    """The health by faults of these sources and weights, each of a family of its own."""
    evidence = tuple(
        Weighed(
            Evidence(
                subject=NodeId("n"),
                family=family,
                kind=kind,
                weight=weight,
                source=Source(SourceKind.TAINT, source),
                reporter=ReporterId("Node", "n"),
                said=source,
                observed_at=0.0,
            ),
            weight,
        )
        for family, (source, weight) in zip(Family, causes, strict=False)
    )
    return assess(evidence, START, HealthSettings(), math.inf, all_clear=False).health


UNKNOWN = Health(0.75, State.UNKNOWN)


def device(
    name: str,
    score: float = 1.0,
    *,
    pool: str = "n",
    driver: str = DRIVER,
    taints: tuple[resource.DeviceTaint, ...] = (),
    allocated: bool = False,
    unclear: str = "",
    local: str = "n",
    attributes: dict[str, resource.DeviceAttribute] | None = None,
) -> DeviceView:
    published = PublishedDevice(
        id=DeviceId(driver, pool, name),
        device=resource.Device(name=name, attributes=attributes),
        unclear=unclear,
        plain=not unclear,
        local=local,
    )
    return DeviceView(published, taints, health(score), allocated)


def pool(*devices: DeviceView, incomplete: bool = False, name: str = "n") -> PoolView:
    return PoolView(DRIVER, name, devices, incomplete=incomplete)


def looked_at(pool: PoolView) -> PoolView:
    """The pool with its digests, as a record has them."""
    devices = tuple((d.published, d.here, d.misplaced) for d in pool.devices)
    fingerprint, attribute_fingerprints = slice_fingerprints(
        Gathered(PoolId(pool.driver, pool.name), devices)
    )
    return with_fingerprints(pool, fingerprint, attribute_fingerprints)


def node(
    name: str = "n",
    *,
    gpus: int = 0,
    units: dict[str, float] | None = None,
    busy: frozenset[str] = frozenset(),
    withdrawn: frozenset[str] = frozenset(),
    shared: int = 1,
    pools: tuple[PoolView, ...] = (),
    own: Health = SOUND,
) -> NodeView:
    """A node with `gpus` allocatable units, of which `units` have a known score.

    Each of these is `shared` units; those that are `withdrawn` come on top of the `gpus`.
    """
    named = tuple(
        UnitView(u, health(s), int(u in busy), shared, shared if u in withdrawn else 0)
        for u, s in sorted((units or {}).items())
    )
    capacity = gpus + shared * len(withdrawn)
    plugins = {RESOURCE: PluginView(RESOURCE, capacity, gpus, named)} if gpus else {}
    return NodeView(name, {}, own, plugins, pools)


def view(*nodes: NodeView, **fields: Any) -> View:
    by_name = {n.name: n for n in nodes}
    defaults: dict[str, Any] = {"generation": 1, "basis": 1, "synced": True, "nodes": by_name}
    return msgspec.structs.replace(EMPTY, **{**defaults, **fields})


def refusal(health: Health, placement: Placement) -> str:
    """Why a policy refuses a node of this health, in words; "" if it does not."""
    found = node_refusal(health, placement)
    return text(found).removeprefix("node is ") if found is not None else ""


def as_text(found: Iterable[Reason]) -> str:
    """Reasons in words, as one text."""
    return "; ".join(texts(found))
