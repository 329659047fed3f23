"""`fettle lint` as users call it, and manifests for it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def fettle(*arguments: str, stdin: str = "", cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
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
