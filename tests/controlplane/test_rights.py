"""What each of Fettle's accounts may write, as the API server answers with the shipped rights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies
from tests.controlplane.fleet import create_dra_node, create_node
from tests.controlplane.installed import register_extender, start_registered
from tests.controlplane.test_browse_access import OURS, make_account

OPTIONAL = shipped.DEPLOY / "rbac" / "optional"
AUTHORITIES = "authorities.yaml"
READS = {"get", "list", "watch"}
OF_EVERYBODY = {"authorization.k8s.io", "authentication.k8s.io"}
"""Questions about oneself, which anybody who has an account may ask."""
OF_THE_WEBHOOK = {
    ("update", "secrets", "fettle-webhook-ca"),
    ("create", "leases", ""),
    ("update", "leases", "fettle-certificates"),
    ("create", "resourceclaims", ""),
    ("patch", "mutatingwebhookconfigurations", "fettle"),
    ("patch", "validatingwebhookconfigurations", "fettle"),
    ("create", "events", ""),
    ("patch", "events", ""),
}
NODE_WRITES: Mapping[str, Object] = {
    "the taint of a hold": {
        "spec": {
            "taints": [{"key": "fettle.dev/hold", "value": "annotated", "effect": "NoSchedule"}]
        }
    },
    "another taint": {"spec": {"taints": [{"key": "other", "effect": "NoExecute"}]}},
    "a cordon": {"spec": {"unschedulable": True}},
    "the label of health": {"metadata": {"labels": {"fettle.dev/health": "healthy"}}},
    "the label of units": {"metadata": {"labels": {"fettle.dev/health.nvidia.com_gpu": "x"}}},
    "another label": {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
    "no label any more": {"metadata": {"labels": {"kubernetes.io/hostname": None}}},
    "the reason of health": {"metadata": {"annotations": {"fettle.dev/health-reason": "sound"}}},
    "a wake-up": {"metadata": {"annotations": {"fettle.dev/woken-at": "now"}}},
    "another annotation": {"metadata": {"annotations": {"fettle.dev/repaired": "now"}}},
    "an owner": {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]
        }
    },
}
MARKS = {"a cordon", "the label of health", "the label of units", "the reason of health"}


@pytest.fixture
async def webhook(control_plane: ControlPlane, api: Api) -> AsyncIterator[Api]:
    await shipped.apply_rbac(api)
    account = await control_plane.api_as_service_account(shipped.WEBHOOK_ACCOUNT, shipped.NAMESPACE)
    async with account:
        yield account


@pytest.fixture
async def steward(control_plane: ControlPlane, api: Api) -> AsyncIterator[Api]:
    await shipped.apply_rbac(api)
    account = await control_plane.api_as_service_account(shipped.STEWARD_ACCOUNT, shipped.NAMESPACE)
    async with account:
        yield account


def named(name: str, kind: str, version: str = "v1", **rest: object) -> Object:
    metadata = {"name": name, "namespace": shipped.NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def taint_rule(name: str) -> Object:
    return objects.device_taint_rule(name, "fettle.dev/hold", "None", driver=objects.DRIVER)


async def writes_in(account: Api, namespace: str) -> set[tuple[str, str, str]]:
    """Verb, resource and name of all that it may write there, as RBAC has it."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    answer = await account.request("POST", path, body=review)
    return {
        (verb, resource, name)
        for rule in answer["status"]["resourceRules"]
        if not OF_EVERYBODY & {*rule["apiGroups"]}
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames") or [""]
        if verb not in READS
    }


async def test_the_webhooks_account_may_write_nothing_but_its_own(webhook: Api) -> None:
    own = await waiting.wait_until(
        lambda: writes_in(webhook, shipped.NAMESPACE),
        lambda found: len(found) >= len(OF_THE_WEBHOOK),
        what="the rights of the webhook's account",
    )
    assert own == OF_THE_WEBHOOK
    elsewhere = {right for right in own if right[1].endswith("configurations")}
    elsewhere |= {right for right in own if right[1] == "events"}
    for namespace in ("default", "kube-system"):
        assert await writes_in(webhook, namespace) == elsewhere


