"""What a Pod says: the health of devices it holds, and that the kubelet of its node refused it.

The kubelet writes both. The `allocatedResourcesStatus` of a live pod stands as long as it is
reported. For a pod that has ended it is the last report: a fault fades, and an all-clear counts
only if the pod was seen to end. A refusal is an event, counted once per pod. If a tenant could have
caused it, it counts as evidence from its namespace. What a pod says that does not start is in
`starts.py`.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec

from fettle.api import core, kinds, resource
from fettle.api.meta import unix_s
from fettle.dra import device_units, domain_of, is_device_resource
from fettle.health.signals import patterns, xids
from fettle.health.signals.reports import (
    TEXT_LIMIT,
    SignalReport,
    heaviest,
    one_line,
    without_middle,
)
from fettle.health.signals.rule_tables import SignalRules
from fettle.model import (
    OF_DOMAINS,
    DeviceId,
    Evidence,
    EvidenceKind,
    NodeId,
    ReporterId,
    Source,
    SourceKind,
    Subject,
    UnitId,
)
from fettle.pacing import pause

DEVICE_STATUS_SOURCE = Source(SourceKind.DEVICE_STATUS)
_UNEXPECTED = "UnexpectedAdmissionError"
_MISALIGNED = "TopologyAffinityError"
"""What a pod asks for is free, but not on the NUMA nodes that it would need."""
_OUT_OF = "OutOf"
"""Begins the reason of a refusal for want of a resource, and its name follows."""
_CLAIM = "claim:"
"""Begins the name of an entry about DRA devices: `claim:<claim>/<request>`."""
_REJECTED = ("Pod was rejected: ", "Pod ")
"""What the kubelet writes before its reason."""

_COUNTED = r"requested: ([0-9]{1,9}), used: ([0-9]{1,9}), capacity: ([0-9]{1,9})"
"""How the kubelet counts a resource of which a node has too little."""

MOST_ILL = 1024
"""Things that are said of a pod's devices. More than a node has units of any plugin that gives a
pod several."""
_LEAST_TOLD = 120
"""Characters of a kubelet's message that are told at least."""
FindClaim = Callable[[str], resource.ResourceClaim | None]
IsFull = Callable[[core.Pod, str], bool]


def report_of_pod(
    pod: core.Pod,
    rules: SignalRules,
    now: float,
    claims: FindClaim,
    before: core.Pod | None = None,
    is_full: IsFull = lambda *_: False,
) -> SignalReport:
    """What the pod says about devices; most pods say nothing.

    `claims` finds a ResourceClaim by `namespace/name`. `before` is the pod as it was last seen.
    `is_full`: whether live pods hold so many units of a resource that the pod's node has no room
    for it.
    """
    evidence: list[Evidence] = []
    cleared: set[tuple[Subject, Source]] = set()
    if is_device_refusal(pod):
        evidence += _refusal(pod, before, rules, now, is_full)
    else:
        for subject, health in _healths(pod, claims):
            pause()
            if health.health == "Healthy":
                cleared.add((subject, DEVICE_STATUS_SOURCE))
            elif len(evidence) < MOST_ILL:
                ill = _evidence(pod, before, subject, health, rules, now)
                evidence += ill, *_of_xids(ill, health, rules)
    if pod.terminal:
        evidence = [e for e in evidence if e.kind is not EvidenceKind.UNKNOWN]
        if not _was_alive(pod, before):
            cleared.clear()
    said_ill = {(e.subject, e.source) for e in evidence}
    return SignalReport(
        reporter=ReporterId(kinds.POD.name, pod.metadata.key),
        evidence=heaviest(evidence),
        cleared=frozenset(cleared - said_ill),
        uid=pod.metadata.uid,
    )


