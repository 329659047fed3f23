"""Which DeviceTaintRules are written, changed and removed. What the API server and the scheduler
make of them is tested on the control plane."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fettle.api.meta import ObjectMeta
from fettle.api.resource import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from fettle.model import SOUND, DeviceId
from fettle.scheduling.plans import PlannedTaint
from fettle.steward.health_taints import DueWrites, due_writes
from fettle.steward.taint_rules import OWN_LABELS
from tests.fettle import building as b

Wanted = dict[DeviceId, PlannedTaint]


def wanted(**effects: str) -> Wanted:
    made = {}
    for name, effect in effects.items():
        device = DeviceId(b.DRIVER, "n", name)
        taint = DeviceTaint(key="fettle.dev/unhealthy", value="assessed", effect=effect)
        made[device] = PlannedTaint(device, taint, SOUND, 0.0)
    return made


def rule(name: str, taint: DeviceTaint, *, ours: bool = True, device: str = "a") -> DeviceTaintRule:
    selector = DeviceTaintSelector(driver=b.DRIVER, pool="n", device=device)
    metadata = ObjectMeta(name=name, labels=OWN_LABELS if ours else None)
    spec = DeviceTaintRuleSpec(device_selector=selector, taint=taint)
    return DeviceTaintRule(metadata=metadata, spec=spec)


def due(rules: dict[str, DeviceTaintRule], taints: Wanted, **view: Any) -> DueWrites:
    return due_writes(b.view(taint_rules=rules, **view), taints)


def write(rules: dict[str, DeviceTaintRule], due: DueWrites) -> dict[str, DeviceTaintRule]:
    """The rules once all that is due is written."""
    kept = {name: one for name, one in rules.items() if name not in due.removed}
    new = {name: rule(name, one.taint) for name, one in {**due.changed, **due.new}.items()}
    return kept | new


def test_a_rule_is_made_changed_in_place_and_removed() -> None:
    rules = write({}, due({}, wanted(a="None", b="NoSchedule")))
    assert len(rules) == 2
    next_ = due(rules, wanted(a="NoSchedule"))
    assert (len(next_.removed), len(next_.changed), len(next_.new)) == (1, 1, 0)
    rules = write(rules, next_)
    assert [one.spec.taint.effect for one in rules.values()] == ["NoSchedule"]
    assert due(rules, {}).removed == [*rules]


def test_rules_of_others_stay_whatever_they_are_called() -> None:
    (name,) = due({}, wanted(a="NoSchedule")).new
    taint = DeviceTaint(key="fettle.dev/unhealthy", value="assessed", effect="None")
    held = DeviceTaint(key="fettle.dev/hold", value="annotated", effect="NoSchedule")
    foreign = {name: rule(name, taint, ours=False), "hold": rule("hold", held)}
    assert not any(due(foreign, {}))
    assert not any(due(foreign, wanted(a="NoSchedule")))


def test_while_a_slice_cannot_be_read_only_rules_of_devices_that_are_there_are_removed() -> None:
    taint = DeviceTaint(key="fettle.dev/unhealthy", value="assessed", effect="NoSchedule")
    rules = {name: rule(name, taint, device=name) for name in ("there", "gone")}
    view = b.view(
        b.node(pools=(b.pool(b.device("there")),)),
        taint_rules=rules,
        quarantined={"ResourceSlice s": "no driver"},
    )
    assert due_writes(view, {}).removed == ["there"]
    assert due(rules, {}).removed == ["there", "gone"]


effects = st.dictionaries(
    st.sampled_from("abcdef"), st.sampled_from(("None", "NoSchedule", "NoExecute"))
)


@given(effects, effects, st.integers(0, 6))
def test_who_takes_over_between_two_writes_finishes_and_writes_nothing_twice(
    before: dict[str, str], after: dict[str, str], done: int
) -> None:
    rules = write({}, due({}, wanted(**before)))
    whole = due(rules, wanted(**after))
    first = DueWrites(
        whole.removed[:done],
        dict([*whole.changed.items()][:done]),
        dict([*whole.new.items()][:done]),
    )
    rest = due(write(rules, first), wanted(**after))
    assert not {*first.removed} & {*rest.removed}
    assert not {*first.changed, *first.new} & {*rest.changed, *rest.new}
    assert not any(due(write(write(rules, first), rest), wanted(**after)))
