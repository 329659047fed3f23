"""Kubeconfig files, by client certificate or by token, with everything embedded."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.controlplane.certificates import Pair


def by_certificate(server: str, ca: bytes, pair: Pair) -> dict[str, Any]:
    user = {
        "client-certificate-data": _base64(pair.certificate),
        "client-key-data": _base64(pair.key),
    }
    return _kubeconfig(server, ca, user)


def by_token(server: str, ca: bytes, token: str) -> dict[str, Any]:
    return _kubeconfig(server, ca, {"token": token})


def write(config: dict[str, Any], path: Path) -> Path:
    path.write_text(json.dumps(config, indent=1))
    path.chmod(0o600)
    return path


def _kubeconfig(server: str, ca: bytes, user: dict[str, str]) -> dict[str, Any]:
    cluster = {"server": server, "certificate-authority-data": _base64(ca)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user"}}],
        "current-context": "tests",
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
