"""Whatever objects were before, readable or not, the view is as if they had always been as they
are: a server that was just started answers as one that has seen it all."""

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.kinds import Kind as Wired
from fettle.cluster.view import NodeView, View
from fettle.dra import PoolView
from fettle.model import SOUND, EvidenceKind, Health
from tests.fettle import building as b
from tests.fettle.cluster.inventory.fleets import Fleet, claim, node, slice_

Raw = dict[str, Any]

UNREADABLE = 5


def claim_with(device: str | None, pool: str = "n", spec: Any = None, **result: Any) -> Raw:
    made: Raw = claim("c", device, pool)
    if device is not None:
        made["status"]["allocation"]["devices"]["results"][0] |= result
    if spec is not None:
        made["spec"] = spec
    return made


def of_pod(name: str, spec: Any = None) -> Raw:
    """A claim that the scheduler made for a pod's extended resources."""
    owner = {"kind": "Pod", "name": "p", "uid": "of-p", "controller": True}
    metadata = {
        "name": name,
        "namespace": "d",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    return {**claim(name, "gpu-1"), "metadata": metadata, "spec": {} if spec is None else spec}


def ill(pool: str) -> Raw:
    """A claim whose driver says that its device does not get ready."""
    made: Raw = claim("c", "gpu-1", pool)
    at = "1970-01-12T13:46:40Z"
    condition = {"type": "Ready", "status": "False", "lastTransitionTime": at}
    device = {"driver": b.DRIVER, "pool": pool, "device": "gpu-1"}
    made["status"]["devices"] = [{**device, "conditions": [condition]}]
    return made


def rule(selector: Any, key: str = "gaudi.intel.com/unhealthy", taint: Any = None) -> Raw:
    read = {
        "key": key,
        "value": "CriticalError",
        "effect": "NoExecute",
        "timeAdded": "1970-01-12T13:46:40Z",
    }
    spec = {"deviceSelector": selector, "taint": read if taint is None else taint}
    return {"metadata": {"name": "r"}, "spec": spec}


def slice_with(name: str, node: str = "n", pool: str | None = None, **spec: Any) -> Raw:
    made: Raw = slice_(node) | {"metadata": {"name": name}}
    made["spec"]["pool"]["name"] = pool or node
    made["spec"] |= spec
    return made


def network(name: str, pool: str, **spec: Any) -> Raw:
    made = slice_with(name, pool, allNodes=True, **spec)
    del made["spec"]["nodeName"]
    return made


def pod_on(node: str, **more: Any) -> Raw:
    pod = b.gpu_pod(name="p")
    pod["spec"] |= {"nodeName": node, **more}
    return pod


def named(name: str, **fields: Any) -> Raw:
    return {"metadata": {"name": name}, **fields}


SHARE = {"shareID": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"}
OLDER = {"name": "x", "creationTimestamp": "2020-01-01T00:00:00Z"}

VERSIONS: dict[str, tuple[Wired, str, tuple[Raw, ...]]] = {
    "claim": (
        kinds.CLAIM,
        "d/c",
        (
            claim_with(None),
            claim_with("gpu-0"),
            claim_with("gpu-1", "other"),
            ill("n"),
            ill("net"),
            claim_with(None, spec=UNREADABLE),
            claim_with("gpu-0", spec=UNREADABLE),
            claim_with("gpu-0", "other", spec=UNREADABLE),
            {**claim_with(None), "status": UNREADABLE},
            claim_with("gpu-0", **SHARE, consumedCapacity={"memory": "much"}),
            claim_with("gpu-0", **SHARE, consumedCapacity={"memory": "1"}),
        ),
    ),
    "of a pod": (kinds.CLAIM, "d/a", (of_pod("a"), of_pod("a", UNREADABLE))),
    "too": (kinds.CLAIM, "d/b", (of_pod("b"), of_pod("b", UNREADABLE))),
    "rule": (
        kinds.TAINT_RULE,
        "r",
        (
            rule({"pool": "n"}),
            rule({"pool": "other"}),
            rule({"device": "gpu-1"}, "example.com/of-no-meaning"),
            rule({"pool": "n"}, taint=UNREADABLE),
            rule({"pool": "other"}, taint=UNREADABLE),
            rule(UNREADABLE),
            named("r", spec=UNREADABLE),
        ),
    ),
    "slice": (
        kinds.SLICE,
        "s",
        (
            slice_with("s"),
            slice_with("s", "other"),
            slice_with("s", devices=[{"name": "gpu-1"}]),
            slice_with("s", pool="of-another-name"),
            network("s", "n"),
            slice_with("s", devices=UNREADABLE),
            slice_with("s", "other", devices=UNREADABLE),
            network("s", "n", devices=UNREADABLE),
            network("s", "net", devices=UNREADABLE),
            named("s", spec=UNREADABLE),
        ),
    ),
    "network": (
        kinds.SLICE,
        "t",
        (
            network("t", "net"),
            network("t", "n"),
            network("t", "net", devices=UNREADABLE),
            network("t", "net", driver=UNREADABLE),
        ),
    ),
    "class": (
        kinds.CLASS,
        "x",
        (named("x", spec={}), {"metadata": OLDER, "spec": {}}, named("x", spec=UNREADABLE)),
    ),
    "template": (
        kinds.TEMPLATE,
        "d/t",
        (
            {"metadata": {"name": "t", "namespace": "d"}, "spec": {"spec": {}}},
            {"metadata": {"name": "t", "namespace": "d"}, "spec": UNREADABLE},
        ),
    ),
    "namespace": (
        kinds.NAMESPACE,
        "d",
        (named("d"), {"metadata": {"name": "d", "labels": UNREADABLE}}),
    ),
    "policy": (
        kinds.POLICY,
        "strict",
        (
            named("strict", spec={"placement": {"minScore": 0.5}}),
            named("strict", spec={"placement": UNREADABLE}),
        ),
    ),
    "pod": (
        kinds.POD,
        "default/p",
        (pod_on("n"), pod_on("other"), pod_on("n", containers=UNREADABLE)),
    ),
}
"""By name: the kind and key of an object, and what it may look like."""

Steps = list[tuple[str, int | None]]
steps = st.lists(
    st.one_of(
        st.just(("look", None)),
        *(
            st.tuples(st.just(name), st.none() | st.sampled_from(range(len(versions))))
            for name, (_, _, versions) in VERSIONS.items()
        ),
    ),
    max_size=25,
)
"""Objects take a version, or are deleted (None)."""


@given(steps)
@example([("slice", 0), ("claim", 1), ("look", None), ("claim", 7)])
@example([("slice", 0), ("claim", 3), ("look", None), ("claim", 8)])
@example([("slice", 0), ("rule", 0), ("look", None), ("rule", 4)])
@example([("slice", 0), ("look", None), ("slice", 6)])
@example([("class", 0), ("look", None), ("class", 1)])
def test_after_any_history_unreadable_objects_count_as_after_a_restart(steps: Steps) -> None:
    lived, latest = started({}), dict[str, int]()
    for name, version in steps:
        if name == "look":
            look(lived)
            continue
        kind, key, versions = VERSIONS[name]
        if version is None:
            lived.inventory.remove(kind, key, lived.now)
            latest.pop(name, None)
        else:
            lived.take(kind, versions[version])
            latest[name] = version
    assert seen(look(lived)) == seen(look(started(latest)))


def started(there: dict[str, int]) -> Fleet:
    fleet = Fleet()
    for name in ("n", "other"):
        fleet.take(kinds.NODE, node(name))
    for name, version in there.items():
        kind, _, versions = VERSIONS[name]
        fleet.take(kind, versions[version])
    return fleet


def look(fleet: Fleet) -> View:
    """The newest view, of which the basis has moved if anything that answers rest on has."""
    before = fleet.view
    after = fleet.look()
    assert answers_rest_on(after) == answers_rest_on(before) or after.basis > before.basis
    return after


def answers_rest_on(view: View) -> object:
    """Of slices, rules and pods that cannot be read, records say what there is to say."""
    named = ("DeviceClass ", "DevicePolicy ", "ResourceClaim ", "ResourceClaimTemplate ")
    return (
        (view.nodes, view.classes, view.claims, view.templates, view.namespaces, view.policies),
        {key: why for key, why in view.quarantined.items() if key.startswith(named)},
    )


def seen(view: View) -> object:
    """All that a view shows, but for what is remembered of health."""
    fields = ("classes", "claims", "extended_claims", "templates", "namespaces", "policies", "pods")
    return (
        {name: (plain(record), standing(record)) for name, record in view.nodes.items()},
        {field: getattr(view, field) for field in fields},
        list(view.quarantined.items()),
    )


def plain(record: NodeView) -> NodeView:
    pools = tuple(map(plain_pool, record.pools))
    return msgspec.structs.replace(record, health=SOUND, plugins={}, pools=pools)


def plain_pool(pool: PoolView) -> PoolView:
    fields = {
        field: tuple(msgspec.structs.replace(d, health=SOUND) for d in getattr(pool, field))
        for field in ("devices", "withheld")
    }
    return msgspec.structs.replace(pool, **fields, fingerprint=b"")


def standing(record: NodeView) -> object:
    """What is said of a node and its devices and does not fade."""
    healths: list[Health] = [record.health]
    healths += [d.health for pool in record.pools for d in (*pool.devices, *pool.withheld)]
    return [
        sorted(
            w.evidence.text
            for w in health.evidence
            if w.evidence.kind in (EvidenceKind.LEVEL, EvidenceKind.UNKNOWN)
        )
        for health in healths
    ]
