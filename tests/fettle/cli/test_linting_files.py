"""Which files `fettle lint` reads, and how it reports those it cannot read."""

from pathlib import Path

import pytest

from fettle.cli.linting.files import LARGEST_BYTES
from tests.fettle.cli.linted import CLAIM, GOOD, fettle, fill, findings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return fill(tmp_path)


def test_files_of_nothing_but_comments_hold_nothing() -> None:
    for text in ("# TODO\n", "---\n# Source: chart/templates/a.yaml\n---\n", "--- # none\n...\n"):
        assert fettle("-", "--skip-others", stdin=text).returncode == 0
        ran = fettle("-", stdin=text)
        assert ran.returncode == 2
        assert ran.stderr.startswith(
            "fettle: <stdin>: no Kubernetes object in it, so nothing was checked: name files that"
        )
        assert fettle("-", "--fail-on", "warn", stdin=f"{text}---\n{GOOD}").returncode == 0


def test_an_empty_folder_and_a_wrong_path_say_what_to_do(tmp_path: Path) -> None:
    """A typing error in a workflow's path must not pass for years as "nothing found"."""
    (tmp_path / "README.md").write_text("kind: of\n")
    for given, said in (
        (".", ".: no file in it ends in .yaml, .yml, .json, so nothing was checked: name the fold"),
        ("a.yaml", "a.yaml: No such file or directory: name a file or folder that is there\n"),
    ):
        ran = fettle(given, cwd=tmp_path)
        assert (ran.returncode, ran.stderr.startswith(f"fettle: {said}")) == (2, True), ran.stderr


def test_a_folder_without_any_object_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("gpus: 8\n")
    ran = fettle(str(tmp_path))
    assert f"{tmp_path}: no Kubernetes object in it, so nothing was checked" in ran.stderr
    assert ran.returncode == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "claim.yaml").write_text(GOOD)
    both = fettle(str(tmp_path), "--crds", str(empty))
    assert (both.returncode, f"{empty}: no file in it ends in" in both.stderr) == (2, True)


def test_a_file_without_a_kind_is_a_problem_if_it_is_named(tmp_path: Path) -> None:
    """A Helm chart's values, or what pre-commit passes on beside manifests, are none."""
    values = tmp_path / "values.yaml"
    values.write_text("gpus: 8\n")
    ran = fettle(str(values))
    assert "values.yaml: line 1: it has no kind, so it is not checked" in ran.stderr
    assert ran.returncode == 2
    assert fettle("-", stdin=f"{GOOD}---\nspec: {{}}\n").returncode == 2
    assert fettle(str(values), "--skip-others").returncode == 0
    (tmp_path / "claim.yaml").write_text(GOOD)
    assert fettle(str(tmp_path)).returncode == 0


def test_files_that_cannot_be_read_do_not_hide_what_is_in_others(folder: Path) -> None:
    (folder / "a.yaml").write_text("a: }")
    (folder / "b.yaml").write_text("b: [")
    for output in ("text", "json", "sarif", "github"):
        ran = fettle(str(folder), "--output", output)
        assert (ran.returncode, "FTL010" in ran.stdout) == (2, True), ran.stdout
        assert "a.yaml: line 1: invalid YAML" in ran.stderr
        assert "b.yaml: line " in ran.stderr


def test_templates_of_a_helm_chart_are_skipped_with_one_line(tmp_path: Path) -> None:
    templates = tmp_path / "chart" / "templates" / "gpu"
    templates.mkdir(parents=True)
    (tmp_path / "chart" / "Chart.yaml").write_text("apiVersion: v2\nname: chart\n")
    (templates / "a.yaml").write_text("{{- if .Values.gpu }}\n")
    (templates / "b.yaml").write_text("kind: {{ .Values.kind }}\n")
    (tmp_path / "claim.yaml").write_text(CLAIM)
    ran = fettle(str(tmp_path), str(templates / "a.yaml"))
    assert (ran.returncode, "FTL010" in ran.stdout) == (1, True), ran.stderr
    chart = tmp_path / "chart"
    assert f"{chart}: 2 Helm chart templates are skipped" in ran.stderr
    assert f"helm template {chart} | fettle lint -" in ran.stderr
    within = fettle("a.yaml", cwd=templates)
    assert (within.returncode, "../..: 1 Helm chart templates" in within.stderr) == (2, True)


def test_a_template_without_a_chart_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("{{- if .Values.gpu }}\n")
    ran = fettle(str(tmp_path))
    assert (ran.returncode, "it looks like a template" in ran.stderr) == (2, True), ran.stderr


def test_a_link_that_leads_to_itself_is_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    ran = fettle(str(loop), "-", stdin=CLAIM)
    assert (ran.returncode, "FTL010" in ran.stdout) == (2, True), ran.stderr
    assert "loop.yaml: Too many levels of symbolic links" in ran.stderr


