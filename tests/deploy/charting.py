"""Helm, built with Go as the control plane is, and what it makes of deploy/chart.
`python -m tests.deploy.charting` prints where Helm is."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import building, shipped

CHART = shipped.DEPLOY / "chart"
NAMESPACE = "fettle-system"
MODULE = Path(__file__).parent / "helm"
UNSCHEDULED = [
    *("hourly", "* * * *", "60 * * * *", "1 24 * * *", "1 1 0 * *", "1 1 1 13 *", "1 1 1 1 7"),
    *("*/0 * * * *", "17 * * * * *", "@sometimes", "TZ=UTC 1 1 1 1 1"),
]
SCHEDULED = [
    *("17 * * * *", "*/15 0-6,20-23/2 1 jan-MAR,6 MON-fri", "05 ? * * 0", "5/10 * * * *"),
    *("@daily", "@every 1h30m"),
]
"""What the API server takes as the schedule of a CronJob, and what not."""
SKIPPED = f"tests of the chart SKIPPED: {building.GO_ABSENT}"
_COMMAND = "helm.sh/helm/v4/cmd/helm"


class HelmFailed(RuntimeError):
    """What Helm said."""


def cached() -> Path:
    """Where the Helm of these modules is, or would be."""
    sums = hashlib.sha256((MODULE / "go.sum").read_bytes()).hexdigest()[:16]
    return building.cache_folder() / "helm" / sums / "helm"


def binary() -> Path | None:
    """Helm, built if need be; None when there is none and no Go to build it."""
    if cached().exists():
        return cached()
    return build() if shutil.which("go") else None


def build() -> Path:
    return building.build_once(cached(), MODULE, "-ldflags", "-s -w", _COMMAND)


def run(
    *arguments: str,
    given: Mapping[str, Any] | None = None,
    home: Path | None = None,
    timeout_s: float = 60,
) -> str:
    """What Helm prints. `given` are values; in `home` it may keep what it has looked up."""
    command = [str(build()), *arguments, *(["--values", "-"] if given is not None else [])]
    stdin = None if given is None else yaml.safe_dump(dict(given))
    env = {**os.environ, "HOME": str(home)} if home else None
    done = subprocess.run(
        command, input=stdin, env=env, capture_output=True, text=True, timeout=timeout_s
    )
    if done.returncode != 0:
        raise HelmFailed(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def rendered(given: Mapping[str, Any]) -> str:
    """All objects, as text with the comments of the templates."""
    return _rendered(json.dumps(given))


@cache
def _rendered(given: str) -> str:
    return run("template", "fettle", str(CHART), "-n", NAMESPACE, given=json.loads(given))


def objects(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [one for one in yaml.load_all(rendered(given), Loader=yaml.CSafeLoader) if one]


def main() -> int:
    try:
        print(build())
    except building.BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
