"""What is on in `deploy/` as it lies there is what the one table in README.md says."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from fettle.config import Settings, load_settings
from fettle.model import Mode, OnLostNode
from tests.controlplane import shipped
from tests.deploy.shipped import DEPLOY, roles, written

README = (DEPLOY.parent / "README.md").read_text()
OBSERVING = (DEPLOY.parent / "docs" / "observing.md").read_text()
IS_OFF: dict[str, Callable[[Settings], bool]] = {
    "mode": lambda s: s.mode is Mode.OBSERVE,
    "webhook.events": lambda s: not s.webhook.events,
    "deviceTaints": lambda s: s.device_taints.unhealthy is s.device_taints.degraded is None,
    "deviceFailures": lambda s: s.device_failures.allow is None,
    "forceDeleteSeconds": lambda s: s.device_failures.force_delete_seconds is None,
    "onLostNode": lambda s: (
        not any(
            policy.failure.on_lost_node is not OnLostNode.NONE
            for policy in s.all_policies().by_name.values()
        )
    ),
    "nodeMarks": lambda s: not s.node_marks.is_on,
    "suspendHopelessJobs": lambda s: (
        not any(
            policy.failure.suspend_hopeless_jobs for policy in s.all_policies().by_name.values()
        )
    ),
    "kueue.admissionCheck": lambda s: not s.kueue.admission_check,
    "prometheus.url": lambda s: not s.prometheus.url,
    "alertmanager.listen": lambda s: not s.alertmanager.listen,
    "lint.watch": lambda s: not s.lint.watch,
    "health.rulesFile": lambda s: not s.health.rules_file,
}
"""What may switch something on, by the name of its setting or of a policy's field."""


class Row(NamedTuple):
    what: str
    on: bool
    writes: frozenset[str]
    switches: tuple[str, ...]
    files: tuple[str, ...]


def table() -> Iterator[Row]:
    (rows,) = re.findall(r"<!-- defaults: .*-->\n.*\n.*\n((?:\|.*\n)+)", README)
    for row in rows.splitlines():
        what, by_default, writes, by = (cell.strip() for cell in row.strip("|").split("|"))
        assert by_default in ("on", "off")
        named = re.findall(r"`([^`]+)`", by)
        files = tuple(name for name in named if name.endswith(".yaml"))
        switches = tuple(n.partition(":")[0] for n in named if n not in files and n != "Evict")
        written = frozenset(re.findall(r"`([^`]+)`", writes))
        yield Row(what, by_default == "on", written, switches, files)


TABLE = [*table()]


def shipped_settings() -> dict[str, str]:
    """Each settings file in `deploy/`, by where it is."""
    found = {
        f"{file.relative_to(DEPLOY)}: {document['metadata']['name']}": content
        for file in shipped.files()
        for document in yaml.safe_load_all(file.read_text())
        if document and document.get("kind") == "ConfigMap"
        for name, content in document["data"].items()
        if name == "settings.yaml"
    }
    written = re.findall(
        r"echo '(.*)' > settings\.yaml", (DEPLOY / "scheduler" / "static-pod.yaml").read_text()
    )
    assert len(written) == 1
    return {**found, "scheduler/static-pod.yaml": written[0]}


SHIPPED = shipped_settings()


@pytest.mark.parametrize("where", SHIPPED)
def test_every_settings_file_observes_and_switches_on_nothing(tmp_path: Path, where: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(SHIPPED[where])
    settings = load_settings(file)
    assert [name for name, is_off in IS_OFF.items() if not is_off(settings)] == []


def test_the_table_names_all_that_can_be_switched_on() -> None:
    assert {name for row in TABLE for name in row.switches} == {*IS_OFF}
    assert all(bool(row.switches or row.files) is not row.on for row in TABLE)
    named = [file for row in TABLE for file in row.files]
    assert sorted(named) == sorted(f.name for f in (DEPLOY / "rbac" / "optional").iterdir())


def test_what_may_be_written_without_an_optional_file_is_what_the_table_says() -> None:
    questions = {"tokenreviews", "subjectaccessreviews"}  # which the API server answers and forgets
    ours = [role for role in roles() if role["metadata"]["name"] != "fettle-editor"]
    granted = {resource for role in ours for _, resource in written(role)} - questions
    assert granted == {kind for row in TABLE if not row.files for kind in row.writes}


@pytest.mark.parametrize("row", [row for row in TABLE if row.files], ids=lambda row: row.files[0])
def test_an_optional_file_grants_what_its_row_says(row: Row) -> None:
    asked_by_limits = {"holdtaints", "healthtaints", "nodemarks", "nodewakeups"}
    granted = {
        resource
        for document in yaml.safe_load_all((DEPLOY / "rbac/optional" / row.files[0]).read_text())
        if document and document["kind"] in ("Role", "ClusterRole")
        if document["metadata"]["name"] != "fettle-dry-run"
        for _, resource in written(document)
    }
    assert granted - asked_by_limits == row.writes


def test_to_enforce_is_one_step_that_names_all_that_has_to_change() -> None:
    (step,) = re.findall(r"### Enforce\n(.*?)\n## ", OBSERVING, re.DOTALL)
    for config_map in {where.rpartition(": ")[2] for where in SHIPPED if ": " in where}:
        assert f"`{config_map}`" in step or f"configmap {config_map}`" in step
    assert "kube-scheduler-config-enforce.yaml" in step
    assert "`ignorable: false` instead of `ignorable: true`" in step