def test_a_file_given_twice_is_read_once(folder: Path) -> None:
    found = findings(str(folder), str(folder / "claim.yaml"), f"{folder}/../{folder.name}")
    assert [f["rule"] for f in found] == ["FTL010", "FTL035"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a\n- b\n", "<stdin>: line 1: a list"),
        ("hello\n", "<stdin>: line 1: 'hello'"),
        ("{apiVersion: v1, kind: List, items: 5}\n", "<stdin>: line 1: a List whose items are no"),
        ("{apiVersion: v1, kind: List, items: [5]}\n", "<stdin>: line 1: 5"),
    ],
)
def test_documents_that_are_no_objects_are_skipped_with_a_note(text: str, says: str) -> None:
    ran = fettle("-", stdin=f"{text}---\n{GOOD}")
    assert ran.returncode == 0
    assert f"skipped, since it is not a Kubernetes object: {says}" in ran.stderr


def test_an_alias_bomb_is_refused() -> None:
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    bomb = "\n".join(["a0: &a0 lollollollol", *levels, "kind: Pod"])
    ran = fettle("-", stdin=bomb)
    assert (ran.returncode, "aliases" in ran.stderr) == (2, True), ran.stderr


def test_a_huge_file_is_refused_by_its_size(tmp_path: Path) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(LARGEST_BYTES * 8)
    ran = fettle(str(huge))
    assert (ran.returncode, "larger than" in ran.stderr) == (2, True), ran.stderr


RULES = """\
# what our own monitors say
conditions:
  - name: burn-in
    type: GpuBurnIn
    family: memory
    weight: 0.5
    source: our burn-in job
"""


def test_a_rules_file_is_checked_and_each_mistake_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    ran = fettle(str(file))
    assert ran.returncode == 1
    assert f"{file}:3: Deny FTL110 invalid-rules-file: row conditions/burn-in" in ran.stdout
    assert "conditions[0]: faulty is missing" in ran.stdout
    assert "fix: say which status means a fault" in ran.stdout
    assert fettle("-", stdin=RULES).returncode == 1
    (found,) = findings(str(file))
    assert (found["rule"], found["line"], found["name"]) == ("FTL110", 3, "burn-in")
    file.write_text(f"{RULES}    faulty: true\n")
    assert fettle(str(file)).returncode == 0
    assert fettle(str(file), "--skip-others").returncode == 0


def test_a_row_of_ones_own_says_which_shipped_row_it_counts_instead_of(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(f"{RULES.replace('GpuBurnIn', 'GpuMemWatch')}    faulty: true\n")
    ran = fettle(str(file))
    assert ran.returncode == 0
    said = "conditions, row 'burn-in' counts instead of shipped 'nvsentinel-mem'"
    assert f"fettle: {file}: {said}" in ran.stderr


def test_a_query_that_makes_every_series_a_fault_or_names_no_device_is_a_mistake(
    tmp_path: Path,
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "metrics:\n"
        "  - {name: all, exporter: dcgm, family: thermal, weight: 0.5, source: us,\n"
        "     query: max by ($device) (DCGM_FI_DEV_GPU_TEMP) >= bool 90}\n"
        "  - {name: none, exporter: dcgm, family: thermal, weight: 0.5, source: us,\n"
        "     query: max by (namespace) (DCGM_FI_DEV_GPU_TEMP) > 90}\n"
    )
    ran = fettle(str(file))
    assert (ran.returncode, ran.stdout.count("FTL110")) == (1, 2)
    assert "row metrics/all" in ran.stdout
    assert "it has no threshold" in ran.stdout
    assert "row metrics/none" in ran.stdout
    assert "keep them with `by ($device)`" in ran.stdout


def test_in_a_folder_only_what_is_nothing_else_is_a_rules_file(folder: Path) -> None:
    (folder / "rules.yaml").write_text(RULES)
    (folder / "values.yaml").write_text("labels: {app: x}\ntaints: []\nreplicas: 2\n")
    ran = fettle(str(folder))
    assert ran.stdout.count("FTL110") == 1
    assert "values.yaml" not in ran.stdout + ran.stderr


def test_the_level_of_a_wrong_rules_file_can_be_set(tmp_path: Path) -> None:
    settings, file = tmp_path / "settings.yaml", tmp_path / "rules.yaml"
    file.write_text(RULES)
    for level, code, said in (("Warn", 0, "Warn FTL110"), ("Off", 0, "")):
        settings.write_text(f"lint: {{rules: {{FTL110: {level}}}}}\n")
        ran = fettle(str(file), "--settings", str(settings))
        assert (ran.returncode, said in ran.stdout) == (code, True), ran.stderr
