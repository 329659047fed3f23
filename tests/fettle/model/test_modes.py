"""Which mode counts: a namespace's label, then the policy's, then the setting."""

import pytest

from fettle.model import INFERENCE, Mode, Policies, Policy, labelled_mode, wrong_label
from fettle.model.policy import BUILT_IN

STEERED = Policy(name="inference", mode=Mode.STEER)


@pytest.mark.parametrize(
    ("label", "of_policy", "setting", "counts", "origin"),
    [
        ("observe", Mode.STEER, Mode.ENFORCE, Mode.OBSERVE, "namespace label fettle.dev/mode"),
        (None, Mode.STEER, Mode.ENFORCE, Mode.STEER, "policy inference"),
        (None, None, Mode.OBSERVE, Mode.OBSERVE, "setting mode"),
        (None, None, Mode.ENFORCE, Mode.ENFORCE, "setting mode"),
        ("Observe", None, Mode.STEER, Mode.STEER, "setting mode"),
        ("", Mode.STEER, Mode.ENFORCE, Mode.STEER, "policy inference"),
    ],
)
def test_the_most_specific_mode_counts(
    label: str | None, of_policy: Mode | None, setting: Mode, counts: Mode, origin: str
) -> None:
    policy = Policy(name="inference", mode=of_policy)
    labels = {} if label is None else {"fettle.dev/mode": label}
    policies = Policies({**BUILT_IN, "inference": policy}, INFERENCE.name, setting)
    resolved = policies.resolve({}, labels, {})
    assert resolved.mode == (counts, origin)


def test_a_label_that_is_no_mode_warns_and_counts_as_not_written() -> None:
    resolved = Policies().resolve({}, {"fettle.dev/mode": "audit"}, {})
    assert resolved.mode.mode is Mode.ENFORCE
    assert resolved.warnings == (
        "fettle: namespace label fettle.dev/mode: 'audit' is not one of observe, steer, enforce; "
        "ignored",
    )
    assert labelled_mode({"fettle.dev/mode": "audit"}) is None
    assert wrong_label({"fettle.dev/mode": "steer"}) == wrong_label({}) == ""
