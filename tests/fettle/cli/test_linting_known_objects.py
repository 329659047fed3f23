"""What `fettle lint` knows besides its files: policies, snapshots, settings, clusters."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fettle.api import kinds
from fettle.cli.linting import known_objects
from fettle.cli.sources import Reading
from fettle.config import LintSettings, Settings
from fettle.model import ClusterError
from tests.fettle.cli.linted import CLAIM, GOOD, LIST, fettle, findings
from tests.fettle.client.fake_api import FakeApi, fake_api

JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  namespace: team
  annotations:
    fettle.dev/policy: trainin
spec:
  template:
    metadata:
      annotations:
        fettle.dev/min-score: seven
        fettle.dev/on-device-failure: evict
    spec: {restartPolicy: Never, containers: [{name: main, image: x}]}
"""
POLICY = """\
apiVersion: fettle.dev/v1alpha1
kind: DevicePolicy
metadata: {name: trainin}
spec:
  validation: {rules: {FTL033: Deny}}
"""
EMPTY_CLAIM = (
    "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\n"
    "metadata: {name: c, namespace: team}\nspec: {}\n"
)
LABELLED = (
    "apiVersion: v1\nkind: Namespace\n"
    "metadata: {name: team, labels: {fettle.dev/policy: trainin}}\n"
)


def test_mistakes_in_policy_annotations_are_found() -> None:
    found = findings("-", stdin=JOB)
    assert [(f["rule"], f["severity"], f["line"]) for f in found] == [
        ("FTL101", "Warn", 7),
        ("FTL101", "Warn", 12),
        ("FTL101", "Warn", 13),
    ]
    assert (
        "there is no policy 'trainin' (known: inference, scavenger, training)"
        in (found[0]["message"])
    )
    assert found[0]["fix"] == "write training"
    assert "'seven' is not a number between 0 and 1" in found[1]["message"]
    (labelled,) = findings("-", stdin=LABELLED)
    assert (labelled["rule"], labelled["path"]) == ("FTL101", "metadata.labels[fettle.dev/policy]")
    (other,) = findings("-", stdin=LABELLED.replace("trainin", "ours"))
    assert other["fix"] == "name one that exists, or lint this together with its DevicePolicy"


def test_policies_and_namespaces_among_the_files_count() -> None:
    known = findings("-", stdin=f"{JOB}---\n{POLICY}")
    assert [f["line"] for f in known] == [12, 13]
    (denied,) = findings("-", stdin=f"{EMPTY_CLAIM}---\n{POLICY}---\n{LABELLED}")
    assert (denied["rule"], denied["severity"]) == ("FTL033", "Deny")
    (warned,) = findings("-", stdin=f"{EMPTY_CLAIM}---\n{POLICY}")
    assert (warned["rule"], warned["severity"]) == ("FTL033", "Warn")


def test_a_policy_that_the_api_refuses_is_found() -> None:
    wrong = POLICY.replace("validation: {rules: {FTL033: Deny}}", "placement: {minScore: 7}")
    (found,) = findings("-", stdin=wrong)
    assert (found["rule"], found["severity"], found["name"]) == ("FTL102", "Deny", "trainin")
    assert found["namespace"] == ""
    assert "minScore must be between 0 and 1" in found["message"]


def test_an_expression_that_does_not_compile_is_found_without_a_cluster() -> None:
    expressions = ("device.driver == ", "device.drivr == 'a'", "device.driver == 'a'")
    claims = [
        f'{GOOD}        selectors: [{{cel: {{expression: "{e}"}}}}]\n'.replace("big", f"c{i}")
        for i, e in enumerate(expressions)
    ]
    found = findings("-", stdin="---\n".join(claims))
    lines = claims[0].count("\n")
    assert [(f["rule"], f["severity"], f["line"]) for f in found] == [
        ("FTL103", "Deny", lines),
        ("FTL103", "Deny", lines + 1 + lines),
    ]
    assert all("does not compile" in f["message"] for f in found)


