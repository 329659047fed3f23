"""Webhook configurations are fitted to what a cluster serves, and it is probed for the fields that
it preserves.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from fettle.client import ServedKind, Session
from fettle.config import WorkloadSettings
from fettle.model import ClusterError
from tests.webhook.reviews import Object
from webhook.cluster_features import (
    FieldProbe,
    PreservedFields,
    ServedKinds,
    fit_configuration,
    groups_to_discover,
)


class ApiServer:
    """Stores claims without the fields of features that are off, and answers dry runs with them."""

    def __init__(self) -> None:
        self.off: set[str] = set()
        self.versions = {"v1": "resourceclaims"}
        """What is served of the group: a resource in each version."""
        self.version = "v1.37.1"
        self.page = False
        self.jobset: str | None = None
        """The restart strategies of the JobSet that is served."""
        self.serves = True
        self.answers_nothing = False
        self.answers_oddly = False
        self.quota = False
        self.asked: list[dict[str, str]] = []

    async def create(self, request: web.Request) -> web.Response:
        self.asked.append({"path": request.path, **request.query})
        claim = await request.json()
        if self.quota:
            return web.json_response(_over_quota(claim["metadata"]), status=403)
        (asked,) = claim["spec"]["devices"]["requests"]
        for option in (asked.get("exactly", {}), *asked.get("firstAvailable", [])):
            if "tolerations" in self.off:
                option.pop("tolerations", None)
        if not self.serves:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        if "alternatives" in self.off and "firstAvailable" in asked:
            said = {"kind": "Status", "code": 422, "message": "exactly one is required"}
            return web.json_response(said, status=422)
        if self.answers_oddly:
            asked["exactly"] = "one"
        return web.json_response([] if self.answers_nothing else claim, status=201)

    async def tell_versions(self, request: web.Request) -> web.Response:
        versions = [{"version": version} for version in self.versions]
        return web.json_response({"kind": "APIGroup", "versions": versions})

    async def tell_resources(self, request: web.Request) -> web.Response:
        plural = self.versions[request.match_info["version"]]
        kind = {"resourceclaims": "ResourceClaim", "devicetaintrules": "DeviceTaintRule"}[plural]
        return web.json_response({"resources": [{"name": plural, "kind": kind}]})

    async def tell_schemas(self, request: web.Request) -> web.Response:
        if self.jobset is None:
            return web.Response(text="404 page not found", status=404)
        if self.jobset == "forbidden":
            return web.json_response({"kind": "Status", "code": 403}, status=403)
        return web.json_response(_open_api(*self.jobset.split()))

    async def tell_version(self, request: web.Request) -> web.Response:
        if self.page:
            return web.Response(text="<title>Please log in</title>", content_type="text/html")
        return web.json_response({"gitVersion": self.version})


def _over_quota(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refusals by admission name the object, which has its generated name by then."""
    name = metadata.get("name") or metadata["generateName"] + secrets.token_hex(3)
    said = f'resourceclaims.resource.k8s.io "{name}" is forbidden: exceeded quota: default'
    return {"kind": "Status", "code": 403, "message": said}


def _open_api(*strategies: str) -> dict[str, Any]:
    """What an API server says of JobSet's definition, but for all other fields."""
    strategy: Any = {"type": "string", "enum": [*strategies]}
    policy = {"properties": {"maxRestarts": {"format": "int32"}, "restartStrategy": strategy}}
    spec = {"properties": {"failurePolicy": policy, "suspend": {"type": "boolean"}}}
    jobset = {"type": "object", "properties": {"kind": {"type": "string"}, "spec": spec}}
    listed = {"properties": {"items": {"type": "array"}}}
    names = ("io.x-k8s.jobset.v1alpha2.JobSet", "io.x-k8s.jobset.v1alpha2.JobSetList")
    return {
        "openapi": "3.0.0",
        "components": {"schemas": dict(zip(names, (jobset, listed), strict=True))},
    }


@pytest.fixture
def api() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def probe(api: ApiServer, aiohttp_server: Any, tmp_path: Path) -> AsyncIterator[FieldProbe]:
    app = web.Application()
    path = "/apis/resource.k8s.io/{version}/namespaces/{namespace}/resourceclaims"
    app.add_routes(
        [
            web.post(path, api.create),
            web.get("/version", api.tell_version),
            web.get("/openapi/v3/apis/jobset.x-k8s.io/v1alpha2", api.tell_schemas),
            web.get("/apis/resource.k8s.io", api.tell_versions),
            web.get("/apis/resource.k8s.io/{version}", api.tell_resources),
        ]
    )
    server = await aiohttp_server(app)
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": str(server.make_url(""))}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(kubeconfig))
    async with await Session.open(file) as session:
        yield FieldProbe(session, "fettle-system")


async def test_a_cluster_may_preserve_every_field(api: ApiServer, probe: FieldProbe) -> None:
    assert await probe.discover() == PreservedFields(True, True, True, True)
    assert {asked["dryRun"] for asked in api.asked} == {"All"}
    assert {"fettle-system" in asked["path"] for asked in api.asked} == {True}


