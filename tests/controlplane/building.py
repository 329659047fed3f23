"""Builds the control plane's one binary with Go, once, into a cache folder outside the repository
named by the hash of its sources. `python -m tests.controlplane.building` prints its path. With
`FETTLE_KUBERNETES=v1.36.4` it is of that version: one of those with modules of their own."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SOURCES = Path(__file__).parent / "go"
NEWEST = "v1.37.1"
VERSION = os.environ.get("FETTLE_KUBERNETES") or NEWEST
GO_ABSENT = "Go not found: install Go 1.26 or later (https://go.dev/dl) to build what the tests run"
SKIPPED = f"control-plane suite SKIPPED: {GO_ABSENT}"

_STAMP = "k8s.io/component-base/version"


class BuildFailed(RuntimeError):
    """Go is absent, or refused to build, or there are no modules of this version."""


def cache_folder() -> Path:
    if chosen := os.environ.get("FETTLE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fettle"


def minor(version: str = VERSION) -> int:
    """37 of v1.37.1."""
    return int(version.split(".")[1])


def modules(sources: Path = SOURCES) -> Path:
    """The version's go.mod; the sums are beside it."""
    found = sources / ("go.mod" if VERSION == NEWEST else f"{VERSION}.mod")
    if not found.exists():
        others = ", ".join(sorted(file.stem for file in sources.glob("v*.mod")))
        raise BuildFailed(
            f"FETTLE_KUBERNETES={VERSION}: there are modules for {others} and {NEWEST} only "
            f"in {sources}"
        )
    return found


def sources_hash(sources: Path = SOURCES) -> str:
    digest = hashlib.sha256()
    modules_ = modules(sources)
    for file in [modules_, modules_.with_suffix(".sum"), *sorted(sources.glob("*.go"))]:
        content = file.read_bytes()
        digest.update(f"{file.name}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def cached() -> Path:
    """Where the binary of these sources is, or would be."""
    return cache_folder() / "controlplane" / sources_hash() / "controlplane"


def binary() -> Path | None:
    """The binary, built if need be; None when there is none and no Go to build it."""
    if cached().exists():
        return cached()
    return build() if shutil.which("go") else None


def build() -> Path:
    stamp = f"-X {_STAMP}.gitVersion={VERSION} -X {_STAMP}.gitMajor=1"
    flags = f"-s -w {stamp} -X {_STAMP}.gitMinor={minor()}"
    return build_once(cached(), SOURCES, f"-modfile={modules().name}", "-ldflags", flags, ".")


def build_once(target: Path, sources: Path, *arguments: str) -> Path:
    """What `go build` with these arguments makes in the folder `sources`, if it is not there yet.
    Others who want the same wait for it."""
    go = shutil.which("go")
    if go is None:
        raise BuildFailed(GO_ABSENT)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.parent / "lock"):
        if not target.exists():
            _build_to(target, sources, [go, "build", "-trimpath", "-buildvcs=false"], arguments)
    return target


def _build_to(target: Path, sources: Path, go: list[str], arguments: Sequence[str]) -> None:
    print(f"building {target}: minutes with a cold Go cache", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="building-") as folder:
        made = Path(folder) / target.name
        command = [*go, "-o", str(made), *arguments]
        done = subprocess.run(command, cwd=sources, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise BuildFailed(f"go build failed: {done.stderr.strip()[-2000:]}")
        made.replace(target)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    try:
        found = cached() if cached().exists() else build()
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