async def test_what_the_webhooks_account_creates_has_its_own_names_or_is_a_dry_run(
    webhook: Api,
) -> None:
    lease = "coordination.k8s.io/v1"
    claim = objects.claim("probe", namespace=shipped.NAMESPACE)

    async def forbidden() -> bool:
        try:
            await webhook.create(named("another", "Lease", lease))
        except ApiError as error:
            return "fettle-creates" in error.message
        return False

    await waiting.wait_until(forbidden, what="the limits are in force")
    for made in (named("fettle-steward", "Lease", lease), claim):
        with pytest.raises(ApiError, match="fettle-creates"):
            await webhook.create(made)
    await webhook.create(named("fettle-certificates", "Lease", lease))
    await webhook.create(claim, dry_run=True)


@pytest.mark.parametrize(
    "account",
    [shipped.WEBHOOK_ACCOUNT, shipped.STEWARD_ACCOUNT, shipped.EXTENDER_ACCOUNT],
)
async def test_no_account_creates_secrets_such_as_the_token_of_another(
    control_plane: ControlPlane, api: Api, account: str
) -> None:
    """Also in one process, and though a Secret of its own may have been deleted."""
    await shipped.account_for(api, ["webhook", "steward"])
    of = {"kubernetes.io/service-account.name": shipped.STEWARD_ACCOUNT}
    token = named("token", "Secret", type="kubernetes.io/service-account-token")
    token["metadata"]["annotations"] = of
    own = [
        one["metadata"]["name"] for one in shipped.manifests(shipped.DEPLOY / "rbac" / AUTHORITIES)
    ]
    async with await control_plane.api_as_service_account(account, shipped.NAMESPACE) as thief:
        for name in own:
            await api.delete("secrets", name, shipped.NAMESPACE)
        for secret in (token, *(named(name, "Secret") for name in own)):
            with pytest.raises(ApiError, match='cannot create resource "secrets"'):
                await thief.create(secret)


async def test_applying_the_empty_secrets_again_takes_nothing_out_of_them(
    api: Api, start_fettle: StartFettle
) -> None:
    await start_fettle("webhook")
    filled = await api.get("secrets", "fettle-webhook-ca", shipped.NAMESPACE)
    assert set(filled["data"]) == {"ca.crt", "ca.key"}
    for manifest in shipped.manifests(shipped.DEPLOY / "rbac" / AUTHORITIES):
        await api.apply(manifest)
        metadata = manifest["metadata"]
        await api.patch("secrets", metadata["name"], manifest, metadata["namespace"])
    again = await api.get("secrets", "fettle-webhook-ca", shipped.NAMESPACE)
    assert again["data"] == filled["data"]


@pytest.mark.parametrize(
    ("files", "allowed"),
    [
        (("hold-taints.yaml",), {"the taint of a hold"}),
        (("node-marks.yaml",), MARKS),
        (("wake-by-node.yaml",), {"a wake-up"}),
        (("hold-taints.yaml", "node-marks.yaml"), {"the taint of a hold", *MARKS}),
    ],
)
async def test_an_optional_file_lets_the_steward_write_of_nodes_what_it_says_and_no_more(
    api: Api, steward: Api, files: tuple[str, ...], allowed: set[str]
) -> None:
    for file in files:
        await shipped.apply(api, shipped.manifests(OPTIONAL / file))
    await create_node(api, objects.node("n", labels={"kubernetes.io/hostname": "n"}))

    async def passes(change: Object) -> bool:
        try:
            await steward.request("PATCH", "/api/v1/nodes/n?dryRun=All", body=change, form="merge")
        except ApiError as error:
            if error.code != 403:
                raise
            return False
        return True

    async def passing() -> set[str]:
        return {what for what, change in NODE_WRITES.items() if await passes(change)}

    await waiting.wait_until(passing, lambda found: found == allowed, what=f"just {allowed} pass")