def test_an_object_of_a_snapshot_that_cannot_be_read_is_skipped_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text(
        POLICY.replace("validation: {rules: {FTL033: Deny}}", "placement: {minScore: 7}")
    )
    ran = fettle("-", "--snapshot", str(tmp_path), stdin=CLAIM)
    assert (ran.returncode, "FTL010" in ran.stdout) == (1, True), ran.stderr
    assert "policies.yaml: DevicePolicy trainin is skipped: " in ran.stderr


def test_an_unreadable_class_is_not_called_absent(tmp_path: Path) -> None:
    (tmp_path / "classes.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\n"
        "metadata: {name: gpu.nvidia.com}\nspec: {selectors: 5}\n"
        "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: a}\nspec: {}\n"
    )
    ran = fettle("-", "--strict", "--snapshot", str(tmp_path), stdin=GOOD)
    assert (ran.returncode, "FTL001" in ran.stdout) == (0, False), ran.stdout
    assert "classes.yaml: DeviceClass gpu.nvidia.com is skipped" in ran.stderr


def test_kinds_that_a_snapshot_does_not_have_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    ran = fettle("-", "--strict", "--snapshot", str(tmp_path), stdin=GOOD + "---\n" + LIST)
    assert "FTL001" not in ran.stdout
    assert (
        "the snapshot has no ResourceSlice, DeviceClass, ResourceClaim, ResourceClaimTemplate: "
        "rules that need them are skipped\n"
    ) in ran.stderr


H100 = CLAIM.replace("gpu.nvidia.com", "gpu.example.com").replace("40", "1") + (
    "        selectors: [{cel: {expression: "
    '\'device.attributes["gpu.example.com"].model == "H100"\'}}]\n'
)


