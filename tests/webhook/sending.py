"""Whom the shipped webhook configurations let through: their conditions, evaluated by cel-python on
objects as the API server shows them."""

from collections.abc import Iterable
from pathlib import Path

import celpy
import yaml
from celpy.adapter import json_to_cel

from fettle.model.annotations import ANNOTATION
from tests.webhook.reviews import Object

DEPLOY = Path(__file__).parents[2] / "deploy" / "webhook"
MUTATING, VALIDATING = (
    yaml.safe_load((DEPLOY / f"{name}.yaml").read_text()) for name in ("mutating", "validating")
)
ENTRIES = [*MUTATING["webhooks"], *VALIDATING["webhooks"]]
BY_NAME = {entry["name"]: entry for entry in ENTRIES}


def compiled(expression: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


# Compiled once, and here: cel-python changes the recursion limit, to which hypothesis objects.
PROGRAMS = {
    expression: compiled(expression)
    for expression in {
        condition["expression"] for entry in ENTRIES for condition in entry["matchConditions"]
    }
}


def holds(expression: str, variables: Object) -> bool:
    activation = {name: json_to_cel(value) for name, value in variables.items()}
    return bool(PROGRAMS[expression].evaluate(activation))


def passes(
    name: str,
    object: Object,
    old: Object | None = None,
    user: str = "jane",
    resource: str = "resourceclaims",
) -> bool:
    request = {
        "operation": "UPDATE" if old else "CREATE",
        "userInfo": {"username": user},
        "resource": {"resource": resource},
    }
    variables = {"object": object, "oldObject": old, "request": request}
    conditions = BY_NAME[name]["matchConditions"]
    return all(holds(condition["expression"], variables) for condition in conditions)


def entries_for(resource: str, *, labelled: bool) -> Iterable[str]:
    """The entries whose rules and namespaceSelector let such an object reach the conditions."""
    operator = "Exists" if labelled else "DoesNotExist"
    for entry in MUTATING["webhooks"]:
        selected = [
            expression["operator"]
            for expression in entry["namespaceSelector"]["matchExpressions"]
            if expression["key"] == ANNOTATION
        ]
        resources = [resource for rule in entry["rules"] for resource in rule["resources"]]
        if selected in ([], [operator]) and resource in resources:
            yield entry["name"]


def sent(
    resource: str, object: Object, *, labelled: bool, old: Object | None = None, user: str = "jane"
) -> bool:
    """Whether it is sent, and then once."""
    names = list(entries_for(resource, labelled=labelled))
    assert names
    times = sum(passes(name, object, old, user, resource) for name in names)
    assert times <= 1
    return times == 1
