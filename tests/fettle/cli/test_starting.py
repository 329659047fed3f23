"""What a command loads before it answers: most of what a short command costs."""

import subprocess
import sys
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.fettle.cli.test_pipes import Answers

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  containers:
  - {name: main, image: train, resources: {limits: {nvidia.com/gpu: 1}}}
"""
CLAIM = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.nvidia.com
        selectors: [{cel: {expression: 'device.driver == "gpu.nvidia.com"'}}]
"""
CALL = """\
import sys
from fettle.cli import main
try:
    main(sys.argv[1:], prog_name="fettle")
except SystemExit as ended:
    code = ended.code
print(code, *sys.modules, file=sys.stderr)
"""
SLOW = frozenset(("aiohttp", "kubernetes", "prometheus_client", "rich", "structlog", "celpy"))
"""What takes a tenth of a second and more."""
OF_A_SERVER = frozenset(
    (
        *("fettle.client", "fettle.cluster.feeds", "fettle.cluster.inventory", "fettle.health"),
        *("fettle.observing", "fettle.scheduling", "fettle.serve"),
    )
)


def _loaded(*arguments: str, cwd: Path) -> set[str]:
    """The modules that a command has loaded when it ends, and the packages that they are in."""
    ran = subprocess.run(
        [sys.executable, "-c", CALL, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=True,
    )
    code, *modules = ran.stderr.splitlines()[-1].split()
    assert code == "0", ran.stderr
    names = (module.split(".") for module in modules)
    return {".".join(parts[: length + 1]) for parts in names for length in range(len(parts))}


@pytest.mark.parametrize("arguments", [("--help",), ("lint", "--help"), ("devices", "--help")])
def test_help_loads_only_what_reads_flags(arguments: tuple[str, ...], tmp_path: Path) -> None:
    loaded = _loaded(*arguments, cwd=tmp_path)
    assert "click" in loaded
    assert sorted(loaded & {*SLOW, *OF_A_SERVER, "msgspec", "yaml", "fettle.model"}) == []


def test_a_list_of_devices_loads_only_what_asks_a_server_and_prints(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{serving.server_port}"
        loaded = _loaded("devices", "--server", url, cwd=tmp_path)
        serving.shutdown()
        thread.join(30)
    assert "rich" in loaded
    others = {"fettle.cluster", "fettle.dra", "fettle.records", "yaml"}
    assert sorted(loaded & ((SLOW | OF_A_SERVER | others) - {"rich"})) == []


@pytest.mark.parametrize("manifest", [POD, CLAIM], ids=["a pod", "a claim with a selector"])
def test_lint_of_a_file_loads_neither_a_server_nor_a_client(manifest: str, tmp_path: Path) -> None:
    (tmp_path / "made.yaml").write_text(manifest)
    loaded = _loaded("lint", "made.yaml", cwd=tmp_path)
    assert "fettle.lint" in loaded
    assert sorted(loaded & (SLOW | OF_A_SERVER)) == []
