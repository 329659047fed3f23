"""What the API server's responses mean."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.client.responses import read_status, refusal
from fettle.model import errors

SERVER = "https://10.0.0.1"


def error(code: int, **status: object) -> errors.ClusterError:
    return refusal(SERVER, "GET /api/v1/nodes", code, read_status(json.dumps(status).encode()))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, errors.Invalid),
        (401, errors.Unauthorized),
        (403, errors.Denied),
        (405, errors.ClusterError),
        (409, errors.Conflict),
        (410, errors.Expired),
        (413, errors.Invalid),
        (422, errors.Invalid),
        (429, errors.Unreachable),
        (500, errors.Unreachable),
        (504, errors.Unreachable),
    ],
)
def test_each_status_code_becomes_its_error(code: int, kind: type[errors.ClusterError]) -> None:
    assert type(error(code, message="so it is")) is kind


def test_an_absent_object_and_an_absent_resource_are_different_errors() -> None:
    named = error(404, message='nodes "a" not found', details={"name": "a"})
    assert type(named) is errors.NotFound
    absent = error(404, message="the server could not find the requested resource", details={})
    assert type(absent) is errors.NotServed


def test_a_resource_version_from_the_future_counts_as_expired() -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert type(error(504, reason="Timeout", details={"causes": causes})) is errors.Expired


@pytest.mark.parametrize("code", [429, 403])
def test_an_eviction_that_a_budget_does_not_allow_is_no_sign_of_a_busy_server(code: int) -> None:
    said = "The disruption budget keep needs 1 healthy pods and has 1 currently"
    causes = [{"reason": "DisruptionBudget", "message": said}]
    found = error(code, message="Cannot evict pod", details={"causes": causes})
    assert (type(found), str(found)) == (errors.BudgetSpent, said)


def test_a_pod_with_two_budgets_cannot_be_evicted_which_concerns_no_other_pod() -> None:
    said = "This pod has more than one PodDisruptionBudget, which the eviction does not support."
    assert type(error(500, message=said)) is errors.BudgetSpent


def forbidden(verb: str, resource: str, where: str, user: str = "eve") -> str:
    """The error for an API server's refusal; `resource` is `plural.group`."""
    plural, _, group = resource.partition(".")
    message = (
        f'{resource} is forbidden: User "{user}" cannot {verb} resource "{plural}" '
        f'in API group "{group}" {where}'
    )
    found = error(403, message=message)
    assert type(found) is errors.Forbidden
    return str(found)


@pytest.mark.parametrize(
    ("verb", "verbs"), [("watch", 'verbs "list" and "watch"'), ("list", 'verb "list"')]
)
def test_a_refused_watch_says_that_following_needs_to_list_too(verb: str, verbs: str) -> None:
    """Who is refused a list may need no more: the commands without a server."""
    assert forbidden(verb, "nodes", "at the cluster scope") == (
        f"{SERVER} denied access by RBAC: grant the {verbs} on the "
        'resource "nodes" of the core API group in all namespaces to eve; '
        "deploy/rbac/ has the roles"
    )


@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "secrets"),
        ("create", "leases.coordination.k8s.io"),
        ("update", "leases.coordination.k8s.io"),
        ("create", "events.events.k8s.io"),
        ("patch", "events.events.k8s.io"),
        ("patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io"),
        ("delete", "resourceclaims.resource.k8s.io"),
    ],
)
def test_a_refused_call_on_one_object_says_the_verb(verb: str, resource: str) -> None:
    plural, _, group = resource.partition(".")
    said = f'the API group "{group}"' if group else "the core API group"
    assert forbidden(verb, resource, 'in the namespace "ns"') == (
        f'{SERVER} denied access by RBAC: grant the verb "{verb}" on the resource "{plural}" of '
        f'{said} in the namespace "ns" to eve; deploy/rbac/ has the roles'
    )


@pytest.mark.parametrize("verb", ["impersonate", "impersonate-on:user-info:list"])
def test_refused_impersonation_says_which_right_is_missing(verb: str) -> None:
    assert forbidden(verb, "nodes", "at the cluster scope") == (
        f"{SERVER} denied access by RBAC: eve may not impersonate whom the kubeconfig's user names "
        'with `as`; grant the verb "impersonate" on them to eve, or leave out `as`'
    )


def test_an_anonymous_caller_is_told_to_send_credentials() -> None:
    assert forbidden("list", "nodes", "at the cluster scope", "system:anonymous") == (
        f"{SERVER} takes us for system:anonymous, for want of credentials that it accepts; give "
        "the kubeconfig's user a token, exec or a client certificate (an API server takes no "
        "username and password)"
    )


def test_a_path_that_is_no_resource_is_named() -> None:
    message = 'forbidden: User "eve" cannot get path "/metrics"'
    assert str(error(403, message=message)) == (
        f'{SERVER} denied access by RBAC: grant the verb "get" on the path "/metrics" to eve'
    )


def test_a_refusal_that_is_not_rbacs_keeps_its_reason() -> None:
    found = error(403, message="exceeded quota:\n pods")
    assert (type(found), str(found)) == (
        errors.Denied,
        f"{SERVER} forbids: exceeded quota: pods",
    )


@pytest.mark.parametrize("message", ["", " \n"])
def test_a_refusal_without_a_message_is_reported_by_its_status(message: str) -> None:
    said = str(error(503, message=message))
    assert said == f"{SERVER} returned 503 for GET /api/v1/nodes: status 503"


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
CAUSES = st.lists(st.fixed_dictionaries({}, optional={"reason": ANY, "message": ANY}) | ANY)
DETAILS = st.fixed_dictionaries({}, optional={"name": ANY, "kind": ANY, "causes": CAUSES | ANY})
FORBIDDEN = st.sampled_from(
    ['User "" cannot get path ""', 'User "eve" cannot list resource "a" in API group "b" in the x']
)
STATUSES = ANY | st.fixed_dictionaries(
    {},
    optional={
        "message": FORBIDDEN | st.text() | ANY,
        "reason": ANY,
        "code": ANY,
        "details": DETAILS | ANY,
        "metadata": ANY,
    },
)


@given(
    st.integers(300, 599) | st.sampled_from([401, 403, 404, 410, 504]),
    st.binary() | STATUSES.map(lambda status: json.dumps(status).encode()),
)
def test_any_message_of_the_server_becomes_one_bounded_line(code: int, body: bytes) -> None:
    said = str(refusal(SERVER, "GET /x", code, read_status(body)))
    assert said.startswith(SERVER)
    assert len(said) < 700
    assert len(said.splitlines()) == 1
