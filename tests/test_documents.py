"""README and docs: what they name is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/**/README.md")])
_FOLDERS = "fettle|extender|webhook|certs|deploy|docs|tests"
_FILE = re.compile(rf"`((?:{_FOLDERS})/[\w./*-]*)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            anchors = {_anchor(heading) for heading in _HEADING.findall(target.read_text())}
            assert anchor in anchors, f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = set(_FILE.findall(page.read_text()))
    assert [path for path in sorted(named) if not any(ROOT.glob(path.rstrip("/")))] == []


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


def test_each_source_names_tests_that_show_its_bound() -> None:
    table = (ROOT / "docs/sources.md").read_text()
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| ")][2:]
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(rows) > 10
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row[-2])
        assert names, f"no test shows the bound of {row[1].strip()}"
        assert [name for name in names if f"def {name}(" not in tests] == []


def test_every_metric_is_in_the_table_and_no_other() -> None:
    code = "".join(
        file.read_text()
        for package in ("fettle", "extender", "webhook", "certs")
        for file in (ROOT / package).rglob("*.py")
    )
    exported = {name.removesuffix("_total") for name in re.findall(r'"(fettle_[a-z_]+)"', code)}
    rows = re.findall(r"^\| (`fettle_.*?) \|", (ROOT / "docs/operating.md").read_text(), re.M)
    told = {
        name.removesuffix("_total")
        for row in rows
        for name in re.findall(r"`(fettle_[a-z_]+)`", row)
    }
    assert told == exported
