"""Which evidence counts for a request: not that of taints it tolerates, nor of other plugins."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds
from fettle.api.kinds import Kind
from fettle.api.resource import DeviceToleration
from fettle.cel import SelectorEngine
from fettle.cel.runtime.protocol import MATCH
from fettle.cluster import EMPTY, Inventory, NodeView, Publisher, UnitView, View
from fettle.config import HealthSettings
from fettle.explain.conclusions import summary
from fettle.explain.pods import plain_health, plain_verdict
from fettle.explain.wording import text, texts
from fettle.health import START, HealthBook, load_rules
from fettle.health.book import assess
from fettle.health.score import ordered, weigh
from fettle.model import (
    BUILT_IN,
    DeviceId,
    Evidence,
    Family,
    Health,
    Policies,
    ReporterId,
    Source,
    SourceKind,
    State,
    TaintRef,
    reasons,
)
from fettle.model import EvidenceKind as EvidenceKind
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Demand, Units, demand_of
from fettle.scheduling.judge.acceptance import Acceptance, without_tolerated
from fettle.scheduling.judge.claims import Allocator
from fettle.scheduling.judge.verdicts import Verdict, judge
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import PATIENT
from tests.fettle.scheduling.judge.judging import TRAINING, request, units, verdict

TABLE = load_rules()
Raw = dict[str, Any]


def taint(key: str = "example.org/burn-in", effect: str = "NoSchedule", value: str = "") -> Raw:
    return {"key": key, "effect": effect, "value": value}


def tolerating(key: str = "example.org/burn-in", **fields: str | int) -> Raw:
    return {"key": key, "operator": "Exists", **fields}


def slice_of(node: str, taints: list[Raw], *others: Raw, **metadata: Any) -> Raw:
    """One slice of a node with the tainted device `gpu` and other devices."""
    return {
        "metadata": {"name": f"slice-{node}", **metadata},
        "spec": {
            "driver": b.DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu", "taints": taints}, *others],
        },
    }


def cluster(*objects: tuple[Kind, Raw]) -> View:
    """The view of these objects, a device class, and a node `n` if none is among them."""
    inventory = Inventory(HealthBook(HealthSettings(), TABLE), TABLE)
    spec: Raw = {"selectors": [{"cel": {"expression": "true"}}]}
    known = [(kinds.CLASS, {"metadata": {"name": "gpu"}, "spec": spec}), *objects]
    if not any(kind is kinds.NODE for kind, _ in objects):
        known.append((kinds.NODE, {"metadata": {"name": "n"}}))
    for kind, raw in known:
        inventory.put(kind, kind.decode(msgspec.json.encode(raw)), 0.0)
    for _ in inventory.refresh(0.0):
        pass
    view = inventory.view(EMPTY, synced=True, served={})
    assert view is not None
    return view


def allocated(*results: Raw) -> Raw:
    return {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": results}}


def claim(*tolerations: Raw, count: int = 1, **status: Any) -> tuple[Kind, Raw]:
    exactly = {"deviceClassName": "gpu", "tolerations": list(tolerations), "count": count}
    return with_requests({"name": "r", "exactly": exactly}, **status)


def with_requests(*requests: Raw, **status: Any) -> tuple[Kind, Raw]:
    spec = {"devices": {"requests": list(requests)}}
    metadata = {"name": "c", "namespace": "default"}
    return kinds.CLAIM, {"metadata": metadata, "spec": spec, "status": status}


def demand(view: View, policy: str = "training") -> Demand:
    pod = b.pod(
        {
            "metadata": {
                "name": "p",
                "namespace": "default",
                "annotations": {"fettle.dev/policy": policy},
            },
            "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
        }
    )
    found = demand_of(pod, view, Policies())
    assert found is not None
    return found


def verdict_in(*objects: tuple[Kind, Raw], policy: str = "training", node: str = "n") -> Verdict:
    view = cluster(*objects)
    acceptance = Acceptance(BUILT_IN[policy].placement)
    return judge(demand(view, policy), view.nodes[node], acceptance, Allocator(lambda *_: MATCH))


TAINTED = (kinds.SLICE, slice_of("n", [taint()]))


def test_a_request_that_tolerates_a_taint_is_not_refused_for_it() -> None:
    answer = verdict_in(TAINTED, claim(tolerating()))
    assert answer.fits
    assert answer.score == 10
    (choice,) = answer.devices
    assert choice.health.state is State.HEALTHY


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", "None"])
def test_the_effect_of_a_tolerated_taint_makes_no_difference(effect: str) -> None:
    tainted = (kinds.SLICE, slice_of("n", [taint("gpu.nvidia.com/gpu-lost", effect)]))
    tolerations = tolerating("gpu.nvidia.com/gpu-lost"), tolerating(effect="NoExecute", key="")
    assert verdict_in(tainted, claim(*tolerations)).score == 10


def test_a_toleration_without_no_execute_does_not_excuse_a_taint_that_evicts() -> None:
    """Eviction counts only tolerations that name NoExecute; allocation counts any."""
    lost = (kinds.SLICE, slice_of("n", [taint("gpu.nvidia.com/gpu-lost", "NoExecute")]))
    lets_on = tolerating("gpu.nvidia.com/gpu-lost")
    assert not verdict_in(lost, claim(lets_on)).fits
    assert verdict_in(lost, claim(lets_on, {**lets_on, "effect": "NoExecute"})).fits


@pytest.mark.parametrize(("effect", "fits"), [("NoExecute", False), ("NoSchedule", True)])
def test_a_toleration_for_some_seconds_does_not_excuse_a_taint_that_evicts(
    effect: str, fits: bool
) -> None:
    tainted = (kinds.SLICE, slice_of("n", [taint("gpu.nvidia.com/gpu-lost", effect)]))
    for_seconds = tolerating("gpu.nvidia.com/gpu-lost", effect=effect, tolerationSeconds=300)
    for_good = tolerating("gpu.nvidia.com/gpu-lost", effect=effect)
    assert verdict_in(tainted, claim(for_seconds)).fits is fits
    assert verdict_in(tainted, claim(for_seconds, for_good)).fits


def test_a_taint_without_effect_counts_unless_it_is_tolerated() -> None:
    lost = (kinds.SLICE, slice_of("n", [taint("gpu.nvidia.com/gpu-lost", "None")]))
    assert not verdict_in(lost, claim(), policy="inference").fits
    assert not verdict_in(lost, claim(tolerating("example.org/other")), policy="inference").fits


def test_a_toleration_of_one_taint_excuses_no_other() -> None:
    both = (kinds.SLICE, slice_of("n", [taint(), taint("gpu.nvidia.com/gpu-lost", "None")]))
    answer = verdict_in(both, claim(tolerating()), policy="inference")
    assert not answer.fits
    assert "gpu-lost" in text(answer.refusals[0])


def test_each_of_two_taints_with_one_key_must_be_tolerated() -> None:
    both = [taint("k", "NoSchedule", "a"), taint("k", "None", "b")]
    one = {"key": "k", "operator": "Equal", "value": "a"}
    tainted = (kinds.SLICE, slice_of("n", both))
    assert not verdict_in(tainted, claim(one)).fits
    assert verdict_in(tainted, claim(tolerating("k"))).fits


def test_a_fault_of_the_node_is_not_excused_by_a_toleration() -> None:
    condition = {
        "type": "AcceleratedHardwareReady",
        "status": "False",
        "reason": "NvidiaXID79Error",
    }
    node = {"metadata": {"name": "n"}, "status": {"conditions": [condition]}}
    answer = verdict_in(TAINTED, (kinds.NODE, node), claim(tolerating()), policy="inference")
    assert not answer.fits
    assert "Unhealthy" in " ".join(texts(answer.refusals))


def test_a_hold_is_not_excused_by_a_toleration_of_everything() -> None:
    held = slice_of("n", [taint()], annotations={"fettle.dev/hold": "recall"})
    answer = verdict_in((kinds.SLICE, held), claim({"operator": "Exists"}), policy="inference")
    assert not answer.fits
    assert "recall" in text(answer.refusals[0])


def test_a_taint_of_a_device_taint_rule_is_tolerated_like_one_in_a_slice() -> None:
    rule = {
        "metadata": {"name": "rule"},
        "spec": {"deviceSelector": {"driver": b.DRIVER}, "taint": taint("k", "NoSchedule")},
    }
    objects = ((kinds.SLICE, slice_of("n", [])), (kinds.TAINT_RULE, rule))
    assert verdict_in(*objects, claim(tolerating("k"))).score == 10
    assert not verdict_in(*objects, claim()).devices  # the scheduler's allocator itself keeps off


def test_the_tolerations_of_the_chosen_alternative_count() -> None:
    listed = [
        {"name": "strict", "deviceClassName": "gpu"},
        {"name": "lenient", "deviceClassName": "gpu", "tolerations": [tolerating()]},
    ]
    answer = verdict_in(TAINTED, with_requests({"name": "r", "firstAvailable": listed}))
    assert answer.fits
    assert [c.request for c in answer.devices] == ["c/r/lenient"]
    assert answer.score == 10


def test_each_request_has_its_own_tolerations() -> None:
    lost = taint("gpu.nvidia.com/gpu-lost", "None")
    two = (kinds.SLICE, slice_of("n", [lost], {"name": "gpu-2", "taints": [lost]}))
    exactly = {"deviceClassName": "gpu"}
    tolerant = {**exactly, "tolerations": [tolerating("gpu.nvidia.com/gpu-lost")]}
    requests = ({"name": "a", "exactly": tolerant}, {"name": "b", "exactly": exactly})
    answer = verdict_in(two, with_requests(*requests), policy="inference")
    assert [reason.split()[0] for reason in texts(answer.refusals)] == ["c/b"]


def test_the_search_for_acceptable_devices_uses_the_tolerations_of_the_request() -> None:
    lost = taint("gpu.nvidia.com/gpu-lost", "None")
    other = {"name": "gpu-2", "taints": [taint("k", "NoSchedule")]}
    answer = verdict_in(
        (kinds.SLICE, slice_of("n", [lost], other)), claim(tolerating("k")), policy="inference"
    )
    assert not answer.fits
    (refusal,) = answer.refusals
    assert isinstance(refusal, reasons.DeviceUnhealthy)
    assert refusal.passed_over


def test_an_allocated_device_is_judged_by_the_tolerations_it_was_allocated_with() -> None:
    result = {"request": "r", "driver": b.DRIVER, "pool": "n", "device": "gpu"}
    tolerant = allocated({**result, "tolerations": [tolerating()]})
    assert verdict_in(TAINTED, claim(tolerating(), allocation=tolerant)).score == 10


def test_a_device_allocated_to_two_requests_is_judged_for_each() -> None:
    result = {"request": "r", "driver": b.DRIVER, "pool": "n", "device": "gpu"}
    tolerant = {**result, "tolerations": [tolerating("gpu.nvidia.com/gpu-lost")]}
    lost = (kinds.SLICE, slice_of("n", [taint("gpu.nvidia.com/gpu-lost", "None")]))
    for first, second in ((tolerant, result), (result, tolerant)):
        answer = verdict_in(lost, claim(allocation=allocated(first, second)))
        assert not answer.fits
    both = [tolerant, {**tolerant, "request": "s"}]
    answer = verdict_in(lost, claim(allocation=allocated(*both)))
    assert (answer.fits, len(answer.devices)) == (True, 1)


def test_an_allocated_device_with_admin_access_is_shown_and_stays_free_for_others() -> None:
    result = {"request": "r", "driver": b.DRIVER, "pool": "n", "device": "gpu"}
    lost = (kinds.SLICE, slice_of("n", [taint("gpu.nvidia.com/gpu-lost", "None")]))
    watching = claim(allocation=allocated({**result, "adminAccess": True}))
    answer = verdict_in(lost, watching, policy="inference")
    assert (answer.fits, [c.health.state for c in answer.devices]) == (True, [State.UNHEALTHY])
    (device,) = cluster(lost, watching).nodes["n"].pools[0].devices
    assert not device.allocated
    assert not verdict_in(TAINTED, claim(allocation=allocated(result))).fits


def test_fettles_own_taint_is_no_evidence_whether_tolerated_or_not() -> None:
    own = (kinds.SLICE, slice_of("n", [taint("fettle.dev/degraded")]))
    answer = verdict_in(own, claim(tolerating("fettle.dev/degraded")))
    assert answer.score == 10
    assert answer.devices[0].tolerated == ()
    assert not verdict_in(own, claim()).devices


def test_the_verdict_names_the_tolerated_taints() -> None:
    view = cluster(TAINTED, claim(tolerating()))
    verdict = judge(
        demand(view),
        view.nodes["n"],
        Acceptance(BUILT_IN["training"].placement),
        Allocator(lambda *_: MATCH),
    )
    answer = plain_verdict(verdict)
    assert answer["devices"][0]["tolerated"] == ["example.org/burn-in:NoSchedule"]
    row = {**answer, "health": plain_health(view.nodes["n"].health)}
    said = f"would get {b.DRIVER}/n/gpu; tolerated: taint example.org/burn-in:NoSchedule"
    assert summary(row) == said


async def test_nodes_share_a_verdict_only_if_the_evidence_that_counts_is_the_same() -> None:
    """Both nodes have the score of the latched taint. Without it, another taint of b is left."""
    lost = taint("gpu.nvidia.com/gpu-lost", "NoSchedule")
    faint = taint("example.org/warm", "None")
    nodes = [(kinds.NODE, {"metadata": {"name": name}}) for name in ("a", "b", "c")]
    view = cluster(
        *nodes,
        (kinds.SLICE, slice_of("a", [lost])),
        (kinds.SLICE, slice_of("b", [lost, faint])),
        (kinds.SLICE, slice_of("c", [lost])),
        claim(tolerating("gpu.nvidia.com/gpu-lost")),
    )
    publisher = Publisher()
    engine = SelectorEngine()
    await engine.start()
    try:
        answers = Answers(publisher, engine, PATIENT)
        publisher.publish(view, frozenset(view.nodes))
        table = await answers.judged(demand(view))
        assert table.verdicts["a"] is table.verdicts["c"]
        assert table.verdicts["a"].value == 1.0
        assert table.verdicts["b"].value == pytest.approx(0.85)
    finally:
        await engine.close()


def test_the_thresholds_of_the_settings_apply_to_the_evidence_that_is_left() -> None:
    faint = taint("example.org/warm", "None")
    view = cluster((kinds.SLICE, slice_of("n", [taint(), faint])), claim(tolerating()))
    placement = BUILT_IN["training"].placement
    strict = HealthSettings(degraded_below=0.88)
    usual = judge(demand(view), view.nodes["n"], Acceptance(placement), Allocator(lambda *_: MATCH))
    assert usual.fits
    stricter = Acceptance(placement, thresholds=strict)
    assert not judge(demand(view), view.nodes["n"], stricter, Allocator(lambda *_: MATCH)).fits


KEYS = ("a", "b", "c")
EVIDENCE = st.builds(
    lambda family, kind, weight, keys: Evidence(
        subject=DeviceId("d", "p", "x"),
        family=family,
        kind=kind,
        weight=weight,
        source=Source(SourceKind.TAINT, "test"),
        reporter=ReporterId("r"),
        said="t",
        observed_at=1.0,
        taints=tuple(TaintRef(key, "", "NoSchedule") for key in sorted(keys)),
    ),
    st.sampled_from(Family),
    st.sampled_from(EvidenceKind),
    st.sampled_from([0.0, 0.15, 0.5, 0.75, 1.0]),
    st.sets(st.sampled_from(KEYS), max_size=2),
)


@given(st.lists(EVIDENCE, max_size=5), st.sets(st.sampled_from(KEYS)))
def test_leaving_out_tolerated_evidence_never_makes_health_worse(
    evidence: list[Evidence], keys: set[str]
) -> None:
    said = ordered(map(weigh, evidence))
    health = assess(said, START, HealthSettings(), 2.0, all_clear=False).health
    tolerations = [DeviceToleration(key=key, operator="Exists") for key in keys]
    seen, taints = without_tolerated(health, tolerations, HealthSettings())
    left = [w for w in health.evidence if not _excused(w.evidence, keys)]
    assert list(seen.evidence) == left
    assert {t.key for t in taints} <= keys
    assert seen.score >= health.score
    assert seen.held == health.held
    if len(left) == len(evidence):
        assert seen is health


def _excused(evidence: Evidence, keys: set[str]) -> bool:
    said_by = {taint.key for taint in evidence.taints}
    return bool(said_by) and said_by <= keys and evidence.family is not Family.OPERATOR


# Evidence about other device plugins

FUSE = "smarter-devices/fuse"


def of(domain: str, health: Health) -> Health:
    evidence = tuple(
        msgspec.structs.replace(w, evidence=msgspec.structs.replace(w.evidence, domain=domain))
        for w in health.evidence
    )
    return msgspec.structs.replace(health, evidence=evidence)


def node(own: Health, **more: object) -> NodeView:
    made = b.node(gpus=8, own=own, **more)  # type: ignore[arg-type]
    (gpu,) = made.plugins.values()
    fuse = msgspec.structs.replace(gpu, resource=FUSE, units=())
    return msgspec.structs.replace(made, plugins={**made.plugins, FUSE: fuse})


def test_a_failing_device_plugin_refuses_a_node_only_for_its_own_resources() -> None:
    swallows = node(of("smarter-devices", b.health(0.05)))
    answer = verdict(units(TRAINING, 8), swallows)
    assert answer.score == 10
    assert tuple(texts(answer.notes)) == ("kubelet refusals for smarter-devices do not count here",)
    fuse = Demand(TRAINING, units=(Units(FUSE, 1),))
    assert not verdict(fuse, swallows).fits
    both = Demand(TRAINING, units=(Units(b.RESOURCE, 1), Units(FUSE, 1)))
    assert not verdict(both, swallows).fits
    assert not verdict(units(TRAINING), node(of("example.com", b.health(0.05)))).fits


def test_evidence_that_may_be_about_any_plugin_counts_for_all() -> None:
    assert not verdict(units(TRAINING), node(of("", b.health(0.05)))).fits
    assert not verdict(request(TRAINING), node(of("smarter-devices", b.health(0.05)))).fits


def test_evidence_about_the_node_itself_still_counts() -> None:
    ill, worn = of("smarter-devices", b.health(0.05)), b.health(0.7, text="worn")
    both = msgspec.structs.replace(
        ill, state=State.UNHEALTHY, score=0.04, evidence=ill.evidence + worn.evidence
    )
    answer = verdict(units(TRAINING), node(both))
    assert "Degraded" in text(answer.refusals[0])
    assert "worn" in text(answer.refusals[0])


def test_a_unit_is_judged_without_evidence_about_other_plugins() -> None:
    swallows = node(of("smarter-devices", b.health(0.05)), units={"GPU-1": 0.5})
    plugin = swallows.plugins[b.RESOURCE]
    ill = swallows.health.evidence + b.health(0.5).evidence
    unit = UnitView("GPU-1", Health(0.02, State.UNHEALTHY, evidence=ill))
    plugins = {**swallows.plugins, b.RESOURCE: msgspec.structs.replace(plugin, units=(unit,))}
    answer = verdict(units(TRAINING, 8), msgspec.structs.replace(swallows, plugins=plugins))
    (refusal,) = answer.refusals
    assert isinstance(refusal, reasons.TooFewAcceptableUnits)
    assert (refusal.acceptable, refusal.drawn, refusal.requested) == (7, 8, 8)
    assert refusal.health.score == 0.5
