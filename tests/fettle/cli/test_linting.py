"""`fettle lint`, as users call it."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fettle.cli.linting import running
from fettle.cli.linting.documenting import counts, document, with_counts
from fettle.lint import RULES
from tests.fettle.cli.linted import CLAIM, GOOD, ROOT, fettle, fill, findings, process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path)


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


def test_a_folder_is_read_whole_and_its_templates_are_known(folder: Path) -> None:
    found = [(f["rule"], Path(f["file"]).name, f["line"]) for f in findings(str(folder))]
    assert found == [("FTL010", "claim.yaml", 13), ("FTL035", "list.yaml", 13)]


def test_standard_input_holds_several_documents() -> None:
    found = findings("-", stdin=f"{GOOD.replace('big', 'good')}---\n{CLAIM}")
    assert [(f["file"], f["line"]) for f in found] == [("<stdin>", 13 + 14)]


def test_findings_in_json_have_their_lines() -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "empty"},
        "spec": {"devices": {"requests": []}},
    }
    other = {**claim, "metadata": {"name": "other"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [claim, other]}
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
    assert fettle("-", stdin="").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "stdin", "says"),
    [
        (["/nonexistent.yaml"], "", "/nonexistent.yaml: No such file or directory"),
        (["-"], "a: }", "<stdin>: line 1: invalid YAML"),
        (["-"], "{{ .Values.x }}", "<stdin>: line 1"),
        (["-", "--snapshot", "/nonexistent"], GOOD, "snapshot folder /nonexistent"),
        (["-", "--settings", "/nonexistent"], GOOD, "settings file /nonexistent"),
        ([], "", "Missing argument"),
        (["-", "--output", "xml"], GOOD, "'xml' is not one of"),
        (["-", "--snapshot", "a", "--kubeconfig", "b"], GOOD, "are mutually exclusive"),
    ],
)
def test_bad_usage_exits_with_2_and_says_what_is_wrong(
    arguments: list[str], stdin: str, says: str
) -> None:
    ran = fettle(*arguments, stdin=stdin)
    assert (ran.returncode, says in ran.stderr) == (2, True), ran.stderr
    assert "Traceback" not in ran.stderr


def test_text_output_has_its_summary_on_standard_error(folder: Path) -> None:
    ran = fettle(str(folder / "claim.yaml"))
    first, where, fix = ran.stdout.splitlines()
    assert first.endswith("claim.yaml:13: Deny FTL010 claim-too-large: ResourceClaim default/big")
    assert where.startswith("    spec.devices.requests[0].exactly.count: ")
    assert fix.startswith("    fix: ")
    assert ran.stderr == "1 objects in 1 files: 1 to deny, 0 to warn about\n"


def test_one_rule_in_many_places_is_one_block_of_text_that_names_each(tmp_path: Path) -> None:
    """Every finding stays in the JSON."""
    many = "---\n".join(CLAIM.replace("big", name) for name in ("a", "b", "c"))
    (tmp_path / "claims.yaml").write_text(f"{many}---\n{CLAIM.replace('40', '50')}")
    first, *rest = fettle("claims.yaml", cwd=tmp_path).stdout.splitlines()
    assert first == "Deny FTL010 claim-too-large: in 4 places"
    places = [line.strip() for line in rest if line.startswith(" " * 8)]
    assert places == [
        f"claims.yaml:{line}: ResourceClaim default/{name}: spec.devices.requests[0].exactly.count"
        for line, name in ((13, "a"), (27, "b"), (41, "c"), (55, "big"))
    ]
    assert sum(line.startswith("    fix: ") for line in rest) == 2
    assert len(findings(str(tmp_path))) == 4


def test_two_findings_of_a_rule_stay_apart_and_so_do_severities(tmp_path: Path) -> None:
    two = "---\n".join(CLAIM.replace("big", name) for name in ("a", "b"))
    (tmp_path / "claims.yaml").write_text(two)
    lines = fettle("claims.yaml", cwd=tmp_path).stdout.splitlines()
    assert [line[:14] for line in lines if not line.startswith(" ")] == [
        "claims.yaml:13",
        "claims.yaml:27",
    ]


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


def test_files_are_linted_without_what_speaks_to_a_cluster(folder: Path) -> None:
    """Half of a run's time was to import it."""
    lint = (
        "import sys\nfrom fettle.cli import main\n"
        f"try: main(['lint', {str(folder)!r}])\n"
        "except SystemExit as end: print(end.code, {'aiohttp', 'kubernetes'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", lint], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "1 set()"


@pytest.mark.long
def test_two_hundred_documents_take_little_more_than_one() -> None:
    def cost_s(documents: int) -> float:
        text = "---\n".join(CLAIM.replace("big", f"big-{i}") for i in range(documents))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = process("-", "--output", "json", stdin=text)
        assert (ran.returncode, len(json.loads(ran.stdout))) == (1, documents)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(after[:2]) - sum(before[:2])  # in user and in system mode

    assert cost_s(200) < 10 * cost_s(1)


def test_the_documented_rules_are_current() -> None:
    """If not: python -m fettle.cli.linting.documenting > docs/rules.md"""
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == document()


def test_the_numbers_of_rules_in_the_documents_are_current() -> None:
    """If not: python -m fettle.cli.linting.documenting README.md docs/linting.md"""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/linting.md")]
    assert [with_counts(text) for text in texts] == texts
    assert counts() in texts[1]
    assert f"Of {len(RULES)} lint rules, " in counts()


def test_the_pre_commit_hook_calls_a_command_that_exists() -> None:
    """Once with all files: a template beside the workload that uses it must be known."""
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    assert "entry: fettle lint" in hooks
    assert "require_serial: true" in hooks
    assert fettle("--help").returncode == 0


@pytest.mark.long
def test_an_object_that_takes_too_long_is_reported_and_the_others_are_checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"containers": [], "resourceClaims": [{"name": "g", "resourceClaimName": "shared"}]}
    job = {"template": {"spec": {"template": {"spec": spec}}}}
    large = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "large"},
        "spec": {"replicatedJobs": [job] * 60_000},  # which takes many times the deadline
    }
    (folder / "large.json").write_text(json.dumps(large))
    monkeypatch.setattr(running, "DEADLINE_S", 2.0)
    names = (str(folder / "large.json"), str(folder / "claim.yaml"))
    options = running.LintOptions(names, None, None, None, "default", False, "text", "deny")
    assert running.run(options) == running.UNUSABLE
    told = capsys.readouterr()
    assert "FTL010" in told.out
    assert "JobSet large was not checked within 2 s" in told.err
