"""`make release` in a copy of this tree: one number, wherever there is a version."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.deploy import charting
from tests.deploy.conftest import helm
from tests.supply.release import ROOT, NoRelease, release

__all__ = ["helm"]

pytestmark = [pytest.mark.helm, pytest.mark.usefixtures("helm")]

COPIED = ("pyproject.toml", "README.md", "LICENSE", "Dockerfile", "CHANGELOG.md")
FOLDERS = ("fettle", "extender", "webhook", "certs", "deploy", "docs")
NEW = "7.8.9"
MADE = Path("build", "release")


CHANGELOG = "# Changelog\n\n## Unreleased\n\n- A thing.\n\n## 0.0.1 (2026-01-01)\n\n- Old.\n"


def copied(folder: Path) -> Path:
    for name in COPIED:
        shutil.copy(ROOT / name, folder / name)
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nothing but its changelog is ever changed."""
    return copied(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree that was released: this takes seconds."""
    tree = copied(tmp_path_factory.mktemp("released"))
    (tree / "CHANGELOG.md").write_text(CHANGELOG)
    assert release(tree, NEW, "2027-01-02") == tree / MADE
    return tree


def test_everything_that_has_a_version_gets_the_one_that_was_given(released: Path) -> None:
    old = re.search(r'__version__ = "(.*)"', (ROOT / "fettle" / "__init__.py").read_text())
    assert old is not None
    tree, made = released, released / MADE

    assert sorted(file.name for file in made.iterdir()) == [
        f"fettle-{NEW}.tgz",
        f"fettle_scheduler-{NEW}-py3-none-any.whl",
        "notes.md",
    ]
    with zipfile.ZipFile(made / f"fettle_scheduler-{NEW}-py3-none-any.whl") as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        assert f"\nVersion: {NEW}\n" in wheel.read(metadata).decode()
        assert f'__version__ = "{NEW}"' in wheel.read("fettle/__init__.py").decode()
    with tarfile.open(made / f"fettle-{NEW}.tgz") as chart:
        packed = chart.extractfile("fettle/Chart.yaml")
        assert packed is not None
        about = yaml.safe_load(packed.read())
    assert (about["version"], str(about["appVersion"])) == (NEW, NEW)
    rendered = charting.run("template", "fettle", str(made / f"fettle-{NEW}.tgz"))
    assert {*re.findall(r"image: (\S+)", rendered)} == {f"fettle-scheduler:{NEW}"}

    tag = f"fettle-scheduler:{old[1]}"
    files = [file for file in tree.rglob("*") if file.suffix in (".md", ".yaml", ".toml", ".py")]
    assert [file for file in files if tag in file.read_text()] == []
    shipped = (tree / "deploy" / "server" / "webhook.yaml").read_text()
    assert f"image: fettle-scheduler:{NEW}\n" in shipped


def test_the_notes_are_what_was_not_released_and_a_new_section_begins(released: Path) -> None:
    assert (released / MADE / "notes.md").read_text() == "- A thing.\n"
    assert (released / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n## Unreleased\n\n"
        f"## {NEW} (2027-01-02)\n\n- A thing.\n\n## 0.0.1 (2026-01-01)\n\n- Old.\n"
    )


@pytest.mark.parametrize(
    ("version", "changelog", "says"),
    [
        ("", "## Unreleased\n\n- A.\n", "write MAJOR.MINOR.PATCH"),
        ("v1.2.3", "## Unreleased\n\n- A.\n", "write MAJOR.MINOR.PATCH"),
        ("1.2", "## Unreleased\n\n- A.\n", "write MAJOR.MINOR.PATCH"),
        ("01.2.3", "## Unreleased\n\n- A.\n", "write MAJOR.MINOR.PATCH"),
        ("1.2.3\n", "## Unreleased\n\n- A.\n", "write MAJOR.MINOR.PATCH"),
        ("0.0.1", "## Unreleased\n\n- A.\n", "is older than"),
        (NEW, "## Unreleased\n\n## 0.0.1 (x)\n\n- Old.\n", "what do users notice?"),
        (NEW, "# Changelog\n", "has no section"),
        (NEW, f"## Unreleased\n\n- A.\n\n## {NEW} (x)\n\n- B.\n", "nobody replaces"),
    ],
)
def test_what_makes_no_release_is_said_before_anything_is_written(
    tree: Path, version: str, changelog: str, says: str
) -> None:
    (tree / "CHANGELOG.md").write_text(changelog)
    before = {file: file.read_bytes() for file in tree.rglob("*") if file.is_file()}
    with pytest.raises(NoRelease, match=re.escape(says)):
        release(tree, version, "2027-01-02")
    assert {file: file.read_bytes() for file in tree.rglob("*") if file.is_file()} == before


def test_make_says_what_is_missing() -> None:
    done = subprocess.run(
        ["make", "-C", str(ROOT), "release"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "write MAJOR.MINOR.PATCH" in done.stderr