@pytest.mark.parametrize(
    ("file", "own", "other"),
    [
        ("hold-taints.yaml", "fettle-hold-a", "fettle-health-a"),
        ("health-taints.yaml", "fettle-health-a", "fettle-hold-a"),
    ],
)
async def test_an_optional_file_lets_the_steward_write_only_taint_rules_of_its_name(
    api: Api, steward: Api, file: str, own: str, other: str
) -> None:
    await shipped.apply(api, shipped.manifests(OPTIONAL / file))
    for name in (other, "of-an-operator"):
        await api.create(taint_rule(name))

    async def forbidden() -> bool:
        try:
            await steward.create(taint_rule("not-ours"), dry_run=True)
        except ApiError as error:
            return "fettle-device-taints" in error.message
        return False

    await waiting.wait_until(forbidden, what="the limits are in force")
    for name in (other, "of-an-operator"):
        with pytest.raises(ApiError, match="fettle-device-taints"):
            await steward.delete("devicetaintrules", name)
    await steward.create(taint_rule(own))
    await steward.delete("devicetaintrules", own)


async def test_as_shipped_the_steward_may_change_no_node(api: Api, steward: Api) -> None:
    await create_node(api, objects.node("n"))
    for change in NODE_WRITES.values():
        with pytest.raises(ApiError, match="cannot patch resource"):
            await steward.request("PATCH", "/api/v1/nodes/n", body=change, form="merge")


async def test_readers_read_and_whoever_edits_the_cluster_writes_policies(
    control_plane: ControlPlane, api: Api
) -> None:
    await define_policies(api)
    await shipped.apply_rbac(api)
    await control_plane.start_controller_manager()  # adds the rights to `view` and `edit`
    await control_plane.create_namespace(OURS)
    for role in ("view", "edit"):
        await make_account(api, role, role, everywhere=True)
    reader = await control_plane.api_as_service_account("fettle-reader", shipped.NAMESPACE)
    viewer = await control_plane.api_as_service_account("view", OURS)
    editor = await control_plane.api_as_service_account("edit", OURS)
    policy = {
        "apiVersion": "fettle.dev/v1alpha1",
        "kind": "DevicePolicy",
        "metadata": {"name": "own"},
        "spec": {},
    }
    async with reader, viewer, editor:
        for account in (reader, viewer):
            for resource in ("devicehealths", "devicepolicies", "pods"):
                await waiting.wait_until(
                    lambda account=account, resource=resource: account.list(resource),  # type: ignore[misc]
                    lambda found: found == [],
                    what=f"{resource} may be listed",
                )
            with pytest.raises(ApiError, match="cannot create resource"):
                await account.create(policy)
        await waiting.wait_until(lambda: editor.create(policy), what="policies may be written")
        await editor.delete("devicepolicies", "own")
        with pytest.raises(ApiError, match='cannot create resource "devicehealths"'):
            await editor.create({**policy, "kind": "DeviceHealth", "status": {}})


@pytest.mark.parametrize("account", [shipped.WEBHOOK_ACCOUNT, shipped.EXTENDER_ACCOUNT])
async def test_webhook_and_extender_may_see_whether_a_steward_leads(
    control_plane: ControlPlane, api: Api, account: str
) -> None:
    await shipped.apply_rbac(api)
    lease = named("fettle-steward", "Lease", "coordination.k8s.io/v1")
    await api.create(lease)
    async with await control_plane.api_as_service_account(account, shipped.NAMESPACE) as asking:
        found = await waiting.wait_until(
            lambda: asking.get("leases", "fettle-steward", shipped.NAMESPACE),
            what="the lease may be read",
        )
    assert found["metadata"]["name"] == "fettle-steward"


async def test_three_processes_do_their_work_each_with_its_own_account(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    """The webhook marks the pod, the extender refuses its node, and the steward wakes it."""
    lost = objects.gpu_devices(1, taints={0: [objects.taint("gpu.nvidia.com/xid", "None", "79")]})
    await create_dra_node(api, "n", lost)
    settings = tmp_path / "settings.yaml"
    settings.write_text("mode: enforce\n")
    await start_registered(api, start_fettle, "webhook", settings=settings)
    extender, _ = await asyncio.gather(
        start_fettle("extender", settings=settings), start_fettle("steward", settings=settings)
    )
    await register_extender(control_plane, extender)
    await api.create(objects.claim("one"))
    await api.create(objects.pod("p", claims={"gpu": "one"}))
    made = await api.get("pods", "p")
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    assert limits["fettle.dev/claims"] == "0"
    await waiting.refused(api, "p", saying="fettle:")
    await api.apply(objects.resource_slice("n", 1, generation=2))
    assert await waiting.bound(api, "p") == "n"
