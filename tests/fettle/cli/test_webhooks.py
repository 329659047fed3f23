"""`fettle webhooks` without a cluster; `tests/controlplane` tests the rest."""

import subprocess
from pathlib import Path

from tests.fettle.cli.linted import GOOD, ROOT, called


def webhooks(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return called("webhooks", *map(str, arguments))


def test_files_without_a_configuration_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "claim.yaml").write_text(GOOD)
    ran = webhooks(tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("fettle: no MutatingWebhookConfiguration or Validating")


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    ran = webhooks(tmp_path / "absent.yaml")
    assert ran.returncode == 1
    assert "absent.yaml: No such file or directory" in ran.stderr


def test_without_a_cluster_it_says_what_is_missing(tmp_path: Path) -> None:
    ran = webhooks(ROOT / "deploy" / "webhook", "--kubeconfig", tmp_path / "absent")
    assert ran.returncode == 1
    assert ran.stderr.startswith("fettle: ")
    assert ran.stderr.endswith("pass --kubeconfig FILE\n"), "what it has no flag for is no advice"
    assert "Traceback" not in ran.stderr
