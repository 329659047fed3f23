"""The part of deploy/chart/values.schema.json that is about Fettle's settings, as they are read:
`python -m tests.deploy.values_schema` writes it into that file. The rest is written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from fettle.config import Settings

FILE = Path(__file__).parents[2] / "deploy" / "chart" / "values.schema.json"
_UNUSED = ("default", "title")


def definitions() -> dict[str, Any]:
    """Those of all sections of the settings, by name. What is not in one is misspelt."""
    _, found = msgspec.json.schema_components([Settings], ref_template="#/$defs/{name}")
    found["RuleSeverity"]["enum"].append(False)  # YAML reads an unquoted Off so
    for definition in found.values():
        if "properties" in definition:
            definition["additionalProperties"] = False
    return {name: _plain(found[name]) for name in sorted(found)}


def _plain(schema: Any) -> Any:
    """Without what nobody looks up here, and with each description on one line."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return " ".join(schema.split()) if isinstance(schema, str) else schema
    kept = {key: value for key, value in schema.items() if key not in _UNUSED}
    if "properties" in schema:
        kept["properties"] = {name: _plain(one) for name, one in schema["properties"].items()}
    return {key: value if key == "properties" else _plain(value) for key, value in kept.items()}


def main() -> None:
    schema = json.loads(FILE.read_text())
    schema["$defs"] = definitions()
    FILE.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
