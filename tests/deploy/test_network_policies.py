"""The NetworkPolicies in `deploy/`, as a network plugin reads them, for the Deployments there."""

from typing import Any

import pytest

from tests.deploy.shipped import documents

DEPLOYMENTS = {
    "fettle-webhook": ("server", "webhook.yaml"),
    "fettle-steward": ("server", "steward.yaml"),
    "fettle-extender": ("extender", "extender.yaml"),
}
MONITORING = {"kubernetes.io/metadata.name": "monitoring"}
TENANT = {"kubernetes.io/metadata.name": "tenant"}
OUTSIDE = None
"""The labels of the namespace of a caller that is no pod."""
ANOTHER_PORT = 9999


def pod_template(name: str) -> Any:
    (found,) = (d for d in documents(*DEPLOYMENTS[name]) if d["kind"] == "Deployment")
    return found


def port(name: str, called: str) -> int:
    (container,) = pod_template(name)["spec"]["template"]["spec"]["containers"]
    (number,) = (p["containerPort"] for p in container["ports"] if p["name"] == called)
    return int(number)


def selects(selector: Any, labels: dict[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    expressions = selector.get("matchExpressions", ())
    assert all(one["operator"] == "In" for one in expressions)
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        labels.get(one["key"]) in one["values"] for one in expressions
    )


def may_call(name: str, number: int, caller: dict[str, str] | None) -> bool:
    """Whether a caller from a namespace with these labels reaches a port of a pod of this
    Deployment, not counting that a pod's own node always does."""
    deployment = pod_template(name)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    rules = []
    is_selected = False
    for policy in documents("network-policies.yaml"):
        assert policy["metadata"]["namespace"] == deployment["metadata"]["namespace"]
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        if selects(policy["spec"]["podSelector"], labels):
            is_selected = True
            rules += policy["spec"]["ingress"]
    return not is_selected or any(
        {"protocol": "TCP", "port": number} in rule["ports"]
        and ("from" not in rule or any(is_peer(one, caller) for one in rule["from"]))
        for rule in rules
    )


def is_peer(peer: Any, caller: dict[str, str] | None) -> bool:
    if peer.keys() == {"podSelector"}:  # pods of the same namespace
        assert peer["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "fettle-check"}}
        return False
    assert peer.keys() == {"namespaceSelector"}
    return caller is not None and selects(peer["namespaceSelector"], caller)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_only_prometheus_reaches_the_browse_port_from_elsewhere(name: str) -> None:
    browse = port(name, "browse")
    assert may_call(name, browse, MONITORING)
    assert not may_call(name, browse, TENANT)
    assert not may_call(name, browse, OUTSIDE)


@pytest.mark.parametrize("name", ["webhook", "extender"])
def test_a_control_plane_that_is_no_pod_reaches_the_port_that_it_calls(name: str) -> None:
    assert may_call(f"fettle-{name}", port(f"fettle-{name}", name), OUTSIDE)


@pytest.mark.parametrize("name", DEPLOYMENTS)
@pytest.mark.parametrize("caller", [MONITORING, TENANT, OUTSIDE])
def test_every_other_port_of_every_pod_is_closed(name: str, caller: dict[str, str] | None) -> None:
    """Also those that another of the Deployments has open."""
    open_ports = {ANOTHER_PORT, 8443, 8088} - {
        port(name, one["name"])
        for one in pod_template(name)["spec"]["template"]["spec"]["containers"][0]["ports"]
    }
    assert not any(may_call(name, number, caller) for number in open_ports)