def fleet(folder: Path, *, slices: int = 1) -> None:
    """A node with one A100, and its class."""
    (folder / "class.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.example.com}\n"
        "spec: {selectors: [{cel: {expression: device.driver == 'gpu.example.com'}}]}\n"
    )
    (folder / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    (folder / "slice.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n"
        "  driver: gpu.example.com\n  nodeName: n1\n"
        f"  pool: {{name: n1, generation: 1, resourceSliceCount: {slices}}}\n"
        "  devices: [{name: gpu-0, attributes: {model: {string: A100}}}]\n"
    )


@pytest.mark.long
def test_rules_on_inventory_need_a_snapshot(tmp_path: Path) -> None:
    fleet(tmp_path)
    assert findings("-", stdin=H100) == []
    found, unknown, *_ = findings("-", "--snapshot", str(tmp_path), stdin=f"{H100}---\n{GOOD}")
    assert (found["rule"], found["severity"]) == ("FTL004", "Warn")
    assert "0 of 1 devices in 1 pools of gpu.example.com match" in found["message"]
    assert unknown["rule"] == "FTL001"
    (strict,) = findings("-", "--snapshot", str(tmp_path), "--strict", stdin=H100)
    assert strict["severity"] == "Deny"


@pytest.mark.long
def test_undecided_findings_are_reported_and_fail_only_with_fail_on_undecided(
    tmp_path: Path,
) -> None:
    fleet(tmp_path, slices=2)
    ran = fettle("-", "--snapshot", str(tmp_path), stdin=H100)
    assert ran.returncode == 0
    assert ":11: Undecided FTL004 selector-matches-nothing: ResourceClaim default/big" in ran.stdout
    assert "pool gpu.example.com/n1 is incomplete: 1 of 2 slices" in ran.stdout
    assert "0 to deny, 0 to warn about, 1 undecided" in ran.stderr
    more = ("--snapshot", str(tmp_path), "--fail-on", "warn", "--output", "github")
    ran = fettle("-", *more, stdin=H100)
    assert (ran.returncode, ran.stdout.startswith("::notice ")) == (0, True)
    more = ("--snapshot", str(tmp_path), "--fail-on", "undecided", "--output", "sarif")
    ran = fettle("-", *more, stdin=H100)
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["runs"][0]["results"][0]["level"] == "note"


def test_a_snapshot_that_can_be_read_in_part_hides_no_finding_that_needs_none(
    tmp_path: Path,
) -> None:
    fleet(tmp_path)
    newer = (tmp_path / "slice.yaml").read_text().replace("k8s.io/v1\n", "k8s.io/v2\n")
    (tmp_path / "slice.yaml").write_text(newer)
    ran = fettle("-", "--snapshot", str(tmp_path), stdin=CLAIM + "---\n" + H100)
    assert ran.returncode == 2
    assert "FTL010" in ran.stdout
    assert "FTL004" not in ran.stdout
    assert "snapshot file slice.yaml: line 1: ResourceSlice is read as" in ran.stderr
    assert "rules that look at all of it are skipped" in ran.stderr


def test_settings_say_how_severe_rules_are(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("lint: {rules: {FTL010: Warn}}\n")
    (found,) = findings("-", "--settings", str(settings), stdin=CLAIM)
    assert found["severity"] == "Warn"
    settings.write_text("lint: {rules: {too-large: Warn}}\n")
    ran = fettle("-", "--settings", str(settings), stdin=CLAIM)
    assert (ran.returncode, "is not a rule id such as FTL010" in ran.stderr) == (2, True)


def test_workload_kinds_of_the_settings_are_checked(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(
        "webhook: {workloads: [{group: example.com, kind: Gang, templates: [spec.a.*.b]}]}\n"
    )
    gang = (
        "apiVersion: example.com/v1\nkind: Gang\nmetadata: {name: g}\n"
        "spec: {a: [{b: {spec: {resourceClaims: [{name: 5}]}}}]}\n"
    )
    assert findings("-", stdin=gang) == []
    found = findings("-", "--settings", str(settings), stdin=gang)
    denied = [one["path"] for one in found if one["severity"] == "Deny"]
    assert denied == ["spec.a[0].b.spec.resourceClaims[0].name"]


def test_a_folder_of_schemas_makes_more_drivers_known(tmp_path: Path) -> None:
    (tmp_path / "tpu.json").write_text(
        """{"driver": "tpu.example.com", "apiVersions": ["tpu.example.com/v1"], "kinds": [
            {"kind": "TpuConfig", "schema": {"additionalProperties": false}}]}"""
    )
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"lint: {{driverSchemas: {tmp_path}}}\n")
    config = {"apiVersion": "tpu.example.com/v1", "kind": "TpuConfig", "mesh": 2}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "tpu"},
        "spec": {
            "devices": {
                "requests": [{"name": "tpu", "exactly": {"deviceClassName": "tpu.example.com"}}],
                "config": [{"opaque": {"driver": "tpu.example.com", "parameters": config}}],
            }
        },
    }
    assert findings("-", stdin=json.dumps(claim)) == []
    (found,) = findings("-", "--settings", str(settings), stdin=json.dumps(claim))
    assert (found["rule"], found["severity"]) == ("FTL019", "Warn")
    assert found["path"] == "spec.devices.config[0].opaque.parameters.mesh"
    (tmp_path / "tpu.json").write_text("{}")
    ran = fettle("-", "--settings", str(settings), stdin=json.dumps(claim))
    assert (ran.returncode, "driver schema tpu.json" in ran.stderr) == (2, True)
    settings.write_text("lint: {driverSchemas: /nonexistent}\n")
    ran = fettle("-", "--settings", str(settings), stdin=json.dumps(claim))
    assert (ran.returncode, "/nonexistent is not a folder" in ran.stderr) == (2, True)


