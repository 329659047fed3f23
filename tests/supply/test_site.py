"""The site of docs/: every page is in its navigation, and no link in it leads nowhere."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.supply.site import anchor, inside

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TOOLS = ROOT / "build" / "site-tools" / "bin" / "python"


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r": ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert sorted(named) == sorted(page for page in pages if not page.startswith("decisions/0"))


def test_headings_have_the_anchors_that_github_makes() -> None:
    assert anchor("What is renewed, and what is not?") == "what-is-renewed-and-what-is-not"


def test_a_link_out_of_the_docs_becomes_the_path() -> None:
    page = DOCS / "holds.md"
    assert inside("[limits.yaml](../deploy/rbac/limits.yaml)", page) == "`deploy/rbac/limits.yaml`"
    assert inside("[off](../README.md#x) here", page) == "off (`README.md`) here"
    assert inside("[scores](scores.md#a)", page) == "[scores](scores.md#a)"
    assert inside("[gone](../gone.md)", page) == "[gone](../gone.md)"


def test_the_site_is_built_and_every_link_in_it_leads_somewhere(tmp_path: Path) -> None:
    if not TOOLS.exists():
        pytest.skip("the generator is not installed: make site")
    done = subprocess.run(
        [TOOLS, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "<title>Troubleshooting" in (tmp_path / "troubleshooting.html").read_text()
