"""Which mechanisms act in a cluster is said by what is seen there."""

from typing import Any

import msgspec
import pytest

from fettle.api import core, resource
from fettle.api.meta import ObjectMeta
from fettle.cluster import view
from fettle.explain import describe_mechanisms
from fettle.model import ASSESSED, BUILT_IN, DEGRADED_TAINT, Placement, Policies, Policy
from fettle.model import PolicyAffinity as Affinity

ASKING = ("default-scheduler", "fettle-scheduler")


def told(asked: bool | None = None, *policies: Policy, **seen: Any) -> dict[str, Any]:
    known = Policies({**BUILT_IN, **{policy.name: policy for policy in policies}})
    found = msgspec.structs.replace(view.EMPTY, **seen)
    return {one.name: one for one in describe_mechanisms(found, known, ASKING, asked)}


def policy(name: str, **placement: Any) -> Policy:
    return Policy(name=name, placement=Placement(**placement))


def pod(name: str, scheduler: str) -> core.Pod:
    spec = core.PodSpec(scheduler_name=scheduler)
    return core.Pod(metadata=ObjectMeta(name=name, namespace="ml"), spec=spec)


def test_in_an_empty_cluster_nothing_acts_and_all_are_named() -> None:
    found = told()
    assert [*found] == ["extender", "second scheduler", "affinity", "taints", "cordon"]
    assert [one.acts for one in found.values()] == [None, False, False, False, False]


@pytest.mark.parametrize("asked", [True, False])
def test_only_an_extender_knows_whether_it_is_asked(asked: bool) -> None:
    assert told(asked)["extender"].acts is asked


def test_a_second_scheduler_acts_once_pods_name_it() -> None:
    naming = policy("own", scheduler="fettle-scheduler")
    before = told(None, naming, pods={"ml/a": pod("a", "default-scheduler")})["second scheduler"]
    assert (before.acts, before.text) == (False, "asked for by own")
    after = told(None, naming, pods={"ml/a": pod("a", "fettle-scheduler")})["second scheduler"]
    assert after.acts
    assert after.text == "1 pod with devices by fettle-scheduler; asked for by own"


def test_affinity_needs_a_policy_and_labels() -> None:
    found = told(None, policy("own", affinity=Affinity.REQUIRED))["affinity"]
    assert (found.acts, "asked for by own" in found.text) == (False, True)


def test_only_taints_that_fettle_set_count() -> None:
    def rules(value: str) -> dict[str, resource.DeviceTaintRule]:
        taint = resource.DeviceTaint(key=DEGRADED_TAINT, value=value, effect="NoSchedule")
        spec = resource.DeviceTaintRuleSpec(taint=taint)
        return {"r": resource.DeviceTaintRule(metadata=ObjectMeta(name="r"), spec=spec)}

    assert told(taint_rules=rules(ASSESSED))["taints"].acts
    assert not told(taint_rules=rules(""))["taints"].acts


def test_what_strangers_name_is_cut_and_counted() -> None:
    policies = [policy(f"p{i}", scheduler="s" * 253) for i in range(9)]
    text = told(None, *policies)["second scheduler"].text
    assert text == "asked for by p0, p1, p2, p3, p4, 4 more"
