"""Objects as kubectl writes them to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def write(path: Path, *things: Any) -> None:
    """As kubectl prints a list."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(things)}
    path.write_text(yaml.safe_dump(listed) if path.suffix != ".json" else json.dumps(listed))