def test_a_quota_among_the_files_is_known() -> None:
    quota = (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\n"
        "spec: {hard: {gpu.nvidia.com.deviceclass.resource.k8s.io/devices: 2}}\n"
    )
    (found,) = findings("-", stdin=f"{GOOD}---\n{quota}")
    assert (found["rule"], found["severity"]) == ("FTL055", "Warn")


ODD = """\
{1: 2, kind: Pod, apiVersion: v1, metadata: {1: 2, false: 3, annotations: {true: false}},
 spec: {nodeSelector: {1: a, false: b}, tolerations: [{1: 2}], resourceClaims: [{name: 1}],
  containers: [{resources: {limits: {2: 3, false: .inf}, claims: [{1: 2}]}}]}}
---
{kind: ResourceClaim, apiVersion: resource.k8s.io/v1, metadata: {name: 1, namespace: 2},
 spec: {false: 1, devices: {requests: [{name: .nan, exactly: {count: 1.5, 3: 4,
    deviceClassName: 99999999999999999999999, capacity: {requests: {1: 2, false: 3}}}}],
  config: [{opaque: {driver: gpu.nvidia.com, parameters: {1: 2, false: 3, kind: GpuConfig,
    apiVersion: resource.nvidia.com/v1beta1, sharing: {true: 1}}}}]}}}
"""


@pytest.mark.parametrize("known", [False, True], ids=["against nothing", "against a snapshot"])
def test_keys_and_values_that_json_does_not_have_are_read(known: bool, tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    snapshot = ["--snapshot", str(tmp_path)] if known else []
    found = findings("-", *snapshot, stdin=ODD)
    assert "spec.devices.config[0].opaque.parameters.1" in [f["path"] for f in found]


DOMAIN = """\
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {name: nvlink, namespace: team, uid: uid-1}
spec: {numNodes: 0, channel: {resourceClaimTemplate: {name: nvlink-channel}}}
"""
CHANNEL = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: team}
spec:
  devices:
    requests: [{name: channel, exactly: {deviceClassName: compute-domain.nvidia.com}}]
    config:
    - opaque:
        driver: compute-domain.nvidia.com
        parameters:
          apiVersion: resource.nvidia.com/v1beta1
          kind: ComputeDomainChannelConfig
          domainID: UID
