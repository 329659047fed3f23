"""The chart's values, their schema and its versions, as far as they can be checked without Helm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.deploy import charting, values_schema

VALUES = yaml.safe_load((charting.CHART / "values.yaml").read_text())
SCHEMA = json.loads(values_schema.FILE.read_text())


def test_the_schema_has_each_value_and_no_other() -> None:
    assert list(differences(VALUES, SCHEMA, "")) == []


def differences(values: Any, schema: Any, path: str) -> Iterator[str]:
    if "properties" not in schema:
        return
    assert schema["additionalProperties"] is False, path
    for name in {*values} ^ ({*schema["properties"]} - {"global"}):
        yield f"{path}.{name}"
    for name in {*values} & {*schema["properties"]}:
        yield from differences(values[name], schema["properties"][name], f"{path}.{name}")


def test_the_schema_of_the_settings_is_that_of_the_settings() -> None:
    again = "python -m tests.deploy.values_schema"
    assert SCHEMA["$defs"] == values_schema.definitions(), f"make it again: {again}"


def test_every_value_has_its_comment() -> None:
    """Above it or above its group, except where its name says it."""
    lines = (charting.CHART / "values.yaml").read_text().splitlines()
    top = [i for i, line in enumerate(lines) if line[:1].isalpha()]
    uncommented = {lines[i].partition(":")[0] for i in top if not lines[i - 1].startswith("#")}
    assert uncommented == {"image", "imagePullSecrets", "namespace", "volumeMounts"}


def test_the_chart_has_the_versions_of_what_it_installs() -> None:
    chart = yaml.safe_load((charting.CHART / "Chart.yaml").read_text())
    project = (charting.CHART.parents[1] / "pyproject.toml").read_text()
    assert f'version = "{chart["appVersion"]}"' in project
    assert chart["version"] == chart["appVersion"]
