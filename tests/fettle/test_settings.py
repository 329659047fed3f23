from pathlib import Path

import pytest

from fettle.errors import SettingsError
from fettle.settings import Settings, load


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("breaker: {maxExcludedShar: 0.5}", "maxExcludedShar"),
        ("defaultPolicy: trainig", "trainig"),
        ("policies: [{name: mine, placement: {minScore: 3}}]", "minScore"),
        ("policies: [{name: mine, placement: {degraded: refuse}}]", "degraded"),
        ("policies: [{name: a, placement: {requires: [{expression: ''}]}}]", "requires[0]"),
        ("policies: [{name: a, placement: {requires: [{message: x}]}}]", "expression"),
        ("extender: 3", "$.extender"),
        ("health: {degradedBelow: 2}", "degradedBelow"),
        ("health: {unhealthyBelow: .nan}", "unhealthyBelow"),
        ("health: {orphanHalfLifeSeconds: 0}", "orphanHalfLifeSeconds"),
        ("breaker: {maxExcludedShare: 7}", "maxExcludedShare"),
        ("scheduler: {featureGates: 'DRATaints=false'}", "'DRATaints' is no feature gate"),
        ("scheduler: {featureGates: DRADeviceTaints}", "write DRADeviceTaints=true"),
        ("scheduler: {bindingTimeoutSeconds: 0}", "bindingTimeoutSeconds"),
        ("sources: {silentAfterSeconds: -1}", "silentAfterSeconds"),
        ("extender: {maxBodyMebibytes: -1}", "maxBodyMebibytes"),
        ("webhook: {certificates: magic}", "certificates"),
        ("extender: {certificates: magic}", "certificates"),
        ("extender: {tls: {certificateFile: a.crt}}", "certificates: files"),
        ("webhook: {tls: {keyFile: a.key}}", "certificates: files"),
        ("extender: {certificateLifetimeSeconds: 1}", "certificateLifetimeSeconds"),
        ("policies: [{name: a}, {name: a}]", "same name"),
        ("policies: [{name: a}, {name: b, placement: {minScor: 1}}]", "policies[1].placement.minS"),
        ("policies: [{name: a, failure: {jobSet: {rules: [{nme: x}]}}}]", "name"),
        (
            "policies: [{name: a, placement: {degraded: Refuse}, "
            "tolerations: {degradedAsFallback: true}}]",
            "degradedAsFallback needs placement.degraded: Allow, not Refuse",
        ),
        (
            "policies: [{name: a, tolerations: {degradedAsFallback: true, "
            "devices: [{key: fettle.dev/degraded}]}}]",
            "what is tolerated is no fallback",
        ),
        ("policies: [{name: Bad Name/x}]", "name 'Bad Name/x'"),
        (f"policies: [{{name: {'a' * 64}}}]", "at most 63"),
        ("lint: {rules: {FTL010: on}}", "lint.rules"),
        ("webhook: {mode: dry}", "mode"),
        ("webhook: {workloads: [{group: a, kind: '', templates: []}]}", "kind"),
        ("webhook: {workloads: [{group: a, kind: B, templates: [spec..x]}]}", "spec..x"),
        ("- a list", "object"),
        ("a: [", "no valid YAML"),
        ("\x00", "no valid YAML"),
    ],
)
def test_a_wrong_settings_file_is_named_with_its_field(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        load(path)
    assert str(path) in str(error.value)
    assert says in str(error.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load(tmp_path / "absent.yaml")


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("")
    assert load(path) == Settings() == load(None)


def test_a_policy_may_say_all_that_a_device_policy_says(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "policies:\n"
        "- name: mine\n"
        "  tolerations: {devices: [{key: example.com/maintenance, seconds: 60}]}\n"
        "  failure: {failJobOnExitCodes: [42], jobSet: {maxRestarts: 0, rules: []}}\n"
        "  validation: {strict: true, rules: {FTL010: Warn}}\n"
    )
    (mine,) = load(path).policies
    assert mine.tolerations.devices[0].seconds == 60
    assert mine.validation.rules == {"FTL010": "Warn"}


def test_own_policies_come_beside_the_built_in_ones_and_may_replace_them(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "defaultPolicy: mine\n"
        "policies:\n"
        "- {name: mine, placement: {minScore: 0.5, degraded: Refuse}}\n"
        "- {name: training, placement: {minScore: 0.95}}\n"
    )
    policies = load(path).all_policies()
    assert policies.default == "mine"
    assert policies.by_name["training"].placement.min_score == 0.95
    assert "scavenger" in policies.by_name


def test_off_need_not_be_quoted_though_yaml_reads_it_as_false(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "lint: {rules: {FTL010: off, FTL011: Off, FTL012: 'Off'}}\n"
        "policies: [{name: mine, validation: {rules: {FTL010: Off}}}]\n"
    )
    read = load(path)
    assert set(read.lint.rules.values()) == {"Off"}
    assert read.policies[0].validation.rules == {"FTL010": "Off"}


def test_gates_of_the_scheduler_and_features_of_the_api_server_are_off_together(
    tmp_path: Path,
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "scheduler: {featureGates: 'DRAPrioritizedList=false,DRADeviceTaints=true'}\n"
        "lint: {disabledFeatures: [DRAConsumableCapacity]}\n"
    )
    assert load(path).disabled_features == {"DRAPrioritizedList", "DRAConsumableCapacity"}
