"""The Dockerfile, as far as it can be checked where there is no Docker."""

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from fettle.cli.decision_tables import AS_SHIPPED

REPOSITORY = Path(__file__).parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def instructions() -> list[tuple[str, str]]:
    """(instruction, what follows), with continued lines joined."""
    text = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = (line.strip() for line in text.splitlines())
    parted = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return [(name, rest.strip()) for name, _, rest in parted]


def of(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def containers() -> list[Any]:
    files = ("server/webhook.yaml", "server/steward.yaml", "extender/extender.yaml")
    documents = (
        document
        for file in files
        for document in yaml.safe_load_all((REPOSITORY / "deploy" / file).read_text())
    )
    pods = [d["spec"]["template"]["spec"] for d in documents if d["kind"] == "Deployment"]
    return [(pod, container) for pod in pods for container in pod["containers"]]


def sources() -> list[str]:
    copies = [shlex.split(rest) for rest in of("COPY") if not rest.startswith("--from")]
    return [source for *parts, _ in copies for source in parts]


def test_the_base_is_pinned_and_is_of_a_python_that_the_project_supports() -> None:
    (base,) = of("ARG")
    name, _, tag = base.removeprefix("BASE=").partition("@")[0].partition(":")
    assert name == "python"
    major, minor = tag.partition("-")[0].split(".")[:2]
    assert f">={major}.{minor}" == PROJECT["project"]["requires-python"]
    assert {rest.split()[0] for rest in of("FROM")} == {"${BASE}"}


@pytest.mark.parametrize("source", sources())
def test_what_is_copied_is_there_and_not_ignored(source: str) -> None:
    assert (REPOSITORY / source).exists()
    assert f"!{source}" in (REPOSITORY / ".dockerignore").read_text().splitlines()


def test_commands_in_a_container_ask_the_fettle_that_runs_there() -> None:
    """To read the cluster again there could end what runs there, by the memory limit."""
    variables = dict(one.split("=", 1) for rest in of("ENV") for one in shlex.split(rest))
    assert tuple(variables["FETTLE_SERVER"].split()) == AS_SHIPPED


def test_every_package_of_the_wheel_is_copied() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= set(sources())
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert set(included) <= set(sources())
    assert {"pyproject.toml", "README.md", "LICENSE", "requirements.lock"} <= set(sources())


def test_packages_are_checked_against_the_lock() -> None:
    assert any("--require-hashes" in run and "requirements.lock" in run for run in of("RUN"))
    installed = [part for run in of("RUN") for part in run.split("&&") if "pip install" in part]
    assert installed
    assert all("--no-index" in part for part in installed)


def test_it_starts_the_console_script_as_the_deployments_do() -> None:
    assert of("ENTRYPOINT") == ['["fettle"]']
    assert "fettle" in PROJECT["project"]["scripts"]
    for _, container in containers():
        assert container["command"] == ["fettle"]


def test_it_runs_as_the_user_that_the_deployments_name() -> None:
    for pod, container in containers():
        user = pod["securityContext"]["runAsUser"]
        assert of("USER") == [f"{user}:{user}"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["image"] == f"fettle-scheduler:{PROJECT['project']['version']}"
