"""The image, built by buildah as the Dockerfile says, and run as its user on a root that nobody can
write.

Where a registry can be reached its base is the Dockerfile's; else one that debootstrap makes. It
takes minutes and root, so it is skipped unless `FETTLE_BUILD_IMAGE=1`; CI does not run it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supply.runtime import REPOSITORY

BUILT = "localhost/fettle-scheduler:tested"
BASE = "localhost/base:tested"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
READ_ONLY = """
mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t proc proc "$0/proc" &&
exec chroot --userspec=65532:65532 "$0" \
    env -i PATH=/opt/fettle/bin:/usr/bin:/bin HOME=/ PYTHONDONTWRITEBYTECODE=1 "$@"
"""

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("FETTLE_BUILD_IMAGE") != "1", reason="FETTLE_BUILD_IMAGE is not 1"
    ),
    pytest.mark.skipif(not shutil.which("buildah"), reason="buildah is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="to build without containers takes root"),
]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], cwd=REPOSITORY, capture_output=True, text=True, timeout=900
    )


class Buildah:
    """With its images in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        places = ["--root", f"{folder}/storage", "--runroot", f"{folder}/run"]
        self._command = ["buildah", *places, "--storage-driver", "vfs"]

    def __call__(self, *arguments: str | Path) -> str:
        done = run(*self._command, *arguments)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        return run(*self._command, "pull", image).returncode == 0


def base(buildah: Buildah, folder: Path) -> list[str]:
    """Arguments of a build: none where the Dockerfile's base can be pulled."""
    (line,) = (
        one
        for one in (REPOSITORY / "Dockerfile").read_text().splitlines()
        if one.startswith("ARG BASE=")
    )
    if buildah.has(line.removeprefix("ARG BASE=")):
        return []
    if not shutil.which("debootstrap"):
        pytest.skip("no registry can be reached, and debootstrap is not installed")
    root = folder / "base"
    options = ["--variant=minbase", f"--include={PACKAGES}"]
    made = run("debootstrap", *options, "bookworm", root, MIRROR)
    if made.returncode != 0:
        pytest.skip(f"no registry can be reached, nor Debian's mirror: {made.stdout[-300:]}")
    for file in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        file.unlink()  # images of Python have none
    shutil.copy(AUTHORITIES, root / AUTHORITIES.relative_to("/"))
    shutil.rmtree(root / "dev")
    container = buildah("from", "scratch")
    buildah("copy", "-q", container, root, "/")
    buildah("commit", "-q", container, BASE)
    shutil.rmtree(root)
    return ["--build-arg", f"BASE={BASE}"]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The root of a container of the built image."""
    folder = tmp_path_factory.mktemp("image")
    buildah = Buildah(folder)
    options = ["--isolation", "chroot", "--network", "host", *base(buildah, folder)]
    buildah("build", *options, "-t", BUILT, REPOSITORY)
    container = buildah("from", BUILT)
    (folder / "config").write_text(buildah("inspect", "--type", "image", BUILT))
    yield Path(buildah("mount", container))
    buildah("umount", "--all")
    shutil.rmtree(folder / "storage")


def in_it(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return run("unshare", "--mount", "--pid", "--fork", "sh", "-c", READ_ONLY, root, *command)


@pytest.mark.timeout(1200)
def test_the_built_image_runs_as_its_user_on_a_root_that_nobody_can_write(image: Path) -> None:
    assert in_it(image, "id", "-u").stdout.strip() == "65532"
    assert "Read-only file system" in in_it(image, "touch", "/opt/fettle/x").stderr
    version = in_it(image, "fettle", "--version")
    assert version.stdout.startswith("fettle, version "), version.stderr
    sent = in_it(image, "fettle", "scheduler-config")
    assert "managedResources" in sent.stdout, sent.stderr
    shipped = [*image.glob("opt/fettle/lib/python3*/site-packages/fettle/deploy/*")]
    assert {one.name for one in shipped} == {"scheduler", "webhook"}
