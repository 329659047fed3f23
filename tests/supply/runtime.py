"""The packages that Fettle needs at run time, as installed here, with their hashes of the lock."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]
OURS = "fettle-scheduler"
_LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)((?:.*\\\n)(?:.*--hash=.*\n)+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Locked(NamedTuple):
    version: str
    sha256: Sequence[str]
    """Of each file of this version that may be installed."""


class Package(NamedTuple):
    name: str
    installed: Distribution
    sha256: Sequence[str]
    needs: Sequence[str]
    """Names of other packages of this list."""


class LockMismatch(Exception):
    """What is installed is not what the lock says."""


def read_lock(text: str) -> dict[str, Locked]:
    """By name."""
    return {
        canonicalize_name(name): Locked(version, _HASH.findall(rest))
        for name, version, rest in _LOCKED.findall(text)
    }


def runtime_packages(lock: Mapping[str, Locked]) -> list[Package]:
    """By name, without Fettle itself; raises LockMismatch."""
    found: dict[str, Package] = {}
    waiting = [*_needs(distribution(OURS))]
    while waiting:
        if (name := waiting.pop()) not in found:
            found[name] = _package(name, lock)
            waiting += found[name].needs
    return [found[name] for name in sorted(found)]


def our_needs() -> list[str]:
    """The packages that Fettle names itself."""
    return [*_needs(distribution(OURS))]


def _package(name: str, lock: Mapping[str, Locked]) -> Package:
    locked = lock.get(name)
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        raise LockMismatch(f"{name} is not installed: delete .venv and run make again") from None
    if locked is None or locked.version != installed.version:
        says = f"has {locked.version}" if locked else "does not have it"
        raise LockMismatch(
            f"{name} {installed.version} is installed, but requirements.lock {says}: "
            "run make lock, or delete .venv"
        )
    return Package(name, installed, locked.sha256, [*_needs(installed)])


def _needs(installed: Distribution) -> Iterator[str]:
    """Without extras, which nothing of ours asks for."""
    for text in installed.requires or ():
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield canonicalize_name(needed.name)