def claims_mentioned(pod: core.Pod) -> frozenset[str]:
    """`namespace/name` of the ResourceClaims whose devices the pod's status reports on."""
    return frozenset(
        _claim_key(pod, status.name.removeprefix(_CLAIM).partition("/")[0])
        for container in pod.container_statuses()
        for status in container.allocated_resources_status or ()
        if status.name.startswith(_CLAIM)
    )


def devices_given(pod: core.Pod, claims: FindClaim) -> tuple[Subject, ...]:
    """The devices that a pod was given: those of its claims, and the units that its kubelet
    names."""
    found: dict[Subject, None] = {}
    for entry in pod.resource_claims:
        claim = claims(_claim_key(pod, entry.name))
        found |= dict.fromkeys(_given(claim) if claim is not None else ())
    return (*found, *(one for one, _ in _healths(pod, claims) if one not in found))


def _given(claim: resource.ResourceClaim) -> Iterator[DeviceId]:
    allocation = claim.status.allocation if claim.status is not None else None
    if allocation is not None and allocation.devices is not None:
        for result in allocation.devices.results or ():
            if not result.admin_access:
                yield DeviceId(result.driver, result.pool, result.device)


def is_device_refusal(pod: core.Pod) -> bool:
    """Whether a kubelet refused the pod for a reason that may tell of devices. One that has
    completed wants no devices any more; a kubelet that restarts may refuse it all the same
    (kubernetes#117955)."""
    status = pod.status
    if status is None or status.phase != "Failed" or _has_completed(status):
        return False
    if status.reason == _MISALIGNED:
        return any(device_units(pod))
    return status.reason == _UNEXPECTED or bool(_missed(status))


def _has_completed(status: core.PodStatus) -> bool:
    """Whether each container has run to its end."""
    states = [one.state for one in status.container_statuses or ()]
    ends = [state.terminated if state is not None else None for state in states]
    return bool(ends) and all(
        end is not None and end.reason == "Completed" and end.exit_code == 0 for end in ends
    )


def _missed(status: core.PodStatus) -> str:
    """The extended resource that a node did not have enough of, by the reason of a refusal; "" if
    that names none."""
    name = status.reason.removeprefix(_OUT_OF)
    return name if name != status.reason and is_device_resource(name) else ""


def _refusal(
    pod: core.Pod, before: core.Pod | None, rules: SignalRules, now: float, is_full: IsFull
) -> Iterator[Evidence]:
    node = pod.spec.node_name if pod.spec is not None else None
    status = pod.status
    if not node or status is None:
        return
    row = rules.refusal(status.message)
    if row is not None and (row.ignored or (row.unless_full and _is_full(pod, status, is_full))):
        return
    name, aside, source = "admission", "", SourceKind.REFUSALS
    if status.reason == _MISALIGNED:
        name, source = "misaligned", SourceKind.MISALIGNMENTS
    elif row is not None and row.tenant_caused is not None:
        name = "tenant-caused" if row.tenant_caused else name
    elif _had_run(pod, before):
        name, aside, source = "readmission", ", which had run there", SourceKind.READMISSIONS
    elif not _was_scheduled(pod, before):
        name, aside = "tenant-caused", ", which no scheduler was seen to place"
    elif row is None:
        name, source = "unexplained", SourceKind.UNEXPLAINED
    signal = rules.signals[name]
    tenant_caused = name in ("tenant-caused", "misaligned", "unexplained")
    message = next(
        (status.message.removeprefix(one) for one in _REJECTED if status.message.startswith(one)),
        status.message,
    )
    domain = domain_of_pod(pod, message)
    who = one_line(f"kubelet refused pod {pod.metadata.key}{aside}")
    yield Evidence(
        subject=NodeId(node),
        family=signal.family,
        kind=EvidenceKind.DECAYING,
        weight=signal.weight,
        source=Source(source, domain),
        reporter=ReporterId(kinds.POD.name, pod.metadata.key),
        said=f"{who}: {without_middle(message, max(_LEAST_TOLD, TEXT_LIMIT - len(who)))}",
        observed_at=_dated(pod, before, status.start_time, now),
        half_life_s=rules.half_life_s(signal.family),
        cap=signal.cap,
        reporting_namespace=pod.metadata.namespace if tenant_caused else "",
        together=signal.together,
        domain=domain,
    )


