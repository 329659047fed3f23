from pathlib import Path

import pytest

from fettle.config.files import load_settings
from fettle.config.settings import Settings
from fettle.model import SettingsError


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
        ("deviceFailures: {allow: Delete}", "$.deviceFailures.allow"),
        ("deviceFailures: {evictionsPerSecond: 0}", "evictionsPerSecond must be 0.001 to 100"),
        ("deviceFailures: {maxShare: 2}", "maxShare must be 0 to 1"),
        ("health: {degradedBelow: 2}", "degradedBelow"),
        ("health: {unhealthyBelow: .nan}", "unhealthyBelow"),
        ("health: {orphanHalfLifeSeconds: 0}", "orphanHalfLifeSeconds"),
        *(
            (f"health: {{expectedDevices: [{{label: {label}, devices: {{{name}: 8}}}}]}}", says)
            for label, name, says in (
                ("a==b", "nvidia.com/gpu", "label must be KEY=VALUE, not 'a==b'"),
                ("a", "nvidia.com/gpu", "label must be KEY=VALUE, not 'a'"),
                ("a = b", "nvidia.com/gpu", "label must be KEY=VALUE, not 'a = b'"),
                ("a=b", "gpu", "named as nvidia.com/gpu or gpu.nvidia.com, not 'gpu'"),
                ("a=b", "''", "named as nvidia.com/gpu or gpu.nvidia.com, not ''"),
                ("a=b", "nvidia.com/gpu=8", "not 'nvidia.com/gpu=8'"),
            )
        ),
        ("breaker: {maxExcludedShare: 7}", "maxExcludedShare"),
        ("scheduler: {featureGates: 'DRATaints=false'}", "'DRATaints' is not a DRA feature gate"),
        ("scheduler: {featureGates: DRADeviceTaints}", "write DRADeviceTaints=true"),
        ("scheduler: {bindingTimeoutSeconds: 0}", "bindingTimeoutSeconds"),
        ("scheduler: {version: newest}", "scheduler.version: 'newest' must be kube-scheduler's v"),
        ("scheduler: {version: v1.36}", "such as v1.36.3"),
        ("scheduler: {version: 1.36}", "$.scheduler.version"),
        ("scheduler: {names: second}", "$.scheduler.names"),
        ("scheduler: {names: ['']}", "scheduler.names: '' must be a pod's spec.schedulerName"),
        ("scheduler: {names: ['a b']}", "scheduler.names: 'a b' must be a pod's spec.schedulerN"),
        ("scheduler: {names: [a, b, a]}", "scheduler.names: 'a' is given twice"),
        *(
            (f"sources: {{silentAfterSeconds: {value}}}", "silentAfterSeconds must be at least 1")
            for value in ("-1", "0", "0.001", ".nan", ".inf")
        ),
        ("extender: {maxBodyMebibytes: -1}", "maxBodyMebibytes"),
        ("webhook: {certificates: magic}", "certificates"),
        (
            "webhook: {mode: audit}",
            "there is no webhook.mode any more: `mode: audit` is now `mode",
        ),
        ("webhook: {mode: enforce}", "instead of `enforce` write nothing"),
        ("extender: {certificates: magic}", "certificates"),
        ("extender: {tls: {certificateFile: a.crt}}", "certificates: files"),
        ("webhook: {tls: {keyFile: a.key}}", "certificates: files"),
        ("extender: {tls: {clientNames: []}}", "extender: tls.clientNames is empty, so nobody may"),
        ("extender: {tls: {clientNames: [bob]}}", "tls.clientNames needs tls.clientCaFile"),
        ("extender: {tls: {clientCaFile: a, clientNames: [a, '']}}", "tls.clientNames: '' must"),
        ("extender: {tls: {clientCaFile: a, clientNames: bob}}", "$.extender.tls.clientNames"),
        ("webhook: {tls: {clientNames: [bob]}}", "unknown field `clientNames`"),
        ("extender: {certificateLifetimeSeconds: 1}", "certificateLifetimeSeconds"),
        *(
            (text, f"{says} (unquoted, YAML reads On, Off, Yes and No as true or false)")
            for text, says in (
                ("deviceFailures: {allow: Off}", "expected one of Evict, Mark, null"),
                ("nodeMarks: {cordon: true}", "expected one of AnyDevice, EveryDevice, null"),
                ("mode: Off", "expected one of observe, steer, enforce"),
            )
        ),
        ("deviceFailures: {allow: Delete}", "expected one of Evict, Mark"),
        ("deviceFailurs: {}", "unknown field `deviceFailurs`; write deviceFailures"),
        ("nodeMarks: {lable: true}", "unknown field `lable` - at `$.nodeMarks`; write label"),
        ("nodeMarks: {x: 1}", "its fields are label, condition, cordon,"),
        ("policies: [{name: a, placement: {minScor: 1}}]", "minScor; write minScore"),
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
            "what is tolerated is not a fallback",
        ),
        *(
            (
                f"policies: [{{name: a, tolerations: {{devices: [{{key: {key}}}]}}}}]",
                "a taint's key",
            )
            for key in ("'a b'", "a..b/x", "''", "a/b/c", "A.b/c", "k" * 64, f"{'a' * 254}/k")
        ),
        *(
            (f"policies: [{{name: a, tolerations: {devices}}}]", says)
            for devices, says in (
                ("{devices: [{key: a, value: a b}]}", "value 'a b'"),
                (f"{{devices: [{{key: a, value: {'v' * 64}}}]}}", "value 'v"),
                ("{devices: [{key: a}, {key: a}]}", "each entry once"),
                ("{devices: [" + ", ".join(f"{{key: k{i}}}" for i in range(9)) + "]}", "8 entries"),
                ("{devices: [{key: a, seconds: 9223372037}]}", "seconds must be 9223372036"),
                ("{notReadySeconds: 9223372037}", "notReadySeconds must be"),
                ("{unreachableSeconds: 9223372037}", "unreachableSeconds must be"),
            )
        ),
        *(
            (f"policies: [{{name: a, failure: {{{failure}}}}}]", says)
            for failure, says in (
                ("failJobOnExitCodes: [3, 3]", "failJobOnExitCodes must list each entry once"),
                ("failJobOnExitCodes: [256]", "1 to 255"),
                ("restartContainerOnExitCodes: [3, 3]", "restartContainerOnExitCodes must list"),
                ("backoffLimitPerIndex: 2147483648", "backoffLimitPerIndex must be"),
                ("jobSet: {maxRestarts: 2147483648}", "maxRestarts must be"),
                ("jobSet: {restartStrategy: Never}", "Never"),
            )
        ),
        *(
            (f"policies: [{{name: a, failure: {{jobSet: {{rules: [{rules}]}}}}}}]", says)
            for rules, says in (
                ("{name: 1a, action: FailJobSet}", "name '1a'"),
                (f"{{name: {'n' * 129}, action: FailJobSet}}", "128"),
                ("{name: a, action: Retry}", "Retry"),
                (
                    '{name: a, action: RestartJob, onJobFailureMessagePatterns: ["a("]}',
                    "onJobFailureMessagePatterns: 'a(' is no regular expression",
                ),
                (
                    f"{{name: a, action: RestartJob, onJobFailureMessagePatterns: [{'a' * 257}]}}",
                    "must have 1 to 256 characters",
                ),
                ("{name: a, action: FailJobSet}, {name: a, action: FailJobSet}", "each entry once"),
                ("{name: a, action: FailJobSet, onJobFailureReasons: [Odd]}", "Odd"),
                ("{name: a, action: FailJobSet, targetReplicatedJobs: [w, w]}", "each entry once"),
                ("{name: a, action: FailJobSet, targetReplicatedJobs: [A_b]}", "'A_b'"),
            )
        ),
        ("policies: [{name: Bad Name/x}]", "name 'Bad Name/x'"),
        (f"policies: [{{name: {'a' * 64}}}]", "at most 63"),
        ("lint: {rules: {FTL010: on}}", "lint.rules"),
        ("namespace: Not A Namespace!", "namespace 'Not A Namespace!' must be"),
        ("namespace: a.b", "namespace 'a.b' must be at most 63"),
        ("namespace: ''", "namespace '' must be"),
        ("steward: {lease: BAD NAME}", "steward: lease 'BAD NAME' must be at most 253"),
        ("steward: {wakeClaim: ''}", "steward: wakeClaim '' must be"),
        (f"steward: {{wakeClaim: {'a' * 254}}}", "steward: wakeClaim"),
        ("extender: {service: a.b}", "extender: service 'a.b' must be at most 63"),
        ("extender: {secret: A}", "extender: secret 'A' must be"),
        ("webhook: {service: A}", "webhook: service 'A' must be"),
        ("webhook: {secret: a..b}", "webhook: secret 'a..b' must be"),
        *(
            (f"webhook: {{deadlineSeconds: {value}}}", "deadlineSeconds must be more than 0")
            for value in ("0", "-1", ".nan", ".inf", "3", "60")
        ),
        *(
            (f"steward: {{{name}: {value}}}", f"steward: {name} must be")
            for name in ("leaseSeconds", "wakeIntervalSeconds")
            for value in ("0", "-1", ".nan", ".inf")
        ),
        ("deviceFailures: {confirmSeconds: .inf}", "confirmSeconds must be finite, and 0 or more"),
        ("breaker: {minNodes: -1}", "minNodes must be 0 or more"),
        ("webhook: {configuration: a_b}", "webhook: configuration 'a_b' must be"),
        ("steward: {lease: a}\nsteward: {lease: b}", "line 2: 'steward' is given twice"),
        ("breaker:\n  minNodes: 1\n  minNodes: 2", "line 3: 'minNodes' is given twice"),
        ("webhook: {mode: dry}", "mode"),
        ("webhook: {workloads: [{group: a, kind: '', templates: []}]}", "kind"),
        ("webhook: {workloads: [{group: a, kind: B, templates: [spec..x]}]}", "spec..x"),
        ("- a list", "object"),
        ("a: [", "invalid YAML"),
        ("\x00", "invalid YAML"),
    ],
)
def test_a_wrong_settings_file_is_named_with_its_field(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as error:
        load_settings(path)
    assert str(path) in str(error.value)
    assert says in str(error.value)


def test_names_are_those_that_objects_may_have(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("namespace: team-1\nsteward: {lease: a.b-1, wakeClaim: 0.x}\n")
    read = load_settings(path)
    assert (read.namespace, read.steward.lease, read.steward.wake_claim) == (
        *("team-1", "a.b-1", "0.x"),
    )


def test_what_a_merged_mapping_says_may_be_said_anew(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "policies:\n"
        "- {name: a, placement: &a {minScore: 0.5, degraded: Refuse}}\n"
        "- {name: b, placement: &b {<<: *a, minScore: 0.6}}\n"
        "- {name: c, placement: {<<: *b, minScore: 0.7}}\n"
    )
    assert [policy.placement.min_score for policy in load_settings(path).policies] == [
        0.5,
        0.6,
        0.7,
    ]


def test_a_setting_may_have_its_name_of_the_last_version(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("health: {restlessSeconds: 60}\n")
    assert load_settings(path).health.recurring_seconds == 60
    path.write_text("health: {restlessSeconds: 60, recurringSeconds: 90}\n")
    with pytest.raises(SettingsError, match="unknown field `restlessSeconds`"):
        load_settings(path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "absent.yaml")


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("")
    assert load_settings(path) == Settings() == load_settings(None)


def test_a_policy_may_say_all_that_a_device_policy_says(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "policies:\n"
        "- name: mine\n"
        "  tolerations: {devices: [{key: example.com/maintenance, seconds: 60}]}\n"
        "  failure: {failJobOnExitCodes: [42], jobSet: {maxRestarts: 0, rules: []}}\n"
        "  validation: {strict: true, rules: {FTL010: Warn}}\n"
    )
    (mine,) = load_settings(path).policies
    assert mine.tolerations.devices[0].seconds == 60
    assert mine.validation.rules == {"FTL010": "Warn"}


def test_the_longest_key_of_a_taint_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    key = f"{'a.' * 126}b/{'k' * 63}"
    path.write_text(f"policies: [{{name: a, tolerations: {{devices: [{{key: {key}}}]}}}}]")
    assert load_settings(path).policies[0].tolerations.devices[0].key == key


def test_own_policies_come_beside_the_built_in_ones_and_may_replace_them(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "defaultPolicy: mine\n"
        "policies:\n"
        "- {name: mine, placement: {minScore: 0.5, degraded: Refuse}}\n"
        "- {name: training, placement: {minScore: 0.95}}\n"
    )
    policies = load_settings(path).all_policies()
    assert policies.default == "mine"
    assert policies.by_name["training"].placement.min_score == 0.95
    assert "scavenger" in policies.by_name


def test_off_need_not_be_quoted_though_yaml_reads_it_as_false(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        "lint: {rules: {FTL010: off, FTL011: Off, FTL012: 'Off'}}\n"
        "policies: [{name: mine, validation: {rules: {FTL010: Off}}}]\n"
    )
    read = load_settings(path)
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
    assert load_settings(path).disabled_features == {"DRAPrioritizedList", "DRAConsumableCapacity"}


def test_only_the_default_scheduler_asks_unless_others_are_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("scheduler: {names: [default-scheduler, bin-packing]}\n")
    assert Settings().scheduler.names == ("default-scheduler",)
    assert load_settings(path).scheduler.names == ("default-scheduler", "bin-packing")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", ""),
        ("sources: {silentAfterSeconds: 59}", "sources.silentAfterSeconds"),
        ("deviceTaints: {unhealthy: NoSchedule, degraded: None}", ""),
        ("deviceTaints: {unhealthy: NoExecute}", "no PodDisruptionBudget protects them"),
        ("deviceTaints: {degraded: NoSchedule}", "policy inference, the default, has no"),
        ("{defaultPolicy: training, deviceTaints: {degraded: NoSchedule}}", ""),
        (
            "policies: [{name: inference, tolerations: {degradedAsFallback: true}}]\n"
            "deviceTaints: {degraded: NoSchedule}",
            "",
        ),
    ],
)
def test_what_is_allowed_and_hardly_meant_is_remarked(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    remarks = load_settings(path).remarks()
    assert len(remarks) == bool(says)
    assert all(says in remark for remark in remarks)
