"""README and docs: what they name is there."""

import doctest
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from tests import module_index

ROOT = Path(__file__).parent.parent
_WHERE = ("*.md", "docs/**/*.md", ".github/**/*.md", "tests/**/README.md")
PAGES = sorted(page for where in _WHERE for page in ROOT.glob(where))
_FOLDERS = "fettle|extender|webhook|certs|deploy|docs|tests"
_FILE = re.compile(rf"`((?:{_FOLDERS})/[\w./*-]*)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_every_link_leads_to_a_file_and_a_heading_that_are_there() -> None:
    for page in PAGES:
        for link in _LINK.findall(page.read_text()):
            if link.startswith(("http://", "https://")):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page} links to {link}"
            if anchor:
                anchors = {_anchor(heading) for heading in _HEADING.findall(target.read_text())}
                assert anchor in anchors, f"{page} links to {link}"


def test_every_file_that_is_named_is_there() -> None:
    named = {path: page for page in PAGES for path in _FILE.findall(page.read_text())}
    assert {path: p for path, p in named.items() if not any(ROOT.glob(path.rstrip("/")))} == {}


@pytest.mark.parametrize(("page", "words"), [("README.md", 1000), ("ARCHITECTURE.md", 1400)])
def test_the_first_pages_stay_short(page: str, words: int) -> None:
    text = (ROOT / page).read_text()
    assert len(re.findall(r"\S*\w\S*", text)) <= words
    assert page != "README.md" or text.count("\n") <= 110


def test_the_workflow_runs_what_everybody_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    *others, last = workflow["jobs"]["run"]["steps"]
    assert last == {"run": ".ci/run"}
    for files in (step["with"] for step in others if "go-version-file" in step["with"]):
        assert (ROOT / files["go-version-file"]).exists()


@pytest.mark.long
def test_the_readme_shows_what_the_demo_prints() -> None:
    (shown,) = re.findall(r"```\n(NODE .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    demo = subprocess.run(
        [sys.executable, "-m", "fettle", "demo"], capture_output=True, text=True, timeout=120
    )
    printed = {line.rstrip() for line in demo.stdout.splitlines()}
    assert [line for line in shown.splitlines() if line not in printed] == []


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "page",
    ["docs/managed-clusters.md", "docs/sources.md", "docs/scores.md", "docs/threat-model.md"],
)
def test_each_row_of_a_table_that_is_shown_by_tests_names_some(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.endswith("| shown by |"))
    rows = list(takewhile(lambda line: line.startswith("|"), lines[first + 2 :]))
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert rows
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row)
        assert names, f"no test shows {row}"
        assert [name for name in names if f"def {name}(" not in tests] == []


def test_every_decision_is_in_the_list_by_its_title_and_no_number_is_left_out() -> None:
    decisions = ROOT / "docs" / "decisions"
    rows = re.findall(r"^\| (.*) \|$", (decisions / "README.md").read_text(), re.M)[1:]
    assert [row.strip("[")[:4] for row in rows] == [f"{n:04}" for n in range(1, len(rows) + 1)]
    for file in decisions.glob("0*.md"):
        number, _, title = file.read_text().partition("\n")[0].removeprefix("# ").partition(": ")
        assert rows[int(number) - 1].startswith(f"[{number}]({file.name}) | {title}")


def test_a_module_that_is_in_no_row_of_where_to_change_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    text = '"""When to renew. In days."""\nEARLY_S = -2 * 60.0\nNAMES = ("a",)'
    (tmp_path / "certs" / "renewing.py").write_text(text)
    (tmp_path / "certs" / "__init__.py").write_text("")
    wanted = module_index.listed(tmp_path)
    assert "| `certs/renewing.py` | When to renew. | `EARLY_S` |" in wanted.splitlines()
    page = "<!-- modules -->\n{}<!-- /modules -->"
    assert "certs/renewing.py" in module_index.complaint(page.format(""), wanted)
    assert module_index.complaint(page.format(wanted), wanted) == ""


