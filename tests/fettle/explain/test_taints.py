"""What people are told of the taints that devices have by their health."""

from __future__ import annotations

import pytest

from fettle.api.meta import ObjectMeta
from fettle.api.resource import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from fettle.config import DeviceTaintSettings
from fettle.explain import list_taints, taint_in_words
from fettle.model import SOUND, DeviceId, Mode
from fettle.scheduling.plans import PlannedTaint, TaintPlan
from tests.fettle import building as b

DEVICE = DeviceId("driver", "pool", "gpu-0")
ON = DeviceTaintSettings(unhealthy="NoSchedule", degraded="NoSchedule")


def told(
    key: str,
    effect: str,
    there: str | None = None,
    settings: DeviceTaintSettings = ON,
    mode: Mode = Mode.ENFORCE,
    *,
    in_vain: str = "",
    dry_run: bool = False,
) -> tuple[str | None, str | None]:
    """What effect there is, and why it is not the one that there should be."""
    planned = PlannedTaint(DEVICE, DeviceTaint(key=key, value="assessed", effect=effect), SOUND, 0)
    rules = {}
    if there is not None:
        selector = DeviceTaintSelector(driver="driver", pool="pool", device="gpu-0")
        taint = DeviceTaint(key=key, value="assessed", effect=there)
        spec = DeviceTaintRuleSpec(device_selector=selector, taint=taint)
        rules["r"] = DeviceTaintRule(metadata=ObjectMeta(name="r"), spec=spec)
    view = b.view(taint_rules=rules)
    (one,) = list_taints(
        TaintPlan({DEVICE: planned}), view, settings, mode, in_vain, dry_run=dry_run
    )
    assert one["device"] == "driver/pool/gpu-0"
    return one["there"], one["whyNot"]


UNHEALTHY, DEGRADED = "fettle.dev/unhealthy", "fettle.dev/degraded"


def test_a_taint_that_is_there_needs_no_reason() -> None:
    assert told(UNHEALTHY, "NoSchedule", "NoSchedule") == ("NoSchedule", None)


@pytest.mark.parametrize("key", [UNHEALTHY, DEGRADED])
def test_it_says_how_to_switch_on_what_is_off(key: str) -> None:
    setting = f"deviceTaints.{key.partition('/')[2]} is not set"
    assert told(key, "NoSchedule", settings=DeviceTaintSettings()) == (None, setting)


def test_a_rule_that_differs_and_one_that_is_missing_are_explained() -> None:
    one = {
        "key": UNHEALTHY,
        "effect": "NoSchedule",
        "there": "None",
        "rule": "r",
        "whyNot": "due",
        "confirmedAt": 0.0,
        "confirmedEffect": "NoSchedule",
    }
    said = f"tainted {UNHEALTHY}:None by DeviceTaintRule r; NoSchedule: due"
    assert taint_in_words(one) == said
    missing = {**one, "there": None, "rule": None, "whyNot": "mode observe"}
    said = f"would be tainted {UNHEALTHY}:NoSchedule by its health: mode observe"
    assert taint_in_words(missing) == said


def test_the_rule_is_named_and_the_effect_that_it_gets_once_the_state_is_confirmed() -> None:
    taint = DeviceTaint(key=UNHEALTHY, value="assessed", effect="None")
    planned = PlannedTaint(DEVICE, taint, SOUND, 120.0, "NoSchedule")
    selector = DeviceTaintSelector(driver="driver", pool="pool", device="gpu-0")
    spec = DeviceTaintRuleSpec(device_selector=selector, taint=taint)
    view = b.view(taint_rules={"r": DeviceTaintRule(metadata=ObjectMeta(name="r"), spec=spec)})
    (one,) = list_taints(TaintPlan({DEVICE: planned}), view, ON, Mode.ENFORCE)
    said = f"tainted {UNHEALTHY}:None by DeviceTaintRule r; NoSchedule from 1970-01-01 00:02"
    assert said in one["text"]
    assert taint_in_words(one) == one.pop("text")
    assert one == {
        "device": "driver/pool/gpu-0",
        "key": UNHEALTHY,
        "effect": "None",
        "there": "None",
        "rule": "r",
        "whyNot": None,
        "confirmedAt": 120.0,
        "confirmedEffect": "NoSchedule",
    }


def test_it_says_what_keeps_a_taint_from_being_written() -> None:
    assert told(UNHEALTHY, "NoSchedule", mode=Mode.OBSERVE)[1] == "mode observe"
    assert told(UNHEALTHY, "NoSchedule", dry_run=True)[1] == "steward.dryRun"
    assert told(UNHEALTHY, "NoSchedule", in_vain="no rules")[1] == "no rules"
    there, why = told(DEGRADED, "NoSchedule", "None")
    assert there == "None"
    assert "fallback" in str(why)
    assert "due" in str(told(UNHEALTHY, "NoSchedule", "None")[1])
