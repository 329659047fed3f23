"""Each shipped row about somebody else's object matches that object in the form in which its source
writes it. `forms.yaml` has them, each with its origin."""

from pathlib import Path
from typing import Any

import yaml

from tests.fettle.health.signals.reading import RULES

FORMS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("forms.yaml").read_text(encoding="utf-8")
)


def matched(table: str, form: dict[str, Any]) -> Any:
    """The row that a form is read by."""
    if table == "conditions":
        return RULES.condition(form["type"], form.get("reason", ""))
    if table == "events":
        where = form.get("namespace", "default")
        return RULES.event(form["reason"], form.get("component", ""), where, form["message"])
    if table == "labels":
        found = RULES.label(form["key"], form["value"])
        return None if found is None else found[0]
    if table == "annotations":
        return RULES.annotation(form["key"], form["value"])
    if table == "taints":
        return RULES.taint(form["driver"], form["key"], form.get("value", ""), form["effect"])
    if table == "refusals":
        return RULES.refusal(form["message"])
    if table == "starts":
        said = RULES.said_of_start(form["message"])
        return None if said is None else said[0]
    raise AssertionError(table)
