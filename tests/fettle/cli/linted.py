"""`fettle lint` as users call it, and manifests for it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog
from click.testing import CliRunner

from fettle import logs
from fettle.cli.commands import main

ROOT = Path(__file__).parents[3]
CLAIM = """\
# comments and blank lines count

apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: big
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.nvidia.com
        count: 40
"""
LIST = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: worker, namespace: team}
  spec:
    containers:
    - name: main
      image: train
      resources:
        claims:
        - {name: gpus, request: gpux}
    resourceClaims:
    - {name: gpus, resourceClaimTemplateName: gpus}
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaimTemplate
  metadata: {name: gpus, namespace: team}
  spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"""
GOOD = CLAIM.replace("40", "4")


@contextmanager
def logging_restored() -> Iterator[None]:
    """Commands configure logging for their process, which here has other tests to run."""
    configuration = structlog.get_config()
    configured = logs.configure

    def configure(level: str = "info") -> None:
        """Loggers that remember it would keep it for the next test."""
        configured(level)
        structlog.configure(cache_logger_on_first_use=False)

    handler = signal.getsignal(signal.SIGTERM)
    try:
        with patch.object(logs, "configure", configure):
            yield
    finally:
        structlog.configure(**configuration)
        signal.signal(signal.SIGTERM, handler)


def called(*arguments: str, stdin: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """`fettle` in this process, which takes a tenth of the time that one of its own does."""
    with logging_restored(), chdir(cwd):
        ended = CliRunner().invoke(main, arguments, input=stdin, prog_name="fettle")
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return subprocess.CompletedProcess(arguments, ended.exit_code, ended.stdout, ended.stderr)


def fettle(*arguments: str, stdin: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return called("lint", *arguments, stdin=stdin, cwd=cwd)


def process(*arguments: str, stdin: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own, as users call it."""
    return subprocess.run(
        [sys.executable, "-m", "fettle", "lint", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )


def findings(*arguments: str, stdin: str = "") -> list[dict[str, Any]]:
    ran = fettle(*arguments, "--output", "json", stdin=stdin)
    assert ran.returncode in (0, 1), ran.stderr
    found: list[dict[str, Any]] = json.loads(ran.stdout)
    return found


def fill(folder: Path) -> Path:
    """A claim with a mistake, a List with another one, and the values of a chart."""
    (folder / "claim.yaml").write_text(CLAIM)
    (folder / "list.yaml").write_text(LIST)
    (folder / "values.yaml").write_text("replicas: 3\n")
    return folder
