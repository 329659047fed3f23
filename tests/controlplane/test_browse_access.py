"""Who sees what of a real Fettle: by tokens of the real API server and with the rights of
deploy/rbac, over HTTP, and with the commands as people type them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from tests.controlplane import objects, waiting
from tests.controlplane.api import Api
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.fettle_process import REPOSITORY, FettleProcess
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import register_extender
from tests.controlplane.kubelet import Kubelet

OURS, OTHERS = "ours", "secret-project"
RBAC = "rbac.authorization.k8s.io"


async def make_account(api: Api, name: str, role: str, *, everywhere: bool = False) -> None:
    """A ServiceAccount of our namespace with a ClusterRole there, or in the whole cluster."""
    about = {"name": name, "namespace": OURS}
    await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about})
    await api.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRoleBinding" if everywhere else "RoleBinding",
            "metadata": {"name": name, **({} if everywhere else {"namespace": OURS})},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", **about}],
        }
    )


@pytest.fixture
async def fettle(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet, start_fettle: StartFettle
) -> FettleProcess:
    """Its scheduler has placed a pod of each of two namespaces, and the kubelet refused another."""
    for namespace in (OURS, OTHERS):
        await control_plane.create_namespace(namespace)
    fettle = await start_fettle("extender")
    await create_node(api, objects.node("n", 8))
    await register_extender(control_plane, fettle)
    for namespace in (OURS, OTHERS):
        await api.create(objects.pod("p", namespace=namespace, gpus=1))
        await waiting.in_phase(api, "p", "Running", namespace=namespace)
    # `view` grants what deploy/rbac/readers.yaml adds to it only after a moment.
    await control_plane.start_controller_manager()
    await make_account(api, "tenant", "view")
    await make_account(api, "reader", "view", everywhere=True)
    # Fettle remembers for a moment what somebody may not do.
    async with await control_plane.api_as_service_account("tenant", OURS) as tenant:
        await waiting.wait_until(
            lambda: tenant.list("pods", OURS), what="`view` has what is added to it"
        )
    return fettle


async def run(
    arguments: list[str], kubeconfig: Path | None, home: Path, **env: str
) -> tuple[int, str]:
    """A command as somebody types it who has this kubeconfig: its exit status and output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FETTLE_")}
    own = {"HOME": str(home), "PYTHONPATH": str(REPOSITORY), **env}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fettle", *arguments),
        env={**kept, **own, "KUBECONFIG": str(kubeconfig) if kubeconfig else ""},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_a_tenant_sees_their_own_namespace_a_reader_devices_and_a_stranger_nothing(
    control_plane: ControlPlane, api: Api, fettle: FettleProcess
) -> None:
    tenant = await control_plane.token("tenant", OURS)
    reader = await control_plane.token("reader", OURS)

    for token, status in (("", 401), ("x.y.z", 401), (tenant[:-4], 401), (tenant, 200)):
        assert (await fettle.browse_as(token, "/pods"))[0] == status

    _, told = await waiting.wait_until(  # the API server learns of new rights after a moment
        lambda: fettle.browse_as(tenant, "/pods"),
        lambda answer: bool(answer[1]["pods"]),
        what="the tenant sees pods",
    )
    assert [pod["pod"] for pod in told["pods"]] == [f"{OURS}/p"]
    _, told = await fettle.browse_as(tenant, "/decisions")
    assert {one["key"] for one in told["decisions"]} == {f"{OURS}/p"}
    status, told = await fettle.browse_as(tenant, "/explain", pod=f"{OURS}/p")
    assert (status, told["nodes"]["n"]["fits"]) == (200, True)
    for path, named in (
        ("/devices", "list devicehealths.fettle.dev"),
        ("/explain?node=n", "list devicehealths.fettle.dev"),
        (f"/explain?pod={OTHERS}/p", f"list pods in namespace '{OTHERS}'"),
        ("/policy?name=training", "get devicepolicies.fettle.dev 'training'"),
    ):
        status, told = await fettle.browse_as(tenant, path)
        assert status == 403
        user = f"system:serviceaccount:{OURS}:tenant"
        assert f"{user} may not {named}" in told["error"]

    status, _ = await waiting.wait_until(
        lambda: fettle.browse_as(reader, "/devices"),
        lambda answer: answer[0] == 200,
        what="`view` on the cluster shows devices",
    )
    for path in ("/pods", "/decisions", "/records", "/policy?name=inference"):
        _, told = await fettle.browse_as(reader, path)
        assert f"{OTHERS}/p" in json.dumps(told)

    # What a token was good for ends soon after it.
    await api.delete("serviceaccounts", "tenant", OURS)
    await waiting.wait_until(
        lambda: fettle.browse_as(tenant, "/pods"),
        lambda answer: answer[0] == 401,
        what="a token of an account that is gone is nobody's",
    )


