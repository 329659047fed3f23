"""`fettle lint`, as users call it."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fettle.cli.linting.documenting import document
from fettle.cli.linting.files import LARGEST_BYTES

ROOT = Path(__file__).parents[3]
CLAIM = """\
# comments and blank lines count

apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: big
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.nvidia.com
        count: 40
"""
LIST = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: worker, namespace: team}
  spec:
    containers:
    - name: main
      resources:
        claims:
        - {name: gpus, request: gpux}
    resourceClaims:
    - {name: gpus, resourceClaimTemplateName: gpus}
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaimTemplate
  metadata: {name: gpus, namespace: team}
  spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"""
GOOD = CLAIM.replace("40", "4")


def fettle(*arguments: str, stdin: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fettle", "lint", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )


def findings(*arguments: str, stdin: str = "") -> list[dict[str, Any]]:
    ran = fettle(*arguments, "--output", "json", stdin=stdin)
    assert ran.returncode in (0, 1), ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "claim.yaml").write_text(CLAIM)
    (tmp_path / "list.yaml").write_text(LIST)
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    return tmp_path


def test_a_finding_has_file_line_object_field_and_fix(folder: Path) -> None:
    (found,) = findings(str(folder / "claim.yaml"))
    assert found == {
        "rule": "FTL010",
        "severity": "Deny",
        "file": str(folder / "claim.yaml"),
        "line": 13,
        "kind": "ResourceClaim",
        "namespace": "default",
        "name": "big",
        "path": "spec.devices.requests[0].exactly.count",
        "message": "the claim asks for at least 40 devices, but Kubernetes allocates at most 32 "
        "for one claim",
        "fix": "ask for at most 32 in all its requests together, or use several claims",
    }


def test_a_folder_is_read_whole_and_templates_beside_workloads_are_known(folder: Path) -> None:
    found = [(f["rule"], Path(f["file"]).name, f["line"]) for f in findings(str(folder))]
    assert found == [("FTL010", "claim.yaml", 13), ("FTL035", "list.yaml", 12)]


def test_standard_input_holds_several_documents() -> None:
    found = findings("-", stdin=f"{GOOD}---\n{CLAIM}")
    assert [(f["file"], f["line"]) for f in found] == [("<stdin>", 13 + 14)]


def test_json_is_read_and_its_lines_are_told() -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "empty"},
        "spec": {"devices": {"requests": []}},
    }
    listed = {"apiVersion": "v1", "kind": "List", "items": [claim, claim]}
    for text, lines in ((json.dumps(claim, indent=1), [9]), (json.dumps(listed), [1, 1])):
        assert [f["line"] for f in findings("-", stdin=text)] == lines
    nested = findings("-", stdin=json.dumps(listed, indent=1))
    assert [f["line"] for f in nested] == [13, 25]


def test_exit_codes_say_whether_something_was_found(folder: Path) -> None:
    warned = GOOD + "        tolerations: [{operator: Exists}]\n"
    assert fettle("-", stdin=GOOD).returncode == 0
    assert fettle("-", stdin=warned).returncode == 0
    assert fettle("-", "--fail-on", "warn", stdin=warned).returncode == 1
    assert fettle(str(folder)).returncode == 1
    assert fettle("-", stdin="").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (["/nonexistent.yaml"], "", "/nonexistent.yaml: No such file or directory"),
        (["-"], "a: }", "<stdin>: line 1: no valid YAML"),
        (["-"], "{{ .Values.x }}", "<stdin>: line 1"),
        (["-", "--snapshot", "/nonexistent"], GOOD, "snapshot folder /nonexistent"),
        (["-", "--settings", "/nonexistent"], GOOD, "settings file /nonexistent"),
        ([], "", "Missing argument"),
        (["-", "--output", "xml"], GOOD, "'xml' is not one of"),
        (["-", "--snapshot", "a", "--kubeconfig", "b"], GOOD, "exclude each other"),
    ],
)
def test_bad_usage_exits_with_2_and_says_what_is_wrong(
    arguments: list[str], stdin: str, says: str
) -> None:
    ran = fettle(*arguments, stdin=stdin)
    assert (ran.returncode, says in ran.stderr) == (2, True), ran.stderr
    assert "Traceback" not in ran.stderr


def test_an_alias_bomb_is_refused_in_short_time() -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    bomb = "\n".join(["a0: &a0 lollollollol", *levels, "kind: Pod"])
    began = time.monotonic()
    ran = fettle("-", stdin=bomb)
    assert (ran.returncode, "aliases" in ran.stderr) == (2, True), ran.stderr
    assert time.monotonic() - began < 10


def test_a_huge_file_is_refused_by_its_size(tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(LARGEST_BYTES * 8)
    ran = fettle(str(huge))
    assert (ran.returncode, "larger than" in ran.stderr) == (2, True), ran.stderr


def test_text_is_for_people_and_its_summary_apart(folder: Path) -> None:
    ran = fettle(str(folder / "claim.yaml"))
    first, where, fix = ran.stdout.splitlines()
    assert first.endswith("claim.yaml:13: Deny FTL010 claim-too-large: ResourceClaim default/big")
    assert where.startswith("    spec.devices.requests[0].exactly.count: ")
    assert fix.startswith("    fix: ")
    assert ran.stderr == "1 objects in 1 files: 1 to deny, 0 to warn of\n"


def test_sarif_names_rule_place_and_level(folder: Path) -> None:
    ran = fettle(str(folder / "claim.yaml"), "--output", "sarif")
    (run,) = json.loads(ran.stdout)["runs"]
    (result,) = run["results"]
    assert (result["ruleId"], result["level"]) == ("FTL010", "error")
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 13}
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["FTL010"]