def _is_full(pod: core.Pod, status: core.PodStatus, is_full: IsFull) -> bool:
    if (counted := patterns.search(_COUNTED, status.message)) is not None:
        wanted, used, has = map(int, counted.groups())
        if used and wanted <= has:
            return True  # so the kubelet says: others have them
    missed = _missed(status)
    asked = [missed] if missed else _named(pod, status.message)
    return any(is_full(pod, resource) for resource in asked)


def refusals_on(node: core.Node) -> Iterator[Source]:
    """All sources that refusals and failed starts on this node can have."""
    capacity = (node.status.capacity if node.status is not None else None) or {}
    domains = {domain_of(name) for name in capacity if is_device_resource(name)}
    for domain in ("", *sorted(domains)):
        for kind in OF_DOMAINS:
            yield Source(kind, domain)


def domain_of_pod(pod: core.Pod, message: str) -> str:
    """The domain of the device plugin that took part in a refusal; "" if that is unknown.

    It is the domain of the resource that the kubelet names, else of all resources that the pod
    requests. It is unknown if these have several domains, or if the pod has claims too.
    """
    asked = {name for name, _ in device_units(pod)}
    domains = {domain_of(name) for name in _named(pod, message) or asked}
    claims = pod.spec.resource_claims if pod.spec is not None else None
    return domains.pop() if len(domains) == 1 and not claims else ""


def _named(pod: core.Pod, message: str) -> list[str]:
    """The resources that the pod requests and the kubelet names."""
    return [name for name, _ in device_units(pod) if _names(message, name)]


def _names(message: str, resource: str) -> bool:
    return patterns.names(message, resource, joined="./-")


def _had_run(pod: core.Pod, before: core.Pod | None) -> bool:
    """Whether the pod was running when it was last seen. Then its node or its kubelet has
    restarted."""
    if before is None or before.metadata.uid != pod.metadata.uid or before.status is None:
        return False
    return before.status.phase == "Running"


def _was_scheduled(pod: core.Pod, before: core.Pod | None) -> bool:
    """Whether the pod was seen unbound or scheduled, rather than created on its node.

    A refused pod does not show this: the kubelet removes `PodScheduled`.
    """
    if before is None or before.metadata.uid != pod.metadata.uid:
        return False
    if before.spec is None or not before.spec.node_name:
        return True
    conditions = (before.status.conditions if before.status is not None else None) or ()
    return any(c.type == "PodScheduled" and c.status == "True" for c in conditions)


def _was_alive(pod: core.Pod, before: core.Pod | None) -> bool:
    """Whether the pod had not ended when it was last seen, so what it says now is news."""
    return before is not None and before.metadata.uid == pod.metadata.uid and not before.terminal


def _dated(
    pod: core.Pod, before: core.Pod | None, by_kubelet: datetime | None, now: float
) -> float:
    """When something happened to a pod.

    If it was seen to happen, that is now. Otherwise it is the kubelet's time, which is its node's
    clock, if that time is possible.
    """
    if _was_alive(pod, before):
        return now
    created = pod.metadata.creation_timestamp
    created_at = unix_s(created, now)
    at = unix_s(by_kubelet, created_at)
    is_possible = at <= now and (created is None or at >= created_at)
    return at if is_possible else min(created_at, now)


def _ended_at(pod: core.Pod) -> datetime | None:
    """When the pod stopped being ready."""
    conditions = (pod.status.conditions if pod.status is not None else None) or ()
    return next((c.last_transition_time for c in conditions if c.type == "Ready"), None)


