"""What a thief of the webhook's account can make of its right on the webhook configurations."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from tests.controlplane import shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.certificates import Authority
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.installed import CONFIGURATIONS, start_registered, until_trusted

POLICY = "fettle-ca-bundles"
BUNDLE = base64.b64encode(Authority("another").certificate).decode()
RULE: Object = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "operations": ["*"],
    "resources": ["*/*"],
    "scope": "*",
}
Change = Callable[[Object], object]


def first(configuration: Object) -> Object:
    webhook: Object = configuration["webhooks"][0]
    return webhook


def to_a_url(configuration: Object) -> None:
    first(configuration)["clientConfig"] = {"url": "https://192.0.2.1/mutate", "caBundle": BUNDLE}


def one_more(configuration: Object) -> None:
    configuration["webhooks"].append({**first(configuration), "name": "more.fettle.dev"})


def turned(configuration: Object) -> None:
    configuration["webhooks"].reverse()


def owned(configuration: Object) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}
    configuration["metadata"]["ownerReferences"] = [owner]


def metadata(**changes: object) -> Change:
    return lambda configuration: configuration["metadata"].update(changes)


def webhook(**changes: object) -> Change:
    return lambda configuration: first(configuration).update(changes)


def service(**changes: object) -> Change:
    return lambda configuration: first(configuration)["clientConfig"]["service"].update(changes)


FORBIDDEN: Mapping[str, Change] = {
    "a URL": to_a_url,
    "another service": service(name="other"),
    "a service elsewhere": service(namespace="default"),
    "another path": service(path="/other"),
    "another port": service(port=8443),
    "more rules": webhook(rules=[RULE]),
    "no rules": webhook(rules=[]),
    "it fails closed": webhook(failurePolicy="Fail"),
    "all namespaces": webhook(namespaceSelector={}),
    "other objects": webhook(objectSelector={"matchLabels": {"a": "b"}}),
    "no conditions": webhook(matchConditions=[]),
    "another match": webhook(matchPolicy="Exact"),
    "more time": webhook(timeoutSeconds=30),
    "no side effects": webhook(sideEffects="None"),
    "other versions": webhook(admissionReviewVersions=["v1", "v1beta1"]),
    "another name": webhook(name="other.fettle.dev"),
    "one webhook more": one_more,
    "one webhook less": lambda configuration: configuration["webhooks"].pop(),
    "no webhooks": lambda configuration: configuration["webhooks"].clear(),
    "another order": turned,
    "a label": metadata(labels={"a": "b"}),
    "an annotation": metadata(annotations={"cert-manager.io/inject-ca-from": "default/theirs"}),
    "a finalizer": metadata(finalizers=["example.com/stays"]),
    "an owner": owned,
}


def trusting(configuration: Object) -> None:
    for entry in configuration["webhooks"]:
        entry["clientConfig"]["caBundle"] = BUNDLE


def distrusting(configuration: Object) -> None:
    for entry in configuration["webhooks"]:
        entry["clientConfig"].pop("caBundle", None)


def both(one: Change, other: Change) -> Change:
    def change(configuration: Object) -> None:
        one(configuration)
        other(configuration)

    return change


@pytest.fixture(params=["the webhook's own", "in one process"])
async def thief(
    request: pytest.FixtureRequest, control_plane: ControlPlane, api: Api
) -> AsyncIterator[Api]:
    """Each account that may patch the webhook configurations, once they are there."""
    account = shipped.WEBHOOK_ACCOUNT
    if request.param == "in one process":
        account = await shipped.account_for(api, ["webhook", "steward"])
    await shipped.apply_rbac(api)
    await shipped.apply(api, shipped.manifests(shipped.DEPLOY / "webhook"))
    async with await control_plane.api_as_service_account(account, shipped.NAMESPACE) as stolen:
        yield stolen


async def tried(thief: Api, resource: str, change: Change) -> str:
    """Why it may not make this change; "" if it may."""
    changed = await thief.get(resource, "fettle")
    before = changed["metadata"].pop("resourceVersion")
    change(changed)
    patch = {"metadata": changed["metadata"], "webhooks": changed["webhooks"]}
    path = f"/apis/admissionregistration.k8s.io/v1/{resource}/fettle"
    patch["metadata"].pop("managedFields")
    try:
        made = await thief.request("PATCH", f"{path}?dryRun=All", body=patch, form="merge")
    except ApiError as error:
        if error.code != 403:
            raise
        return error.message
    assert made["metadata"]["resourceVersion"] == before
    return ""


async def denied(thief: Api, change: Change) -> set[str]:
    """The configurations of which it is denied by the policy."""
    said = {resource: await tried(thief, resource, change) for resource in CONFIGURATIONS}
    assert all(POLICY in why for why in said.values() if why)
    return {resource for resource, why in said.items() if why}


async def in_force(thief: Api) -> None:
    await waiting.wait_until(
        lambda: denied(thief, FORBIDDEN["a label"]), what="the limits are in force"
    )


async def test_the_account_of_the_webhook_may_change_nothing_but_ca_bundles(thief: Api) -> None:
    await in_force(thief)
    for allowed in (trusting, distrusting):
        assert await denied(thief, allowed) == set()
    for what, change in FORBIDDEN.items():
        for each in (change, both(trusting, change)):
            assert await denied(thief, each) == set(CONFIGURATIONS), what


async def test_without_the_policy_the_same_right_lets_it_change_everything(
    api: Api, thief: Api
) -> None:
    await in_force(thief)
    await api.delete("validatingadmissionpolicybindings", POLICY)

    async def allowed() -> bool:
        return not await denied(thief, FORBIDDEN["a label"])

    await waiting.wait_until(allowed, what="the policy is gone")
    for what, change in FORBIDDEN.items():
        assert await denied(thief, change) == set(), what


async def test_what_reinvokes_a_webhook_is_not_changed_either(thief: Api) -> None:
    await in_force(thief)
    resource = CONFIGURATIONS[0]
    assert POLICY in await tried(thief, resource, webhook(reinvocationPolicy="Never"))


async def test_nobody_else_is_held_by_it(api: Api, thief: Api) -> None:
    await in_force(thief)
    for change in FORBIDDEN.values():
        assert await denied(api, change) == set()


@pytest.mark.parametrize("roles", [("webhook",), ("webhook", "steward")], ids=" and ".join)
async def test_fettle_itself_keeps_its_ca_bundles_under_that_policy(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, roles: tuple[str, ...]
) -> None:
    await start_registered(api, start_fettle, *roles)
    account = await shipped.account_for(api, roles)
    async with await control_plane.api_as_service_account(account, shipped.NAMESPACE) as own:
        await in_force(own)
    for resource in CONFIGURATIONS:
        configuration = await api.get(resource, "fettle")
        distrusting(configuration)
        await api.patch(resource, "fettle", {"webhooks": configuration["webhooks"]})
    await until_trusted(api)


async def test_every_limit_fits_the_types_that_it_is_about(
    control_plane: ControlPlane, api: Api
) -> None:
    """The controller-manager checks this, and warns in the status of a policy."""
    await control_plane.start_controller_manager()
    await shipped.apply_rbac(api)
    limits = await api.list("validatingadmissionpolicies")
    assert POLICY in {limit["metadata"]["name"] for limit in limits}
    for limit in limits:
        checked = await waiting.wait_until(
            lambda name=limit["metadata"]["name"]: api.get("validatingadmissionpolicies", name),  # type: ignore[misc]
            lambda found: "typeChecking" in found.get("status", {}),
            what="the types are checked",
        )
        assert checked["status"]["typeChecking"] == {}
