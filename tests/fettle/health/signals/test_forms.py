"""Each shipped row about somebody else's object matches that object in the form in which its source
writes it. `forms.yaml` has them, each with its origin."""

from pathlib import Path
from typing import Any

import yaml

from tests.fettle.health.signals.reading import RULES

FORMS: list[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("forms.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
WITHOUT_FORM = {
    "eks-row-remap-failure": "eks-node-monitoring-agent PR 246 is open, its text is not known",
    "eks-row-remap": "eks-node-monitoring-agent PR 246 is open, its text is not known",
    "nvsentinel-power-brake": "the type follows from DCGM_HEALTH_WATCH_*; no message was found",
    "nvsentinel-nic-driver": "NVSentinel's monitor of network cards; no message",
    "nvsentinel-ib-state-check": "NVSentinel's monitor of network cards; no message",
    "nvsentinel-ib-degradation-check": "NVSentinel's monitor of network cards; no message",
    "nvsentinel-ethernet-state-check": "NVSentinel's monitor of network cards; no message",
    "nvsentinel-ethernet-degradation-check": "NVSentinel's monitor of network cards; no message",
    "nvsentinel-repeated-elsewhere": "what is recommended NONE makes an Event and no condition",
    "aks-gpu-xid": "of the documentation; no writer was found",
    "nebius-runtime": "closed source; the documentation has no message",
    "amd": "no text of a pod was found",
    "intel-health-false": "of older drivers; no source was found",
}
"""Why a row has none."""
TABLES = (
    *("conditions", "events", "labels", "annotations", "taints", "refusals", "starts"),
    *("attributes", "device_conditions"),
)


def matched(form: dict[str, Any]) -> Any:
    """The row by which a form is read; None if by none."""
    table = form["table"]
    if table == "conditions":
        first = RULES.condition(form["type"], form.get("reason", ""))
        message = form.get("message", "")
        joined = RULES.joined(form["type"], message, first) if first is not None else ()
        return next((row for row in joined if row.name == form["row"]), first)
    if table == "attributes":
        rows = RULES.attributes_of(form["driver"])
        value, name = form["value"], form["attribute"]
        return next((r for r in rows if r.attribute == name and r.matches(value)), None)
    if table == "events":
        where = form.get("namespace", "default")
        return RULES.event(form["reason"], form.get("component", ""), where, form["message"])
    if table == "labels":
        found = RULES.label(form["key"], str(form["value"]))
        return None if found is None else found[0]
    if table == "annotations":
        return RULES.annotation(form["key"], str(form["value"]))
    if table == "taints":
        driver = form.get("driver", f"{form['key'].partition('/')[0]}")
        return RULES.taint(driver, form["key"], str(form.get("value", "")), form["effect"])
    if table == "refusals":
        return RULES.refusal(form["message"])
    if table == "starts":
        said = RULES.said_of_start(form["message"])
        return None if said is None else said[0]
    if table == "device_conditions":
        return RULES.device_condition("dra.net", form["type"], form.get("reason", ""))
    raise AssertionError(table)


def test_what_a_producer_writes_is_read_by_its_row() -> None:
    read = [(form, getattr(matched(form), "name", None)) for form in FORMS]
    assert [(form, name) for form, name in read if name != form["row"]] == []


def test_every_shipped_row_has_a_form_or_says_why_not() -> None:
    formed = {(form["table"], form["row"]) for form in FORMS}
    without = {
        name for table in TABLES for name in getattr(RULES, table) if (table, name) not in formed
    }
    assert without == WITHOUT_FORM.keys()


def test_each_row_of_a_condition_has_a_form_that_is_bad() -> None:
    """These checks exist, and none of their producers was seen to write the bad status."""
    bad = {
        form["row"]
        for form in FORMS
        if form["table"] == "conditions"
        and str(form["status"]) == str(RULES.conditions[form["row"]].faulty)
    }
    never = {"nvsentinel-sm", "nvsentinel-mcu", "nvsentinel-pmu"}
    never |= {"eks-networking", "eks-kernel", "eks-runtime", "eks-storage"}
    assert RULES.conditions.keys() - bad == never | (WITHOUT_FORM.keys() & RULES.conditions.keys())
