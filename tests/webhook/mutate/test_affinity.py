"""Pods and templates of a policy that says so get node affinity on the steward's label."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import core, resource
from fettle.api.meta import ObjectMeta
from fettle.dra import NodeTarget, parse_node_selector
from fettle.model import ANNOTATION, HEALTH
from tests.webhook.mutate.workloads import KINDS, USING, at, deployment, of_kind, template
from tests.webhook.mutations import OWN, cluster, context_of, injected, mutated, updated
from tests.webhook.reviews import CLAIMS, Object, job, pod
from webhook.mutate.mutation import MutationContext

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OF_NODE, OF_UNITS = f"{HEALTH}.node", f"{HEALTH}.nvidia.com_gpu"


def by(affinity: str = "Required", mode: str | None = None, **placement: Any) -> MutationContext:
    spec = {"placement": {"affinity": affinity, **placement}}
    return context_of({**spec, "mode": mode} if mode else spec)


def expression(*values: str) -> Object:
    return {"key": OF_NODE, "operator": "NotIn", "values": [*values]}


def required(*values: str) -> Object:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression(*values)]}]}
    return {"nodeAffinity": {REQUIRED: terms}}


STRICT = by(degraded="Refuse")
OURS = required("degraded", "unhealthy")
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}


def in_zone() -> Object:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}
    return {"nodeAffinity": {REQUIRED: terms}}


@pytest.mark.parametrize(
    ("placement", "values"),
    [
        ({}, ("unhealthy",)),
        ({"degraded": "Prefer"}, ("unhealthy",)),
        ({"degraded": "Refuse"}, ("degraded", "unhealthy")),
        ({"unknown": "Refuse"}, ("unhealthy", "unknown")),
    ],
)
async def test_a_pod_keeps_off_nodes_in_the_states_that_its_policy_refuses(
    placement: Object, values: tuple[str, ...]
) -> None:
    made = await mutated(pod(OWN, **USING), by=by(**placement))
    assert made["spec"]["affinity"] == required(*values)
    assert injected(made)["values"][f"spec.affinity[{HEALTH}]"] == {
        "required": [expression(*values)]
    }


@pytest.mark.parametrize(
    ("placement", "values"),
    [
        ({}, ("degraded", "unhealthy")),
        ({"degraded": "Prefer"}, ("unhealthy",)),
        ({"degraded": "Refuse"}, ("degraded", "unhealthy")),
    ],
)
async def test_a_preference_also_ranks_what_the_policy_takes_last(
    placement: Object, values: tuple[str, ...]
) -> None:
    made = await mutated(pod(OWN, **USING), by=by("Preferred", **placement))
    preference = {"weight": 100, "preference": {"matchExpressions": [expression(*values)]}}
    assert made["spec"]["affinity"] == {"nodeAffinity": {PREFERRED: [preference]}}


async def test_in_mode_steer_nothing_is_required() -> None:
    made = await mutated(pod(OWN, **USING), by=by(mode="steer"))
    assert [*made["spec"]["affinity"]["nodeAffinity"]] == [PREFERRED]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "apps/DaemonSet"])
async def test_templates_of_every_kind_get_it(kind: str) -> None:
    own, paths = of_kind(kind)
    for path in paths:
        at(own, path)["spec"].update(USING)
    made = await mutated(own, by=STRICT)
    assert [at(made, path)["spec"]["affinity"] for path in paths] == [OURS] * len(paths)


async def test_templates_without_devices_get_none() -> None:
    own, (first, second) = of_kind("jobset.x-k8s.io/JobSet")
    at(own, second)["spec"]["resourceClaims"] = CLAIMS
    made = await mutated(own, by=STRICT)
    assert "affinity" not in at(made, first)["spec"]
    assert at(made, second)["spec"]["affinity"] == OURS


async def test_a_template_follows_the_policy_that_it_names_itself() -> None:
    own = deployment({ANNOTATION: "training"})
    template(own)["metadata"]["annotations"] = dict(OWN)
    made = await mutated(own, by=STRICT)
    assert template(made)["spec"]["affinity"] == OURS


async def test_pods_and_templates_of_daemon_sets_get_none() -> None:
    # Their controller would remove running pods from a node whose label changes.
    own, _ = of_kind("apps/DaemonSet")
    template(own)["spec"].update(USING)
    assert "affinity" not in template(await mutated(own, by=STRICT))["spec"]
    of_it = pod(OWN, **USING)
    of_it["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "controller": True}]
    assert "affinity" not in (await mutated(of_it, by=STRICT))["spec"]


async def test_pods_that_are_bound_or_of_other_policies_get_none() -> None:
    assert "affinity" not in (await mutated(pod(OWN, **USING, nodeName="n"), by=STRICT))["spec"]
    assert "affinity" not in (await mutated(pod(OWN, **USING), by=by("None")))["spec"]
    # Only a policy that somebody names is injected.
    assert "affinity" not in (await mutated(pod(**USING), by=STRICT))["spec"]
    labelled = cluster({ANNOTATION: "own"})
    assert (await mutated(pod(**USING), labelled, STRICT))["spec"]["affinity"] == OURS


async def test_an_author_who_names_the_label_is_left_alone() -> None:
    by_hand = {"nodeAffinity": {PREFERRED: [preferring(HEALTH)]}}
    for own in (
        required("unhealthy"),
        by_hand,
        {"nodeAffinity": {PREFERRED: [preferring(OF_UNITS)]}},
    ):
        made = await mutated(pod(OWN, **USING, affinity=own), by=STRICT)
        assert made["spec"]["affinity"] == own


def preferring(key: str) -> Object:
    return {
        "weight": 1,
        "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]},
    }


async def test_the_pods_of_a_template_get_it_once() -> None:
    made = await mutated(deployment(), by=STRICT)
    of_it = pod(OWN, **USING, affinity=template(made)["spec"]["affinity"])
    assert (await mutated(of_it, by=STRICT))["spec"]["affinity"] == OURS


@pytest.mark.parametrize("before", [None, in_zone()])
async def test_a_term_that_another_webhook_adds_counts_as_if_it_had_been_there(
    before: Object | None,
) -> None:
    """A term of ours alone would let the pod go anywhere else."""
    disk = {"key": "disk", "operator": "Exists"}
    made = await mutated(pod(OWN, **USING, affinity=before), by=STRICT)
    terms_of(made["spec"]).append({"matchExpressions": [disk]})
    ours = expression("degraded", "unhealthy")
    wanted = [{"matchExpressions": [own, ours]} for own in ([ZONE] if before else []) + [disk]]
    assert terms_of((await mutated(made, by=STRICT))["spec"]) == wanted


def terms_of(spec: Object) -> list[Object]:
    found: list[Object] = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return found


# --- by units


def using(*limits: Object, init: Object | None = None) -> Object:
    def containers(each: tuple[Object, ...]) -> list[Object]:
        return [
            {"name": f"c{i}", "image": "train", "resources": {"limits": amounts}}
            for i, amounts in enumerate(each)
        ]

    return {"containers": containers(limits), "initContainers": containers((init,) if init else ())}


ONE, TWO = {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}
BAD, PARTLY = "unhealthy", "partly-unhealthy"


@pytest.mark.parametrize(
    ("placement", "spec", "values"),
    [
        # One unit may go beside a bad one; two are given a bad one more often.
        ({"maxRisk": 0.25}, using(ONE), [BAD]),
        ({"maxRisk": 0.25}, using(TWO), [PARTLY, BAD]),
        ({"maxRisk": 0.25}, using(ONE, ONE), [PARTLY, BAD]),
        ({"maxRisk": 0.25}, using(ONE, init=TWO), [PARTLY, BAD]),
        ({"maxRisk": 0.25}, using({"nvidia.com/gpu": "1k"}), [PARTLY, BAD]),
        ({"maxRisk": 0.1}, using(ONE), [PARTLY, BAD]),
        ({}, using(TWO), [BAD]),  # it takes any risk
        ({"degraded": "Refuse"}, using(ONE), ["degraded", PARTLY, BAD]),
        ({"unknown": "Refuse"}, using(ONE), [BAD, "unknown"]),
    ],
)
async def test_units_are_judged_by_their_own_label_and_by_how_many_are_asked_for(
    placement: Object, spec: Object, values: list[str]
) -> None:
    made = await mutated(pod(OWN, **spec), by=by(**placement))
    (term,) = terms_of(made["spec"])
    wanted = {"key": OF_UNITS, "operator": "NotIn", "values": values}
    assert term == {"matchExpressions": [wanted]}


async def test_a_sidecar_goes_on_beside_what_comes_after_it() -> None:
    side = {**using(ONE)["containers"][0], "name": "side", "restartPolicy": "Always"}
    with_container = {**using(ONE), "initContainers": [side]}
    with_init_container = using({}, init=ONE)
    with_init_container["initContainers"].insert(0, side)
    for spec in (with_container, with_init_container):
        made = await mutated(pod(OWN, **spec), by=by(maxRisk=0.25))
        (term,) = terms_of(made["spec"])
        assert term["matchExpressions"][0]["values"] == [PARTLY, BAD]


async def test_each_resource_has_its_label_and_the_nodes_own_stands_for_the_rest() -> None:
    long = f"example.com/{'x' * 60}"
    nic = {"rdma/hca_a": "1"}
    for spec, keys in (
        (using({**ONE, **nic}), [OF_UNITS, f"{HEALTH}.rdma_hca_a"]),
        ({**using(ONE), "resourceClaims": CLAIMS}, [OF_UNITS, OF_NODE]),
        (using({**ONE, long: "1"}), [OF_UNITS, OF_NODE]),
        (using({"deviceclass.resource.kubernetes.io/gpu": "1"}), [OF_NODE]),
        (using({"nvidia.com/gpu": "0", **nic}), [f"{HEALTH}.rdma_hca_a"]),
    ):
        made = await mutated(pod(OWN, **spec), by=by())
        (term,) = terms_of(made["spec"])
        assert sorted(e["key"] for e in term["matchExpressions"]) == sorted(keys)


async def test_units_that_nodes_may_provide_by_dra_are_judged_by_the_whole_node() -> None:
    gpu = resource.DeviceClass(
        metadata=ObjectMeta(name="gpu"),
        spec=resource.DeviceClassSpec(extended_resource_name="nvidia.com/gpu"),
    )
    made = await mutated(pod(OWN, **using(ONE)), cluster(classes={"gpu": gpu}), by())
    assert terms_of(made["spec"]) == [{"matchExpressions": [expression("unhealthy")]}]


# --- changed objects


async def test_a_changed_policy_alone_changes_no_template() -> None:
    """It would replace all pods of the Deployment at a time that nobody chose."""
    made = await mutated(deployment(), by=STRICT)
    scaled = copy.deepcopy(made)
    scaled["spec"]["replicas"] = 3
    for policy in (by("None"), by("Preferred"), by()):
        assert template(await updated(scaled, made, by=policy)) == template(made)
    plain = await mutated(deployment(), by=by("None"))
    scaled = copy.deepcopy(plain)
    scaled["spec"]["replicas"] = 3
    assert template(await updated(scaled, plain, by=STRICT)) == template(plain)


def others() -> list[Object]:
    """Affinities with something behind ours, added while Fettle was not asked."""
    ours = OURS["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][0]["matchExpressions"]
    in_term = {"nodeSelectorTerms": [{"matchExpressions": [*ours, ZONE]}]}
    in_zone_too = {"nodeSelectorTerms": [{"matchExpressions": ours}, {"matchExpressions": [ZONE]}]}
    return [{"nodeAffinity": {REQUIRED: one}} for one in (in_term, in_zone_too)]


@pytest.mark.parametrize("stored", others())
async def test_a_template_that_nobody_touches_stays_as_it_is_whatever_stands_behind_ours(
    stored: Object,
) -> None:
    """Another order would replace all pods of the Deployment, and a Job may not change at all."""
    for own, edited in (
        (deployment(), {"replicas": 3}),
        (job(OWN, template=USING), {"parallelism": 3}),
    ):
        made = await mutated(own, by=STRICT)
        template(made)["spec"]["affinity"] = stored
        newer = copy.deepcopy(made)
        newer["spec"] |= edited
        again = await updated(newer, made, by=STRICT)
        assert template(again) == template(made)
        assert injected(again) == injected(made)


async def test_a_template_that_its_author_changes_follows_the_policy_of_now() -> None:
    made = await mutated(deployment(affinity=in_zone()), by=STRICT)
    newer = copy.deepcopy(made)
    template(newer)["spec"]["containers"][0]["image"] = "newer"
    looser = template(await updated(newer, made, by=by()))["spec"]
    assert terms_of(looser) == [{"matchExpressions": [ZONE, expression("unhealthy")]}]
    off = await updated(newer, made, by=by("None"))
    assert template(off)["spec"]["affinity"] == in_zone()
    assert HEALTH not in str(off)


async def test_what_is_removed_leaves_no_empty_affinity() -> None:
    made = await mutated(deployment(), by=STRICT)
    newer = copy.deepcopy(made)
    template(newer)["spec"]["containers"][0]["image"] = "newer"
    off = await updated(newer, made, by=by("None"))
    assert "affinity" not in template(off)["spec"]
    unnamed = copy.deepcopy(newer)
    del unnamed["metadata"]["annotations"][ANNOTATION]
    assert "affinity" not in template(await updated(unnamed, made, by=STRICT))["spec"]


async def test_the_original_manifest_applied_again_changes_no_template() -> None:
    for own in (deployment(), deployment(affinity=in_zone())):
        made = await mutated(copy.deepcopy(own), by=STRICT)
        again = await updated(own, made, by=STRICT)
        assert template(again) == template(made)
        assert injected(again) == injected(made)


async def test_a_job_keeps_what_it_was_created_with() -> None:
    own = job(OWN, template=USING)
    made = await mutated(copy.deepcopy(own), by=STRICT)
    assert template(made)["spec"]["affinity"] == OURS
    own["spec"]["parallelism"] = 2
    for policy in (STRICT, by("None")):
        assert template(await updated(own, made, by=policy)) == template(made)


async def test_a_forged_record_puts_nothing_into_a_template() -> None:
    path = f"spec.template.spec.affinity[{HEALTH}]"
    for forged in (
        f'{{"values": {{"{path}": {{"required": [{{"key": "zone"}}]}}}}}}',
        f'{{"values": {{"{path}": 7}}}}',
    ):
        made = await mutated(job(OWN, template={**USING, "affinity": in_zone()}), by=by("None"))
        made["metadata"]["annotations"]["fettle.dev/injected"] = forged
        new = job(OWN, template=USING, parallelism=2)
        assert "affinity" not in template(await updated(new, made, by=by("None")))["spec"]


# --- any affinity

LABELS = {"zone": ("a", "b"), "disk": ("ssd",), OF_NODE: ("healthy", "degraded", "unhealthy")}
NODES = [
    NodeTarget(name, labels)
    for name in ("n1", "n2")
    for labels in (
        {},
        {"zone": "a"},
        {"zone": "b", "disk": "ssd", OF_NODE: "healthy"},
        {"zone": "a", OF_NODE: "degraded"},
        {"disk": "ssd", OF_NODE: "unhealthy"},
        {"zone": "a", "disk": "ssd", OF_NODE: "unknown"},
    )
]


def expressions(*keys: str) -> st.SearchStrategy[Object]:
    def of(key: str) -> st.SearchStrategy[Object]:
        values = st.lists(st.sampled_from(LABELS[key]), min_size=1, max_size=2)
        listed = st.fixed_dictionaries(
            {"key": st.just(key), "operator": st.sampled_from(["In", "NotIn"]), "values": values}
        )
        there = st.sampled_from(["Exists", "DoesNotExist"])
        return listed | st.fixed_dictionaries({"key": st.just(key), "operator": there})

    return st.sampled_from(keys).flatmap(of)


def terms(*keys: str) -> st.SearchStrategy[Object]:
    by_name = st.sampled_from(["n1", "n2"]).map(
        lambda name: [{"key": "metadata.name", "operator": "In", "values": [name]}]
    )
    optional: Object = {
        "matchExpressions": st.lists(expressions(*keys), min_size=1, max_size=2),
        "matchFields": by_name,
    }
    return st.fixed_dictionaries({}, optional=optional)


def affinities(*keys: str) -> st.SearchStrategy[Object]:
    selector = st.fixed_dictionaries(
        {"nodeSelectorTerms": st.lists(terms(*keys), min_size=1, max_size=3)}
    )
    preferred = st.lists(
        st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": terms(*keys)}),
        max_size=2,
    )
    node = st.fixed_dictionaries({}, optional={REQUIRED: selector, PREFERRED: preferred})
    return st.fixed_dictionaries({}, optional={"nodeAffinity": node, "podAffinity": st.just({})})


def accepted(spec: Object) -> set[int]:
    """The positions of the nodes that required affinity allows."""
    raw = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    if raw is None:
        return {*range(len(NODES))}
    selector = parse_node_selector(msgspec.convert(raw, core.NodeSelector))
    return {i for i, node in enumerate(NODES) if selector.matches(node)}


@given(affinities("zone", "disk"))
async def test_of_the_nodes_that_any_affinity_allows_only_refused_ones_are_left_out(
    own: Object,
) -> None:
    before = pod(OWN, **USING, affinity=own)
    made = (await mutated(copy.deepcopy(before), by=STRICT))["spec"]
    allowed = accepted(before["spec"])
    bad = {i for i in allowed if NODES[i].labels.get(OF_NODE) in ("degraded", "unhealthy")}
    assert accepted(made) == allowed - bad
    selector = made["affinity"].get("nodeAffinity", {}).get(REQUIRED, {})
    for term in selector.get("nodeSelectorTerms", []):
        found = [e for e in term.get("matchExpressions", []) if e["key"] == OF_NODE]
        assert found == ([expression("degraded", "unhealthy")] if term else [])
    preferred = own.get("nodeAffinity", {}).get(PREFERRED)
    assert made["affinity"].get("nodeAffinity", {}).get(PREFERRED) == preferred


@given(affinities("zone", "disk", OF_NODE), st.sampled_from(["Required", "Preferred"]))
async def test_any_affinity_comes_back_when_the_policy_is_switched_off(
    own: Object, affinity: str
) -> None:
    made = await mutated(deployment(affinity=own), by=by(affinity))
    newer = copy.deepcopy(made)
    template(newer)["spec"]["containers"][0]["image"] = "newer"
    off = template(await updated(newer, made, by=by("None")))["spec"]
    assert accepted(off) == accepted({"affinity": own})
    assert pruned(off.get("affinity")) == pruned(own)


def pruned(affinity: Object | None) -> Object:
    node = (affinity or {}).get("nodeAffinity", {})
    kept = {key: value for key, value in node.items() if value}
    return {**(affinity or {}), "nodeAffinity": kept}
