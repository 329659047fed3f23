"""The manifests as they are shipped, and the documents in them."""

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


def documents(*parts: str) -> list[Any]:
    return [d for d in yaml.safe_load_all(DEPLOY.joinpath(*parts).read_text()) if d]


def roles(*parts: str) -> list[Any]:
    return [
        d
        for path in sorted(DEPLOY.joinpath("rbac", *parts).glob("*.yaml"))
        for d in yaml.safe_load_all(path.read_text())
        if d and d["kind"] in ("Role", "ClusterRole")
    ]


def written(role: Any) -> set[tuple[str, str]]:
    """Verb and resource of what it lets write."""
    return {
        (verb, resource)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