@pytest.mark.parametrize(
    ("jobset", "served"),
    [
        (None, False),
        ("forbidden", False),
        ("Recreate BlockingRecreate", False),
        ("Recreate BlockingRecreate InPlaceRestart", True),
    ],
)
async def test_the_definition_of_jobset_says_whether_it_restarts_in_place(
    api: ApiServer, probe: FieldProbe, jobset: str | None, served: bool
) -> None:
    api.jobset = jobset
    assert (await probe.discover()).in_place_restart is served


@pytest.mark.parametrize(
    ("off", "preserved"),
    [
        ({"tolerations"}, PreservedFields(False, True, True, True)),
        ({"alternatives"}, PreservedFields(True, False, True, True)),
        ({"tolerations", "alternatives"}, PreservedFields(False, False, True, True)),
    ],
)
async def test_fields_of_disabled_features_are_not_preserved(
    api: ApiServer, probe: FieldProbe, off: set[str], preserved: PreservedFields
) -> None:
    api.off = off
    assert await probe.discover() == preserved


@pytest.mark.parametrize("versions", [["v1beta2", "v1beta1"], ["v1beta1"]])
async def test_the_best_served_version_is_probed(
    api: ApiServer, probe: FieldProbe, versions: list[str]
) -> None:
    api.versions = dict.fromkeys(versions, "resourceclaims")
    assert await probe.discover() == PreservedFields(True, True, True, True)
    assert {asked["path"].split("/")[3] for asked in api.asked} == {versions[0]}


async def test_a_version_that_serves_no_claims_is_not_probed(
    api: ApiServer, probe: FieldProbe
) -> None:
    api.versions = {"v1beta2": "devicetaintrules", "v1beta1": "resourceclaims"}
    assert await probe.discover() == PreservedFields(True, True, True, True)
    assert {asked["path"].split("/")[3] for asked in api.asked} == {"v1beta1"}


async def test_a_cluster_that_serves_no_claims_preserves_none_of_their_fields(
    api: ApiServer, probe: FieldProbe
) -> None:
    api.serves = False
    assert await probe.discover() == PreservedFields(False, False, True, True)


@pytest.mark.parametrize(
    ("version", "kept", "all_"),
    [
        ("v1.34.9", False, False),
        ("v1.35.0-eks-3025e55", True, False),
        ("v1.36.0", True, True),
        ("v2.0.0", True, True),
        ("", False, False),
    ],
)
async def test_restart_rules_come_with_1_35_and_those_for_all_containers_with_1_36(
    api: ApiServer, probe: FieldProbe, version: str, kept: bool, all_: bool
) -> None:
    api.version = version
    found = await probe.discover()
    assert (found.restart_rules, found.restart_all) == (kept, all_)
    off = found.without(["RestartAllContainersOnContainerExits"])
    assert (off.restart_rules, off.restart_all) == (kept, False)


async def test_a_response_that_is_no_claim_is_an_error(api: ApiServer, probe: FieldProbe) -> None:
    api.answers_nothing = True
    with pytest.raises(ClusterError, match="a valid dry-run claim"):
        await probe.discover()


async def test_the_page_of_a_proxy_is_an_error(api: ApiServer, probe: FieldProbe) -> None:
    api.page = True
    with pytest.raises(ClusterError, match=r"not a valid version.*proxy"):
        await probe.discover()


async def test_a_claim_with_a_malformed_request_is_an_error(
    api: ApiServer, probe: FieldProbe
) -> None:
    api.answers_oddly = True
    with pytest.raises(ClusterError, match="a valid dry-run claim"):
        await probe.discover()


async def test_the_latest_result_is_kept(api: ApiServer, probe: FieldProbe) -> None:
    running = asyncio.create_task(probe.run())
    try:
        async with asyncio.timeout(20):
            while (latest := probe.preserved) is None:
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
    assert latest == PreservedFields(True, True, True, True)


def test_fields_that_the_scheduler_ignores_are_not_injected() -> None:
    assert PreservedFields(True, True, True, True).without(
        {"DRAPrioritizedList"}
    ) == PreservedFields(True, False, True, True)
    assert PreservedFields(True, True, True, True).without({"DRADeviceTaints"}) == PreservedFields(
        False, True, True, True
    )


async def test_a_refusal_that_stays_the_same_is_logged_once(
    api: ApiServer, probe: FieldProbe
) -> None:
    probe.retry_s = 0.0
    api.quota = True
    with capture_logs() as logs:
        running = asyncio.create_task(probe.run())
        while len(api.asked) < 5:
            await asyncio.sleep(0.01)
        running.cancel()
    (told,) = (log for log in logs if log["log_level"] == "warning")
    assert "exceeded quota" in told["reason"]
    assert probe.preserved is None


async def test_while_the_probe_fails_a_note_says_why_and_what_follows(
    api: ApiServer, probe: FieldProbe
) -> None:
    probe.retry_s = 0.0
    assert probe.notes() == []
    api.quota = True
    running = asyncio.create_task(probe.run())
    async with asyncio.timeout(20):
        while not (notes := probe.notes()):
            await asyncio.sleep(0.01)
        (note,) = notes
        assert "so it injects none of them" in note
        assert note.endswith("is forbidden: exceeded quota: default")
        api.quota = False
        while probe.notes():
            await asyncio.sleep(0.01)
    assert probe.preserved == PreservedFields(True, True, True, True)
    running.cancel()