async def test_a_fettle_that_may_not_review_says_so_and_answers_nobody(
    control_plane: ControlPlane, api: Api, fettle: FettleProcess
) -> None:
    reader = await control_plane.token("reader", OURS)
    role = await api.get("clusterroles", "fettle")
    role["rules"] = [one for one in role["rules"] if one["apiGroups"] != ["authentication.k8s.io"]]
    await api.replace(role)

    async def ask() -> tuple[int, object]:
        return await fettle.browse_as(await control_plane.token("reader", OURS), "/pods")

    _, told = await waiting.wait_until(
        ask, lambda answer: answer[0] == 503, what="without its right Fettle answers 503"
    )
    assert "tokenreviews" in str(told)
    assert (await fettle.browse_as("", "/readyz"))[0] == 200
    assert (await fettle.browse_as(reader, "/metrics"))[0] == 200
    assert (await fettle.browse("/pods"))[0] == 200  # by the socket


async def test_commands_send_the_users_own_token(
    control_plane: ControlPlane, api: Api, fettle: FettleProcess, tmp_path: Path
) -> None:
    tenant = await control_plane.kubeconfig_for_service_account("tenant", OURS)
    server = ["--server", fettle.browse_url]

    status, said = await run(["pods", *server], tenant, tmp_path)
    assert status == 0
    assert f"{OURS}/p" in said
    assert OTHERS not in said
    for command in (["explain", "pod", f"{OURS}/p"], ["decisions"], ["report"]):
        status, said = await run([*command, *server], tenant, tmp_path)
        assert status == 0, said
        assert OTHERS not in said
    status, said = await run(["devices", *server], tenant, tmp_path)
    assert status == 1
    assert "may not list devicehealths.fettle.dev" in said

    # kubeadm's admin has a certificate alone.
    admin = control_plane.kubeconfig_for_user("admin", "system:masters")
    for command in (["devices"], ["pods"], ["decisions"], ["report"], ["explain", "node", "n"]):
        status, said = await run([*command, *server], admin, tmp_path)
        assert status == 0, said
    status, said = await run(["pods", *server], admin, tmp_path)
    assert f"{OTHERS}/p" in said
    somebody = control_plane.kubeconfig_for_user("somebody")
    status, said = await run(["pods", *server], somebody, tmp_path)
    assert status == 1
    assert "token of ServiceAccount fettle-system/fettle-reader" in said

    # A token that is given goes first, and nobody needs a kubeconfig for that.
    token = await control_plane.token("tenant", OURS)
    (tmp_path / "token").write_text(f"{token}\n")
    given = ["--token-file", str(tmp_path / "token")]
    assert (await run(["pods", *server, *given], None, tmp_path))[0] == 0
    assert OTHERS not in (await run(["pods", *server, *given], admin, tmp_path))[1]
    assert (await run(["pods", *server], None, tmp_path, FETTLE_TOKEN=token))[0] == 0
    status, said = await run(["pods", *server], None, tmp_path)
    assert status == 1
    assert "this needs a token: send the header" in said