"""


def test_a_compute_domain_among_the_files_is_known() -> None:
    def rules(uid: str, domain: str = DOMAIN) -> list[str]:
        stdin = f"{domain}---\n{CHANNEL.replace('UID', uid)}"
        return [finding["rule"] for finding in findings("-", stdin=stdin)]

    assert rules("uid-1") == []
    assert rules("uid-9") == []  # there may be others
    assert rules("nvlink") == ["FTL024"]
    assert rules("uid-1", DOMAIN.replace("team", "other")) == ["FTL024"]


@pytest.mark.long
def test_a_snapshot_knows_its_compute_domains_and_quotas(tmp_path: Path) -> None:
    (tmp_path / "domains.yaml").write_text(DOMAIN)
    (tmp_path / "quotas.yaml").write_text(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: team}\n"
        "spec: {hard: {compute-domain.nvidia.com.deviceclass.resource.k8s.io/devices: 0}}\n"
    )
    claim = CHANNEL.replace("UID", "uid-9")
    found = findings("-", "--snapshot", str(tmp_path), stdin=claim)
    assert [finding["rule"] for finding in found] == ["FTL024", "FTL055"]
    (tmp_path / "domains.yaml").unlink()
    found = findings("-", "--snapshot", str(tmp_path), stdin=claim)
    assert [finding["rule"] for finding in found] == ["FTL055"]


def test_a_snapshot_without_a_kind_that_the_settings_watch_is_noted(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("lint: {watch: [ComputeDomain]}\n")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    ran = fettle("-", "--snapshot", str(snapshot), "--settings", str(settings), stdin=GOOD)
    assert "the snapshot has no" in ran.stderr
    assert "ComputeDomain" in ran.stderr


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as server:
        yield server


async def reading(api: FakeApi, folder: Path, settings: Settings | None = None) -> tuple[str, ...]:
    """Notes about what was skipped; raises ClusterError."""
    given = settings or Settings()
    async with (
        asyncio.timeout(20),
        known_objects.known(None, Reading(api.kubeconfig(folder)), given, ()) as known,
    ):
        return known.notes


async def test_a_right_that_is_missing_is_named_and_only_rules_that_need_it_are_skipped(
    api: FakeApi, tmp_path: Path
) -> None:
    api.forbidden = {("list", "resourceclaimtemplates"), ("watch", "nodes")}
    (note,) = await reading(api, tmp_path)
    assert 'on the resource "resourceclaimtemplates"' in note
    assert note.endswith("; rules that need it are skipped")


async def test_an_unreachable_cluster_is_reported_once(api: FakeApi, tmp_path: Path) -> None:
    await api.stop()
    with pytest.raises(ClusterError, match="cannot be reached") as said:
        await reading(api, tmp_path)
    assert str(said.value).count("cannot be reached") == 1


async def test_an_optional_kind_that_cannot_be_read_is_only_noted(
    api: FakeApi, tmp_path: Path
) -> None:
    api.unserved = {kinds.POLICY.plural, kinds.TAINT_RULE.plural}
    api.forbidden = {("watch", kinds.QUOTA.plural), ("list", kinds.QUOTA.plural)}
    wanted = Settings(lint=LintSettings(watch=("ResourceQuota",)))
    notes = await reading(api, tmp_path, wanted)
    assert any("resourcequotas" in n and "rules that need it are skipped" in n for n in notes)


BETA_TEMPLATE = """\
apiVersion: resource.k8s.io/{version}
kind: ResourceClaimTemplate
metadata: {{name: gpus, namespace: team}}
spec: {{spec: {{devices: {{requests: [{request}]}}}}}}
"""


@pytest.mark.parametrize(
    ("version", "request_"),
    [
        ("v1", "{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}"),
        ("v1beta2", "{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}"),
        ("v1beta1", "{name: gpu, deviceClassName: gpu.nvidia.com}"),
    ],
)
def test_templates_of_beta_versions_are_known_as_those_of_v1_are(
    version: str, request_: str
) -> None:
    """The API server converts what it stores."""
    pod = LIST.partition("- apiVersion: resource.k8s.io/v1\n")[0]
    template = BETA_TEMPLATE.format(version=version, request=request_)
    found = [f for f in findings("-", stdin=f"{pod}---\n{template}") if f["rule"] == "FTL035"]
    assert [(f["severity"], f["fix"]) for f in found] == [("Deny", "write request: gpu")]


ELSEWHERE = LIST.replace("{name: gpus, namespace: team}", "{name: gpus, namespace: others}")


def test_a_template_in_another_namespace_is_named_with_that_namespace(tmp_path: Path) -> None:
    said = "ResourceClaimTemplate team/gpus does not exist (yet), but namespace others has one"
    (one,) = [f for f in findings("-", stdin=ELSEWHERE) if f["rule"] == "FTL038"]
    assert (said in one["message"], one["severity"]) == (True, "Warn")
    assert one["fix"] == "create it in team, too"
    (tmp_path / "resourceclaimtemplates.yaml").write_text("kind: List\nitems: []\n")
    found = findings("-", "--snapshot", str(tmp_path), stdin=ELSEWHERE)
    (one,) = [f for f in found if f["rule"] == "FTL038"]
    assert said in one["message"]


def test_a_claim_in_another_namespace_is_named_with_that_namespace() -> None:
    claim = EMPTY_CLAIM.replace("namespace: team", "namespace: others").replace(
        "name: c", "name: gpus"
    )
    by_name = f"{LIST.replace('TemplateName', 'Name')}---\n{claim}"
    (one,) = [f for f in findings("-", stdin=by_name) if f["rule"] == "FTL037"]
    said = "ResourceClaim team/gpus does not exist (yet), but namespace others has one"
    assert said in one["message"]


@pytest.mark.parametrize("namespace", [", namespace: others", ", namespace: team"])
def test_where_an_object_does_not_say_its_namespace_it_may_be_any(namespace: str) -> None:
    one_without = ELSEWHERE.replace(namespace, "")
    assert one_without != ELSEWHERE
    assert [f for f in findings("-", stdin=one_without) if f["rule"] == "FTL038"] == []


def test_what_the_api_server_holds_in_other_namespaces_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "resourceclaimtemplates.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\n"
        "metadata: {name: gpus, namespace: secret, uid: u}\nspec: {spec: {}}\n"
    )
    found = findings("-", "--snapshot", str(tmp_path), stdin=ELSEWHERE.replace("others", "team"))
    assert [f for f in found if f["rule"] == "FTL038"] == []
    pod = ELSEWHERE.replace("name: gpus, namespace: others", "name: another, namespace: others")
    found = findings("-", "--snapshot", str(tmp_path), stdin=pod)
    (one,) = [f for f in found if f["rule"] == "FTL038"]
    assert "secret" not in one["message"]


def test_a_file_with_an_empty_list_says_that_there_are_none_of_its_kind(tmp_path: Path) -> None:
    pod = EMPTY_CLAIM.replace("ResourceClaim\n", "ResourceClaimTemplate\n")
    (tmp_path / "resourceclaims.yaml").write_text("apiVersion: v1\nitems: []\nkind: List\n")
    (tmp_path / "deviceclasses.json").write_text('{"kind": "DeviceClassList", "items": []}')
    ran = fettle("-", "--snapshot", str(tmp_path), stdin=pod)
    assert "the snapshot has no Node, ResourceSlice, ResourceClaimTemplate: rules" in ran.stderr


def _policy(spec: str) -> str:
    return f"apiVersion: fettle.dev/v1alpha1\nkind: DevicePolicy\nmetadata: {{name: a}}\n{spec}\n"


@pytest.mark.parametrize(
    "spec",
    [
        "spec:\n  placement:\n    # minScore: 0.5",
        *(
            "spec: {failure: null}",
            "spec: {tolerations: null}",
            "spec: {validation: {rules: null}}",
        ),
        *("spec: {placement: {minScore: null}}", "spec: {placement: {requires: null}}", "spec: {}"),
        "spec: {failure: {jobSet: null, onDeviceFailure: null}}",
    ],
)
def test_an_empty_part_of_a_policy_is_as_if_it_were_left_out(spec: str) -> None:
    assert findings("-", stdin=_policy(spec)) == []


@pytest.mark.parametrize(
    ("spec", "rule", "path"),
    [
        ("placement: {minScore: '0.9'}", "FTL106", "spec.placement.minScore"),
        ("placement: {maxRisk: '0.5'}", "FTL106", "spec.placement.maxRisk"),
        ("tolerations: {notReadySeconds: '30'}", "FTL106", "spec.tolerations.notReadySeconds"),
        (
            "failure: {ignoreDisruptions: 'true'}",
            "FTL106",
            "spec.failure.ignoreDisruptions",
        ),
    ],
)
def test_a_quoted_number_or_bool_in_a_policy_is_denied(spec: str, rule: str, path: str) -> None:
    (found,) = findings("-", stdin=_policy(f"spec: {{{spec}}}"))
    assert (found["rule"], found["severity"], found["path"]) == (rule, "Deny", path)


@pytest.mark.parametrize("spec", ["", "spec:", "spec: null"])
def test_a_policy_without_a_spec_is_denied(spec: str) -> None:
    (found,) = findings("-", stdin=_policy(spec))
    assert (found["rule"], found["severity"], found["path"]) == ("FTL203", "Deny", "spec")