async def test_the_last_result_is_used_until_a_new_probe_succeeds(
    api: ApiServer, probe: FieldProbe
) -> None:
    probe.retry_s = 0.0
    probe.every_s = 0.0
    running = asyncio.create_task(probe.run())
    async with asyncio.timeout(20):
        while probe.preserved is None:
            await asyncio.sleep(0.01)
        api.quota = True
        while not (notes := probe.notes()):
            await asyncio.sleep(0.01)
    running.cancel()
    assert "so it goes by what it was" in notes[0]
    assert probe.preserved == PreservedFields(True, True, True, True)


def rule(group: str, version: str, *resources: str, **more: Any) -> Object:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["CREATE"],
        "resources": list(resources),
        **more,
    }


def entry(name: str, *rules: Object) -> Object:
    return {"name": name, "failurePolicy": "Ignore", "rules": list(rules)}


def configuration(*entries: Object) -> Object:
    return {"kind": "MutatingWebhookConfiguration", "webhooks": list(entries)}


def served(**groups: list[tuple[str, str]]) -> ServedKinds:
    """By group, (version, plural) in the server's order; `_` is the core group."""
    return {
        group.replace("__", ".").strip("_"): [
            ServedKind(version, plural.title().removesuffix("s"), plural)
            for version, plural in kinds
        ]
        for group, kinds in groups.items()
    }


def rules_of(done: Object) -> list[list[Any]]:
    return [
        [r["apiGroups"], r["apiVersions"], r["resources"]]
        for entry in done["webhooks"]
        for r in entry["rules"]
    ]


@pytest.mark.parametrize(
    ("versions", "best"),
    [
        (["v1", "v1beta2", "v1beta1"], "v1"),
        (["v1beta1", "v1beta2"], "v1beta2"),
        (["v1beta1"], "v1beta1"),
        (["v1alpha3", "v1beta1"], "v1beta1"),
    ],
)
def test_rules_for_claims_name_the_best_version_that_is_served(
    versions: list[str], best: str
) -> None:
    shipped = configuration(entry("claims", rule("resource.k8s.io", "v1", "resourceclaims")))
    there = served(resource__k8s__io=[(version, "resourceclaims") for version in versions])
    assert rules_of(fit_configuration(shipped, there, ())) == [
        [["resource.k8s.io"], [best], ["resourceclaims"]]
    ]


def test_resources_that_are_not_served_are_left_out_of_rules() -> None:
    many = rule("ray.io", "v1", "rayjobs", "rayclusters", scope="Namespaced")
    many["apiGroups"] = ["ray.io", "kubeflow.org"]
    shipped = configuration(
        entry("pods", rule("", "v1", "pods")), entry("gangs", many), entry("other", rule("x", "v1"))
    )
    there = served(_=[("v1", "pods")], ray__io=[("v1", "rayjobs"), ("v1alpha1", "rayclusters")])
    done = fit_configuration(shipped, there, ())
    assert rules_of(done) == [[[""], ["v1"], ["pods"]], [["ray.io"], ["v1"], ["rayjobs"]]]
    assert done["webhooks"][0] == shipped["webhooks"][0]
    assert done["webhooks"][1]["rules"][0]["scope"] == "Namespaced"
    assert groups_to_discover([shipped], ()) == {"", "ray.io", "kubeflow.org", "x"}


def test_workloads_of_the_settings_get_rules_where_they_are_served() -> None:
    own = [
        WorkloadSettings(group="apps.example.com", kind="Train", templates=("spec.template",)),
        WorkloadSettings(group="apps.example.com", kind="Absent", templates=("spec.template",)),
        WorkloadSettings(group="apps", kind="Deployment", templates=("spec.template",)),
    ]
    shipped = configuration(
        entry("workloads.mutate.fettle.dev", rule("apps", "v1", "deployments")),
        entry("pods", rule("", "v1", "pods")),
    )
    there = served(
        _=[("v1", "pods")],
        apps=[("v1", "deployments")],
        apps__example__com=[("v2", "trains"), ("v1", "trains")],
    )
    assert rules_of(fit_configuration(shipped, there, own)) == [
        [["apps"], ["v1"], ["deployments"]],
        [["apps.example.com"], ["v2"], ["trains"]],
        [[""], ["v1"], ["pods"]],
    ]
    judged = configuration(
        entry("workloads.validate.fettle.dev", rule("apps", "v1", "deployments")),
        entry("gangs.validate.fettle.dev", rule("jobset.x-k8s.io", "v1alpha2", "jobsets")),
    )
    assert rules_of(fit_configuration(judged, there, own)) == [
        [["apps"], ["v1"], ["deployments"]],
        [["apps.example.com"], ["v2"], ["trains"]],
    ]
    assert groups_to_discover([shipped], own) == {"", "apps", "apps.example.com"}