def _evidence(
    pod: core.Pod,
    before: core.Pod | None,
    subject: Subject,
    health: core.ResourceHealth,
    rules: SignalRules,
    now: float,
) -> Evidence:
    signal = rules.signals["unhealthy-allocation"]
    unhealthy = health.health == "Unhealthy"
    kind = EvidenceKind.DECAYING if pod.terminal else EvidenceKind.LEVEL
    detail = f": {health.message}" if health.message else ""
    return Evidence(
        subject=subject,
        family=signal.family,
        kind=kind if unhealthy else EvidenceKind.UNKNOWN,
        weight=signal.weight if unhealthy else 0.0,
        source=DEVICE_STATUS_SOURCE,
        reporter=ReporterId(kinds.POD.name, pod.metadata.key),
        said=one_line(f"kubelet: {health.health or 'Unknown'} in pod {pod.metadata.key}{detail}"),
        observed_at=_dated(pod, before, _ended_at(pod), now) if pod.terminal else now,
        half_life_s=rules.half_life_s(signal.family),
        cap=signal.weight if unhealthy else 1.0,
    )


def _of_xids(ill: Evidence, health: core.ResourceHealth, rules: SignalRules) -> Iterator[Evidence]:
    """What the XIDs mean that a driver or plugin gives as the reason."""
    if ill.kind is not EvidenceKind.LEVEL:
        return
    for one in xids.mentions(xids.ANY_FORM, "", health.message or ""):
        xid = rules.xid(one.code, one.said)
        yield msgspec.structs.replace(
            ill,
            family=xid.family,
            kind=xid.kind if xid.weight > ill.weight else EvidenceKind.LEVEL,
            weight=xid.weight,
            said=one_line(f"{xid.text}; {ill.said}"),
            half_life_s=rules.half_life_s(xid.family),
            cap=1.0,
            unlisted=rules.unlisted_xid(one.code),
        )


def _healths(pod: core.Pod, claims: FindClaim) -> Iterator[tuple[Subject, core.ResourceHealth]]:
    for container in pod.container_statuses():
        for status in container.allocated_resources_status or ():
            for health in status.resources or ():
                subject = _subject(pod, status.name, health.resource_id, claims)
                if subject is not None:
                    yield subject, health


def _subject(pod: core.Pod, name: str, resource_id: str, claims: FindClaim) -> Subject | None:
    """The device that an entry means; None if that is unknown."""
    if not name.startswith(_CLAIM):
        node = pod.spec.node_name if pod.spec is not None else None
        return UnitId(node, name, resource_id) if node and resource_id else None
    driver, _, rest = resource_id.partition("/")
    pool, _, device = rest.rpartition("/")  # a pool's name may contain slashes
    if driver and pool and device:
        return DeviceId(driver, pool, device)
    return _only_device(pod, name.removeprefix(_CLAIM), claims)


def _only_device(pod: core.Pod, name: str, claims: FindClaim) -> DeviceId | None:
    """The device allocated for `<claim>/<request>`, if there is exactly one."""
    claim_name, _, request = name.partition("/")
    claim = claims(_claim_key(pod, claim_name))
    allocation = claim.status.allocation if claim is not None and claim.status is not None else None
    if allocation is None or allocation.devices is None:
        return None
    found = {
        DeviceId(r.driver, r.pool, r.device)
        for r in allocation.devices.results or ()
        if not request or r.request.partition("/")[0] == request.partition("/")[0]
    }
    return found.pop() if len(found) == 1 else None


def _claim_key(pod: core.Pod, name: str) -> str:
    """`namespace/name` of the ResourceClaim behind a pod's claim entry."""
    statuses = (pod.status.resource_claim_statuses if pod.status is not None else None) or ()
    entries = (pod.spec.resource_claims if pod.spec is not None else None) or ()
    generated = {s.name: s.resource_claim_name for s in statuses}
    direct = {e.name: e.resource_claim_name for e in entries}
    return f"{pod.metadata.namespace}/{generated.get(name) or direct.get(name) or name}"