def test_github_annotations_stay_on_one_line(tmp_path: Path) -> None:
    odd = tmp_path / "a,b%.yaml"
    odd.write_text(CLAIM)
    ran = fettle(str(odd), "--output", "github")
    (line,) = ran.stdout.splitlines()
    assert line.startswith("::error file=")
    assert "a%2Cb%25.yaml,line=13,title=FTL010 claim-too-large::spec.devices" in line


def test_a_snapshot_makes_inventory_rules_speak(tmp_path: Path) -> None:
    (tmp_path / "class.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: gpu.example.com}\n"
        "spec: {selectors: [{cel: {expression: device.driver == 'gpu.example.com'}}]}\n"
    )
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n")
    (tmp_path / "slice.yaml").write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s}\nspec:\n"
        "  driver: gpu.example.com\n  nodeName: n\n"
        "  pool: {name: n, generation: 1, resourceSliceCount: 1}\n"
        "  devices: [{name: gpu-0, attributes: {model: {string: A100}}}]\n"
    )
    claim = CLAIM.replace("gpu.nvidia.com", "gpu.example.com").replace("40", "1")
    claim += "        selectors: [{cel: {expression: "
    claim += '\'device.attributes["gpu.example.com"].model == "H100"\'}}]\n'
    assert findings("-", stdin=claim) == []
    (found,) = findings("-", "--snapshot", str(tmp_path), stdin=claim)
    assert (found["rule"], found["severity"]) == ("FTL004", "Warn")
    assert "0 of 1 devices in 1 pools of gpu.example.com match" in found["message"]
    (strict,) = findings("-", "--snapshot", str(tmp_path), "--strict", stdin=claim)
    assert strict["severity"] == "Deny"
    (unknown, *_) = findings("-", "--snapshot", str(tmp_path), stdin=GOOD)
    assert unknown["rule"] == "FTL001"


def test_settings_say_how_severe_rules_are(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("lint: {rules: {FTL010: Warn}}\n")
    (found,) = findings("-", "--settings", str(settings), stdin=CLAIM)
    assert found["severity"] == "Warn"
    settings.write_text("lint: {rules: {too-large: Warn}}\n")
    ran = fettle("-", "--settings", str(settings), stdin=CLAIM)
    assert (ran.returncode, "is no id such as FTL010" in ran.stderr) == (2, True)


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
    assert (found["rule"], found["severity"]) == ("FTL019", "Deny")
    assert found["path"] == "spec.devices.config[0].opaque.parameters.mesh"
    (tmp_path / "tpu.json").write_text("{}")
    ran = fettle("-", "--settings", str(settings), stdin=json.dumps(claim))
    assert (ran.returncode, "driver schema tpu.json" in ran.stderr) == (2, True)
    settings.write_text("lint: {driverSchemas: /nonexistent}\n")
    ran = fettle("-", "--settings", str(settings), stdin=json.dumps(claim))
    assert (ran.returncode, "/nonexistent is no folder" in ran.stderr) == (2, True)


def test_a_quota_beside_a_template_is_known() -> None:
    quota = (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\n"
        "spec: {hard: {gpu.nvidia.com.deviceclass.resource.k8s.io/devices: 2}}\n"
    )
    (found,) = findings("-", stdin=f"{GOOD}---\n{quota}")
    assert (found["rule"], found["severity"]) == ("FTL055", "Warn")


ODD = """\
{1: 2, kind: Pod, apiVersion: v1, metadata: {1: 2, null: 3, annotations: {true: false}},
 spec: {nodeSelector: {1: a, null: b}, tolerations: [{1: 2}], resourceClaims: [{name: 1}],
  containers: [{resources: {limits: {2: 3, null: .inf}, claims: [{1: 2}]}}]}}
---
{kind: ResourceClaim, apiVersion: resource.k8s.io/v1, metadata: {name: 1, namespace: 2},
 spec: {null: 1, devices: {requests: [{name: .nan, exactly: {count: 1.5, 3: 4,
    deviceClassName: 99999999999999999999999, capacity: {requests: {1: 2, null: 3}}}}],
  config: [{opaque: {driver: gpu.nvidia.com, parameters: {1: 2, null: 3, kind: GpuConfig,
    apiVersion: resource.nvidia.com/v1beta1, sharing: {true: 1}}}}]}}}
"""


@pytest.mark.parametrize("known", [False, True], ids=["against nothing", "against a snapshot"])
def test_keys_and_values_that_json_does_not_have_are_no_trouble(
    known: bool, tmp_path: Path
) -> None:
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n")
    snapshot = ["--snapshot", str(tmp_path)] if known else []
    found = findings("-", *snapshot, stdin=ODD)
    assert "spec.devices.config[0].opaque.parameters.1" in [f["path"] for f in found]


def test_two_hundred_documents_take_less_than_two_seconds() -> None:
    text = "---\n".join(CLAIM.replace("big", f"big-{i}") for i in range(200))
    began = time.monotonic()
    assert len(findings("-", stdin=text)) == 200
    assert time.monotonic() - began < 2


def test_the_documented_rules_are_current() -> None:
    """If not: python -m fettle.cli.linting.documenting > docs/rules.md"""
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == document()


def test_the_pre_commit_hook_calls_a_command_that_exists() -> None:
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert "entry: fettle lint" in hooks
    assert fettle("--help").returncode == 0
