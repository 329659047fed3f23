"""The lines that docs/linting.md gives for what Helm, Kustomize, Argo and Flux make, as they stand
there: run by a shell, with the real programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "linting.md").read_text(encoding="utf-8")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  containers:
  - {name: main, image: train, resources: {LIMITS: {nvidia.com/gpu: 1}}}
"""
CHART = {
    "chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 0.1.0\n",
    "chart/templates/pod.yaml": POD.replace("LIMITS", '"{{ .Values.field }}"'),
    "chart/values.yaml": "field: limits\n",
    "values-prod.yaml": "field: limmits\n",
}
KUSTOMIZED = {
    "base/kustomization.yaml": "resources: [pod.yaml]\n",
    "base/pod.yaml": POD.replace("LIMITS", "limits"),
    "overlays/prod/kustomization.yaml": "resources: [../../base]\npatches: [{path: patch.yaml}]\n",
    "overlays/prod/patch.yaml": POD.replace("LIMITS", "limmits"),
}
# As argo-cd's docs/operator-manual/application.yaml and Flux's docs for helm-controller have them.
APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: guestbook, namespace: argocd}
spec:
  project: default
  source:
    repoURL: https://git.example.com/apps.git
    targetRevision: HEAD
    path: guestbook
  destination: {server: https://kubernetes.default.svc, namespace: guestbook}
"""
RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: podinfo, namespace: flux-system}
spec:
  interval: 10m
  chart: {spec: {chart: podinfo, sourceRef: {kind: HelmRepository, name: podinfo}}}
  values: {replicaCount: 2}
"""
FAULTY = POD.replace("LIMITS", "limmits")
SOUND = POD.replace("LIMITS", "limits")


def _line(beginning: str) -> str:
    """The one line of the page's table that begins so."""
    cells = [cell.strip() for row in PAGE.splitlines() for cell in row.split(" | ")]
    commands = {cell.strip("`").replace("\\|", "|") for cell in cells if cell.startswith("`")}
    (found,) = [command for command in commands if command.startswith(beginning)]
    return found


def _run(line: str, folder: Path, files: dict[str, str], programs: str = "") -> tuple[int, str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    path = os.pathsep.join(filter(None, (str(Path(sys.executable).parent), programs)))
    ran = subprocess.run(
        ["/bin/sh", "-c", line],
        env={**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.helm
def test_what_helm_makes_is_linted(tmp_path: Path, helm: Path) -> None:
    line = _line("helm template chart/")
    code, said = _run(line, tmp_path, CHART, str(helm.parent))
    assert (code, "FTL201" in said) == (1, True), said
    code, said = _run(line, tmp_path, {"values-prod.yaml": "a: 1\n"}, str(helm.parent))
    assert code == 0, said
    code, said = _run(line, tmp_path, {"chart/Chart.yaml": "name: [\n"}, str(helm.parent))
    assert (code, "no Kubernetes object in it" in said) == (2, True), said


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_what_kustomize_makes_is_linted(tmp_path: Path) -> None:
    line = _line("kubectl kustomize")
    code, said = _run(line, tmp_path, KUSTOMIZED)
    assert (code, "FTL201" in said) == (1, True), said
    code, said = _run(line, tmp_path, {"overlays/prod/patch.yaml": SOUND})
    assert code == 0, said


@pytest.mark.helm
@pytest.mark.skipif(shutil.which("kustomize") is None, reason="there is no kustomize")
def test_what_kustomize_makes_of_a_chart_is_linted(tmp_path: Path, helm: Path) -> None:
    charts = {f"overlays/prod/charts/{name}": text for name, text in CHART.items()}
    file = "overlays/prod/kustomization.yaml"
    for field, expected in (("limmits", 1), ("limits", 0)):
        chart = f"{{name: chart, releaseName: r, valuesInline: {{field: {field}}}}}"
        made = {**charts, file: f"helmCharts: [{chart}]\n"}
        code, said = _run(_line("kustomize build"), tmp_path, made, str(helm.parent))
        assert (code, "FTL201" in said) == (expected, bool(expected)), said


@pytest.mark.parametrize(
    ("line", "folder", "object_"),
    [
        ("fettle lint apps/", "apps", APPLICATION),
        ("fettle lint clusters/", "clusters/prod", RELEASE),
    ],
)
def test_folders_of_argo_and_flux_are_linted_as_they_are(
    line: str, folder: str, object_: str, tmp_path: Path
) -> None:
    code, said = _run(_line(line), tmp_path, {f"{folder}/a.yaml": object_})
    assert (code, "0 to deny, 0 to warn" in said) == (0, True), said
    code, said = _run(_line(line), tmp_path, {f"{folder}/b/pod.yaml": FAULTY})
    assert (code, "FTL201" in said) == (1, True), said


def test_examples_of_the_page_are_yaml_and_name_the_hook_that_is_shipped() -> None:
    blocks = [part.partition("\n```")[0] for part in PAGE.split("```yaml\n")[1:]]
    read = [yaml.safe_load(block) for block in blocks]
    (configured,) = [one for one in read if "repos" in one]
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert configured["repos"][0]["hooks"][0]["id"] == hook["id"]
    (workflow,) = [one for one in read if "jobs" in one]
    steps = [step.get("run", "") for step in workflow["jobs"]["lint"]["steps"]]
    assert "fettle lint --output github manifests/" in steps
