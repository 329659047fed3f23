import os
import subprocess
import sys

DEMO = [sys.executable, "-m", "fettle", "demo"]


def test_the_demo_succeeds_fits_a_hundred_columns_and_has_no_colours_in_a_pipe() -> None:
    told = subprocess.run(DEMO, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stdout + told.stderr
    assert max(len(line) for line in told.stdout.splitlines()) <= 100
    assert "\x1b" not in told.stdout
    for part in ("hgx-04   refused    refused    refused", "XID 79", "FTL010", "turned"):
        assert part in told.stdout


def test_the_demo_needs_no_cluster_and_no_network() -> None:
    environment = {**os.environ, "KUBECONFIG": "/nowhere", "HTTP_PROXY": "http://127.0.0.1:9"}
    told = subprocess.run(DEMO, capture_output=True, text=True, timeout=60, env=environment)
    assert told.returncode == 0, told.stdout + told.stderr
