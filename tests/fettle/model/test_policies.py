"""Which policy applies, from where, and what of a request is passed over."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.api import kinds, own_group
from fettle.model.annotations import ANNOTATION, MIN_SCORE_ANNOTATION, ON_DEVICE_FAILURE_ANNOTATION
from fettle.model.policies import Inherited, Policies, PolicySource, Resolved
from fettle.model.policy import BUILT_IN, Degraded, Placement, Policy
from fettle.scheduling.demand import demand_of
from tests.fettle import building as b

OWN = Policy(name="own", placement=Placement(min_score=0.6))
STRICTER = Policy(name="training", placement=Placement(min_score=0.95))


def resolve(
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    *installed: Policy,
) -> Resolved:
    return Policies().resolve(annotations, labels, {p.name: p for p in installed})


def test_nothing_named_means_the_cluster_default() -> None:
    resolved = resolve()
    assert resolved.policy == BUILT_IN["inference"]
    assert (resolved.origin, resolved.named) == ("cluster default", False)
    assert resolved.source is PolicySource.BUILT_IN


@pytest.mark.parametrize(
    ("name", "used"),
    [("own", "the next policy that applies"), ("training", "the built-in policy")],
)
def test_a_policy_that_cannot_be_read_is_not_called_absent(name: str, used: str) -> None:
    quarantined = {f"DevicePolicy {name}": f"DevicePolicy {name}: minScore must be 0 to 1"}
    resolved = Policies().resolve({ANNOTATION: name}, {}, {}, quarantined)
    (warning,) = resolved.warnings
    assert f"names {name!r}, which cannot be read" in warning
    assert "minScore must be 0 to 1" in warning
    assert f"{used} is used" in warning


def test_the_annotation_comes_before_the_namespaces_label() -> None:
    resolved = resolve({ANNOTATION: "training"}, {ANNOTATION: "scavenger"})
    assert resolved.policy.name == "training"
    assert resolved.origin == "annotation fettle.dev/policy"
    resolved = resolve({}, {ANNOTATION: "scavenger"})
    assert resolved.policy.name == "scavenger"
    assert resolved.origin == "namespace label fettle.dev/policy"


@pytest.mark.parametrize(
    ("own", "named", "origin"),
    [
        ({}, "training", "annotation fettle.dev/policy of Job train"),
        ({ANNOTATION: "inference"}, "inference", "annotation fettle.dev/policy"),
    ],
)
def test_what_the_workload_names_comes_before_the_namespaces_label(
    own: dict[str, str], named: str, origin: str
) -> None:
    inherited = Inherited("Job train", {ANNOTATION: "training", MIN_SCORE_ANNOTATION: "0.5"})
    labels = {ANNOTATION: "scavenger"}
    resolved = Policies().resolve(own, labels, {}, {}, inherited)
    assert (resolved.policy.name, resolved.origin) == (named, origin)
    assert bool(resolved.overridden) is (not own)


def test_a_workload_that_cannot_be_read_is_warned_of() -> None:
    inherited = Inherited("Job train", unknown="it may not be read")
    resolved = Policies().resolve({}, {}, {}, {}, inherited)
    assert resolved.policy.name == "inference"
    (warning,) = resolved.warnings
    assert "whether Job train names a policy for its pods is not known" in warning
    assert "it may not be read" in warning
    assert not Policies().resolve({ANNOTATION: "training"}, {}, {}, {}, inherited).warnings


def test_an_installed_policy_is_found_and_replaces_a_built_in_one_whole() -> None:
    assert resolve({ANNOTATION: "own"}, None, OWN).policy == OWN
    resolved = resolve({ANNOTATION: "training"}, None, STRICTER)
    assert resolved.policy == STRICTER
    assert resolved.source is PolicySource.INSTALLED
    assert not resolved.policy.failure.ignore_disruptions


def test_an_installed_policy_of_the_defaults_name_is_the_default() -> None:
    installed = msgspec.structs.replace(OWN, name="inference")
    assert resolve(None, None, installed).policy == installed


def test_a_policy_of_the_settings_says_so() -> None:
    known = Policies({**BUILT_IN, "own": OWN})
    assert known.resolve({ANNOTATION: "own"}, None, {}).source is PolicySource.SETTINGS


def test_an_unknown_policy_warns_and_the_next_one_applies() -> None:
    resolved = resolve({ANNOTATION: "trainig"}, {})
    assert resolved.policy == BUILT_IN["inference"]
    assert not resolved.named
    assert resolved.unknown == ("trainig",)
    assert "'trainig'" in resolved.warnings[0]
    resolved = resolve({ANNOTATION: "trainig"}, {ANNOTATION: "own"}, OWN)
    assert resolved.policy == OWN
    assert "inference, own, scavenger, training" in resolved.warnings[0]


def test_overrides_change_single_values_and_say_which() -> None:
    resolved = resolve(
        {
            ANNOTATION: "training",
            MIN_SCORE_ANNOTATION: "0.5",
            ON_DEVICE_FAILURE_ANNOTATION: "Evict",
        }
    )
    assert resolved.policy.placement.min_score == 0.5
    assert resolved.policy.placement.degraded == "Refuse"
    assert resolved.policy.failure.on_device_failure == "Evict"
    assert resolved.overridden == {
        "placement.minScore": MIN_SCORE_ANNOTATION,
        "failure.onDeviceFailure": ON_DEVICE_FAILURE_ANNOTATION,
    }


@pytest.mark.parametrize("text", ["0_1", "\u0660.\u0665", "0x1", "nan", "1e999", "0,5", ""])
def test_what_is_no_plain_number_is_no_minimum(text: str) -> None:
    resolved = resolve({MIN_SCORE_ANNOTATION: text})
    assert not resolved.overridden
    assert len(resolved.warnings) == 1


@given(st.text(max_size=10))
def test_no_override_keeps_a_pod_from_having_a_policy(text: str) -> None:
    annotations = {MIN_SCORE_ANNOTATION: text, ON_DEVICE_FAILURE_ANNOTATION: text}
    resolved = resolve(annotations)
    assert 0 <= resolved.policy.placement.min_score <= 1
    assert len(resolved.warnings) + len(resolved.overridden) == 2


def test_a_pods_ask_carries_the_installed_policy() -> None:
    pod = b.pod(b.gpu_pod(annotations={ANNOTATION: "own"}))
    before, after = b.view(), b.view(policies={"own": OWN})
    asked = [demand_of(pod, view, Policies()) for view in (before, after)]
    assert [a.policy.name for a in asked if a is not None] == ["inference", "own"]


# --- reading


def read(spec: object) -> Policy:
    raw = {"metadata": {"name": "mine"}, "spec": spec}
    decoded = kinds.POLICY.decode(msgspec.json.encode(raw))
    assert isinstance(decoded, own_group.DevicePolicy)
    return decoded.policy()


def test_a_device_policy_is_read_with_its_defaults() -> None:
    assert read({}) == Policy(name="mine")
    found = read({"placement": {"minScore": 1, "degraded": "Prefer"}, "ofTheFuture": {"x": 1}})
    assert found.placement == Placement(min_score=1.0, degraded=Degraded.PREFER)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"placement": {"minScore": 1.5}}, "minScore"),
        ({"placement": {"degraded": "Avoid"}}, "degraded"),
        ({"tolerations": {"notReadySeconds": -1}}, "notReadySeconds"),
        ({"tolerations": {"devices": [{"key": ""}]}}, "key '' must be a taint"),
        ({"failure": {"failJobOnExitCodes": [0]}}, "failJobOnExitCodes"),
        ({"failure": {"restartContainerOnExitCodes": [256]}}, "restartContainerOnExitCodes"),
        (
            {"failure": {"failJobOnExitCodes": [3], "restartContainerOnExitCodes": [3]}},
            "exit code 3 is in",
        ),
        ({"failure": {"jobSet": {"maxRestarts": -1}}}, "maxRestarts"),
        ({"validation": {"rules": {"FTL010": "Never"}}}, "rules"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_the_field(spec: object, says: str) -> None:
    with pytest.raises(Exception, match=says):
        read(spec)


def test_policies_that_are_equal_hash_alike() -> None:
    one, other = (read({"validation": {"rules": {"FTL010": "Off"}}}) for _ in range(2))
    assert len({one, other}) == 1


@pytest.mark.parametrize(
    ("placement", "says"),
    [
        ({"expectedRuntime": "3d"}, "expectedRuntime must be a duration in hours, minutes"),
        ({"patience": "5 minutes"}, "patience must be a duration in hours, minutes and seconds"),
        ({"patience": ""}, "such as 90s, 30m or 1h30m, not ''"),
        ({"patience": "30m1h"}, "not '30m1h'"),
        ({"gangPatience": "-1s"}, "gangPatience must be a duration"),
        ({"patience": "1m", "degraded": "Allow"}, "patience needs degraded: Refuse, not Allow"),
        ({"gangPatience": "1m", "degraded": "Prefer"}, "gangPatience needs degraded: Refuse"),
        ({"gangDegraded": "Refuse", "degraded": "Prefer"}, "contradicts degraded: Prefer"),
    ],
)
def test_a_patience_that_makes_no_sense_says_what_is_wrong(
    placement: dict[str, str], says: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=re.escape(says)):
        msgspec.convert({"degraded": "Refuse", **placement}, Placement)
