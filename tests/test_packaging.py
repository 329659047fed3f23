"""The wheel, installed into a clean environment, works from there."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "fettle" / "browse" / "page"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = folder.glob("fettle_scheduler-*.whl")
    return built


@pytest.fixture(autouse=True)
def no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the sources would be found instead of what is installed."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.mark.long
def test_it_holds_the_data_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "fettle/health/signals/rules/conditions.yaml" in names
    assert "fettle/cli/demo/snapshot/nodes.yaml" in names
    page = {f"fettle/browse/{file.relative_to(PAGE.parent)}" for file in PAGE.iterdir()}
    assert "fettle/browse/page/index.html" in page
    assert page <= {*names}
    assert not [n for n in names if n.startswith("tests/")]


@pytest.mark.long
def test_it_runs_from_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "clean"
    # What it depends on is taken from here: the versions of the lock, without a second download.
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    (site,) = environment.glob("lib/python*/site-packages")
    install = [
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([sys.executable, *install, str(wheel)], check=True, cwd=tmp_path)
    own = next(p for p in sys.path if p.endswith("site-packages"))
    (site / "dependencies.pth").write_text(f"{own}\n")
    for command in ("fettle", "kubectl-fettle"):
        told = subprocess.run(
            [environment / "bin" / command, "--version"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        assert told.stdout.startswith("fettle, version ")
    where = subprocess.run(
        [python, "-c", "import fettle, extender, webhook, certs; print(fettle.__file__)"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(environment))
    pod = tmp_path / "pod.yaml"
    pod.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}\n")
    subprocess.run(
        [environment / "bin" / "fettle", "explain", "sent", pod], cwd=tmp_path, check=True
    )
    demo = subprocess.run(
        [environment / "bin" / "fettle", "demo"], cwd=tmp_path, capture_output=True, text=True
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
