"""A home directory without a kubeconfig, and a pod's service account."""

from pathlib import Path

import pytest

from tests.fettle.client.fake_api import FakeApi


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with nothing but an empty home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def account(api: FakeApi, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The service account of a pod whose API server is the fake one, over TLS."""
    folder = home / "account"
    folder.mkdir()
    (folder / "token").write_text("right")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api.port))
    return folder
