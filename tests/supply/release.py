"""`make release VERSION=0.2.0`: everything that has a version gets this one, and the wheel, the
chart and the notes are built into build/release/. Nothing is published. All is checked before
anything is written.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tests.controlplane import building
from tests.deploy import charting

ROOT = Path(__file__).parents[2]
IMAGE = "fettle-scheduler"
_VERSION = re.compile(r"(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})\.(0|[1-9][0-9]{0,4})")
_WHERE = {
    "pyproject.toml": r'^version = "({})"$',
    "fettle/__init__.py": r'^__version__ = "({})"$',
    "deploy/chart/Chart.yaml": r"^(?:version|appVersion): ({})$",
}
"""What says the version, by file; the image's tag is elsewhere, too."""
_UNRELEASED = "## Unreleased\n"


class NoRelease(ValueError):
    """Why there is none, and what to do."""


def release(root: Path, version: str, today: str) -> Path:
    """The folder with what was built; raises NoRelease before anything is written."""
    old = _read(root, "fettle/__init__.py", _WHERE["fettle/__init__.py"])
    _check(version, old)
    changelog, notes = _released((root / "CHANGELOG.md").read_text(), version, today)
    changed = {root / "CHANGELOG.md": changelog}
    for name, pattern in _WHERE.items():
        _read(root, name, pattern)
        found = re.compile(pattern.format(re.escape(old)), re.MULTILINE)
        changed[root / name] = found.sub(_with(version), (root / name).read_text())
    tag = re.compile(rf"(?<={IMAGE}:){re.escape(old)}(?![0-9.]*[0-9])")
    for file in _with_tags(root):
        changed[file] = tag.sub(version, changed.get(file, file.read_text()))
    for file, text in changed.items():
        file.write_text(text)
    made = root / "build" / "release"
    made.mkdir(parents=True, exist_ok=True)
    (made / "notes.md").write_text(notes)
    _build(root, made)
    return made


def _check(version: str, old: str) -> None:
    if not _VERSION.fullmatch(version):
        raise NoRelease(f"{version!r} is no version: write MAJOR.MINOR.PATCH, such as 0.2.0")
    if _parts(version) < _parts(old):
        raise NoRelease(f"{version} is older than {old}, which is the version here")


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _released(changelog: str, version: str, today: str) -> tuple[str, str]:
    """The changelog with a section of this version in place of what is not released, which is empty
    then; and that section."""
    before, found, after = changelog.partition(_UNRELEASED)
    if not found:
        raise NoRelease("CHANGELOG.md has no section `## Unreleased`: begin one")
    section, next_, rest = after.partition("\n## ")
    if f"\n## {version} " in f"\n{next_}{rest}":
        raise NoRelease(
            f"CHANGELOG.md has {version} already, and nobody replaces what is published"
        )
    notes = section.strip()
    if not notes:
        raise NoRelease("nothing is under `## Unreleased` in CHANGELOG.md: what do users notice?")
    headed = f"## {version} ({today})\n\n{notes}\n"
    return f"{before}{_UNRELEASED}\n{headed}{next_}{rest}", f"{notes}\n"


def _read(root: Path, name: str, pattern: str) -> str:
    """The one version that a file says."""
    pattern = pattern.format(_VERSION.pattern.replace("(", "(?:"))
    found = {*re.findall(pattern, (root / name).read_text(), re.MULTILINE)}
    if len(found) != 1:
        raise NoRelease(f"{name} says {len(found)} versions, not one: look for {pattern}")
    return str(found.pop())


def _with(version: str) -> Callable[[re.Match[str]], str]:
    return lambda found: found[0].replace(found[1], version)


def _with_tags(root: Path) -> Iterator[Path]:
    """Files that may name the image."""
    yield from (root / "README.md", root / "Dockerfile")
    yield from sorted((root / "docs").rglob("*.md"))
    yield from sorted((root / "deploy").rglob("*.yaml"))


def _build(root: Path, made: Path) -> None:
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)]
    done = subprocess.run(wheel, cwd=root, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise NoRelease(f"the wheel is not built: {done.stderr.strip() or done.stdout.strip()}")
    charting.run("package", str(root / "deploy" / "chart"), "--destination", str(made))


def main(arguments: list[str]) -> int:
    try:
        (version,) = arguments or [""]
        made = release(ROOT, version, f"{datetime.now(UTC):%Y-%m-%d}")
    except (NoRelease, charting.HelmFailed, building.BuildFailed) as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{made.relative_to(ROOT)} has {', '.join(sorted(file.name for file in made.iterdir()))}\n"
        f"Look at `git diff`, commit, then: git tag v{version}\n"
        f"The image: docker build -t {IMAGE}:{version} ."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