def test_what_where_to_change_names_in_a_file_is_in_it() -> None:
    page = (ROOT / "docs" / "where-to-change.md").read_text().partition("## Every module")[0]
    several = r"((?:`\.?\w+(?:\(\))?`(?:, | and | or )?)+)"
    found = re.findall(rf"{several} (?:in|of) `((?:{_FOLDERS})/[\w/.-]+\.\w+)`", page)
    named = [(n, file) for names, file in found for n in re.findall(r"`\.?(\w+)", names)]
    assert len(named) > 60
    kinds = r"class |(?:async )?def |(?:export )?(?:function|const) |type "
    defines = rf"(?m)^\s*(?:{kinds})?{{0}}\b *[=:(\[{{{{]|\bname: {{0}}\b"
    wrong = [
        (name, file)
        for name, file in named
        if not re.search(defines.format(name), (ROOT / file).read_text())
    ]
    assert wrong == []


def test_each_common_change_names_code_and_what_goes_with_it() -> None:
    page = (ROOT / "docs" / "where-to-change.md").read_text()
    table = page.partition("## Common changes")[2].partition("## By change")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    assert len(rows) > 15
    for change, *cells in rows[1:]:
        assert len(cells) == 2, change
        assert all(re.search(r"`[\w/.-]+/", cell) for cell in cells), change


def _with_examples() -> list[str]:
    files = (f for package in module_index.PACKAGES for f in (ROOT / package).rglob("*.py"))
    return sorted(
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for file in files
        if ">>> " in file.read_text()
    )


@pytest.mark.parametrize("module", _with_examples())
def test_examples_in_docstrings_give_what_they_say(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module), raise_on_error=False)
    assert results.attempted
    assert not results.failed, "pytest shows above what was expected and got"


def test_a_module_without_a_docstring_is_named(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "renewing.py").write_text("EARLY_S = 60.0")
    with pytest.raises(ValueError, match=r"certs/renewing\.py has no docstring"):
        module_index.listed(tmp_path)


def test_every_metric_is_in_the_table_and_no_other() -> None:
    code = "".join(
        file.read_text()
        for package in ("fettle", "extender", "webhook", "certs")
        for file in (ROOT / package).rglob("*.py")
    )
    exported = {name.removesuffix("_total") for name in re.findall(r'"(fettle_[a-z_]+)"', code)}
    rows = re.findall(r"^\| (`fettle_.*?) \|", (ROOT / "docs/monitoring.md").read_text(), re.M)
    told = {
        name.removesuffix("_total")
        for row in rows
        for name in re.findall(r"`(fettle_[a-z_]+)`", row)
    }
    assert told == exported


USERS_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FORMER = {"health.restlessSeconds"}
"""Told of in docs/upgrading.md alone."""


def _listed(page: str, row: str) -> set[str]:
    return set(re.findall(row, (ROOT / "docs" / page).read_text(), re.M))


@pytest.mark.parametrize("page", USERS_PAGES, ids=lambda page: str(page.name))
def test_each_setting_field_metric_rule_and_flag_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    fields = _listed("settings.md", r"^\| `([^`]+)`") | _listed(
        "policy-fields.md", r"^\| `([^`]+)`"
    )
    sections = {name.partition(".")[0] for name in fields if "." in name}
    within = {part for name in fields for part in (name, *_parents(name))}
    named = re.findall(r"`([a-z][A-Za-z]*\.[A-Za-z.]+)`", text)
    no_files = {name for name in named if not name.endswith((".md", ".yaml", ".crt", ".key"))}
    ours = {name for name in no_files if name.partition(".")[0] in sections} - {
        "scheduler.extraArgs"
    }
    assert ours - within - _FORMER == set()
    metrics = _listed("monitoring.md", r"^\| `(fettle_\w+)` \| .* \|$")
    ends = r"(_bucket|_sum|_count|_total|_)?$"
    bare = {re.sub(ends, "", name) for name in metrics} | {"fettle_prometheus", "fettle_steward"}
    assert {re.sub(ends, "", name) for name in re.findall(r"\bfettle_[a-z_]+", text)} <= bare
    assert set(re.findall(r"FTL\d{3}", text)) <= _listed("rules.md", r"\*\*(FTL\d{3})\*\*")
    flags = set(re.findall(r"`fettle [^`\n]*?(--[a-z-]+)", text))
    assert flags <= _listed("commands.md", r"(--[a-z-]+)")


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0].removesuffix("[]")
        yield name
