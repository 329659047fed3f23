"""The chart as Helm renders it: over many values, what is rendered and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from fettle.config import Settings, load_settings
from tests.deploy import charting, rendering
from tests.deploy.charting import SCHEDULED, UNSCHEDULED, HelmFailed, objects
from tests.deploy.rendering import MATRIX
from tests.deploy.shipped import written

pytestmark = [pytest.mark.helm, pytest.mark.usefixtures("helm")]


KUBERNETES_OWN = (
    "system:kube-scheduler",
    "system:volume-scheduler",
    "extension-apiserver-authentication-reader",
)


def named(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in found if one["kind"] == kind}


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_helm_finds_nothing_to_complain_about(values: Any) -> None:
    said = charting.run("lint", "--strict", str(charting.CHART), given=values)
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_each_object_is_there_once_in_a_namespace_that_it_may_be_in(values: Any) -> None:
    found = objects(values)
    keys = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in found]
    assert len(keys) == len(set(keys))
    assert {namespace for _, namespace, _ in keys} <= {
        None,
        charting.NAMESPACE,
        "kube-system",
        "kube-node-lease",
        "fettle-dry-run",
    }


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_whom_a_role_is_bound_to_and_what_a_pod_names_is_rendered_too(values: Any) -> None:
    found = objects(values)
    there = {(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in found}
    for binding in (o for o in found if o["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        role, namespace = binding["roleRef"], binding["metadata"].get("namespace")
        kind = (role["kind"], namespace if role["kind"] == "Role" else None, role["name"])
        assert kind in there or role["name"] in KUBERNETES_OWN
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in there
    for workload in (o for o in found if o["kind"] in ("Deployment", "DaemonSet")):
        namespace, pod = workload["metadata"]["namespace"], workload["spec"]["template"]["spec"]
        assert ("ServiceAccount", namespace, pod["serviceAccountName"]) in there
        given_by_users = {"fettle-extender-clients"}
        for volume in pod["volumes"]:
            if name := volume.get("configMap", {}).get("name"):
                assert name in given_by_users or ("ConfigMap", namespace, name) in there


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_no_pod_gets_more_than_it_needs(values: Any) -> None:
    for workload in (o for o in objects(values) if o["kind"] in ("Deployment", "DaemonSet")):
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        assert pod.get("hostNetwork", False) is (workload["kind"] == "DaemonSet")


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX)
def test_the_settings_are_ones_that_fettle_reads(values: Any, tmp_path: Any) -> None:
    for config_map in named(objects(values), "ConfigMap").values():
        if "settings.yaml" in config_map["data"]:
            file = tmp_path / "settings.yaml"
            file.write_text(config_map["data"]["settings.yaml"])
            assert load_settings(file).mode == "observe"


def test_as_it_is_fettle_observes_beside_the_scheduler() -> None:
    found = objects({})
    assert set(named(found, "Deployment")) == {"fettle-webhook", "fettle-steward"}
    assert set(named(found, "DaemonSet")) == {"fettle-extender-a", "fettle-extender-b"}
    assert named(found, "ConfigMap")["fettle"]["data"]["settings.yaml"] == "mode: observe\n"
    for daemons in named(found, "DaemonSet").values():
        args = daemons["spec"]["template"]["spec"]["containers"][0]["args"]
        assert [a for a in args if "browse" in a and "127.0.0.1" in a]
        assert not [a for a in args if "extender-listen" in a], "it is on loopback by default"


def test_a_second_scheduler_asks_the_extender_beside_it_and_is_known_to_the_webhook() -> None:
    def names(found: list[dict[str, Any]], config_map: str) -> Any:
        settings = named(found, "ConfigMap")[config_map]["data"]["settings.yaml"]
        return yaml.safe_load(settings).get("scheduler", {}).get("names")

    alone = {"secondScheduler": {"enabled": True, "managedResources": ["example.com/npu"]}}
    found = objects({**alone, "extender": {"type": "None"}})
    assert names(found, "fettle") == names(found, "fettle-scheduler") == ["fettle-scheduler"]
    both = objects({**alone, "settings": {"mode": "enforce"}})
    assert names(both, "fettle") == ["default-scheduler", "fettle-scheduler"]
    own = {"mode": "observe", "scheduler": {"names": ["mine"]}}
    assert names(objects({**alone, "settings": own}), "fettle") == ["mine"]
    for made, ignorable in ((found, True), (both, False)):
        data = named(made, "ConfigMap")["fettle-scheduler"]["data"]
        (entry,) = yaml.safe_load(data["kube-scheduler-config.yaml"])["extenders"]
        assert entry["ignorable"] is ignorable
        assert entry["managedResources"][-1] == {"name": "example.com/npu"}


def test_of_the_two_daemons_on_a_host_only_one_is_replaced_at_once() -> None:
    """And they tell each other's ports and pods apart."""
    one, other = named(objects({}), "DaemonSet").values()
    strategies = [d["spec"]["updateStrategy"]["type"] for d in (one, other)]
    assert strategies == ["RollingUpdate", "OnDelete"]
    assert one["spec"]["selector"] != other["spec"]["selector"]
    users = {d["spec"]["template"]["spec"]["securityContext"]["runAsUser"] for d in (one, other)}
    ports = {
        d["spec"]["template"]["spec"]["containers"][0]["ports"][0]["containerPort"]
        for d in (one, other)
    }
    assert len(users) == 1
    assert ports == {8090, 8091}


def test_beside_the_scheduler_the_extender_may_write_nothing() -> None:
    found = objects({})
    account = {"kind": "ServiceAccount", "name": "fettle-extender", "namespace": "kube-system"}
    bindings = [o for o in found if account in o.get("subjects", ())]
    roles = {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings}
    assert roles == {("ClusterRole", "fettle"), ("Role", "fettle-extender")}
    granted = [o for o in found if (o["kind"], o["metadata"]["name"]) in roles]
    assert {right for role in granted for right in written(role)} == {
        ("create", "tokenreviews"),
        ("create", "subjectaccessreviews"),
    }


RIGHTS = {
    "fettle-health-taints": {"settings": {"deviceTaints": {"unhealthy": "NoSchedule"}}},
    "fettle-node-marks": {"settings": {"nodeMarks": {"label": True}}},
    "fettle-kueue": {"settings": {"kueue": {"admissionCheck": True}}},
    "fettle-pod-conditions": {"settings": {"deviceFailures": {"allow": "Mark"}}},
    "fettle-pod-evictions": {"settings": {"deviceFailures": {"allow": "Evict"}}},
    "fettle-pod-force-deletes": {
        "settings": {"deviceFailures": {"allow": "Mark", "forceDeleteSeconds": 900}}
    },
    "fettle-lint": {"settings": {"lint": {"watch": ["ResourceQuota"]}}},
    "fettle-hold-taints": {"rights": {"holdTaints": True}},
    "fettle-suspend-jobs": {"rights": {"suspendJobs": True}},
    "fettle-wake-by-node": {"rights": {"wakeByNode": True}},
    "fettle-object-rules": {
        "rights": {"objects": [{"apiGroups": ["batch"], "resources": ["jobs"]}]}
    },
}


def optional_roles(values: Any) -> set[str]:
    every = named(objects({**rendering.PLAIN, **rendering.ALL_RIGHTS}), "ClusterRole")
    always = named(objects(rendering.PLAIN), "ClusterRole")
    return {*named(objects(values), "ClusterRole")} & ({*every} - {*always})


@pytest.mark.parametrize(("role", "values"), RIGHTS.items(), ids=RIGHTS)
def test_one_value_switches_on_what_is_done_and_the_right_to_do_it(role: str, values: Any) -> None:
    ends_pods = role in ("fettle-pod-evictions", "fettle-pod-force-deletes")
    beside = {"fettle-pod-conditions"} if ends_pods else set()
    assert optional_roles(values) == {role} | beside


def test_every_right_that_deploy_has_is_switched_on_by_some_value() -> None:
    assert optional_roles({}) == set()
    every = optional_roles({**rendering.PLAIN, **rendering.ALL_RIGHTS})
    assert every == set(RIGHTS)


@pytest.mark.parametrize(
    ("section", "off"),
    [
        ("nodeMarks", {"label": False}),
        ("deviceFailures", {"allow": None}),
        ("deviceTaints", {"unhealthy": None}),
    ],
)
def test_what_is_switched_off_keeps_its_right_to_take_back_what_it_wrote(
    section: str, off: Any
) -> None:
    assert len(optional_roles({"settings": {section: off}})) == 1


@pytest.mark.parametrize("role", ["webhook", "extender"])
def test_with_cert_manager_a_deployment_is_as_the_patch_for_it_makes_it(role: str) -> None:
    name = f"fettle-{role}"
    plain, signed = (
        named(objects(values), "Deployment")[name]["spec"]["template"]["spec"]
        for values in (rendering.PLAIN, {**rendering.PLAIN, **rendering.SIGNED})
    )
    patch = yaml.safe_load((rendering.DEPLOY / f"certificates/patches/{role}.yaml").read_text())
    changes = patch["spec"]["template"]["spec"]
    volumes = {one["name"]: one for one in plain["volumes"]}
    for one in changes["volumes"]:
        volumes[one["name"]] = {key: value for key, value in one.items() if value is not None}
    mounts = {one["name"]: one for one in plain["containers"][0]["volumeMounts"]}
    mounts |= {one["name"]: one for one in changes["containers"][0]["volumeMounts"]}
    assert {one["name"]: one for one in signed["volumes"]} == volumes
    assert {one["name"]: one for one in signed["containers"][0]["volumeMounts"]} == mounts


def test_cert_manager_is_asked_for_what_somebody_uses() -> None:
    beside = objects(rendering.SIGNED)
    assert set(named(beside, "Certificate")) == {"fettle-ca", "fettle-webhook"}
    over_tls = objects({**rendering.PLAIN, **rendering.SIGNED})
    assert {*named(over_tls, "Certificate")} - {*named(beside, "Certificate")} == {
        "fettle-clients",
        "fettle-extender",
        "fettle-scheduler",
    }
    for found in (beside, over_tls):
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            asked = named(found, kind)["fettle"]["metadata"]["annotations"]
            assert asked == {"cert-manager.io/inject-ca-from": "fettle-system/fettle-webhook"}


def test_definitions_outlast_the_release_and_are_upgraded_with_it() -> None:
    """Helm upgrades what is among its templates, and never what is in `crds/`."""
    definitions = named(objects({}), "CustomResourceDefinition")
    assert set(definitions) == {"devicepolicies.fettle.dev", "devicehealths.fettle.dev"}
    for one in definitions.values():
        assert one["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not (charting.CHART / "crds").exists()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"setings": {}}, "additional properties 'setings' not allowed"),
        ({"image": {"repo": "x"}}, "additional properties 'repo' not allowed"),
        ({"settings": {"mdoe": "enforce"}}, "additional properties 'mdoe' not allowed"),
        ({"settings": {"mode": "enforced"}}, "value must be one of 'enforce', 'observe', 'steer'"),
        ({"settings": {"nodeMarks": {"lable": True}}}, "additional properties 'lable' not allowed"),
        ({"extender": {"type": "Sidecar"}}, "value must be one of"),
        ({"webhook": {"replicas": 0}}, "minimum"),
        ({"image": {"digest": "latest"}}, "does not match pattern"),
        ({"image": {"tag": "0.1.0@sha256:0"}}, "at '/image/tag'"),
        ({"settings": None}, "missing property 'settings'"),
        ({"steward": None}, "missing property 'steward'"),
    ],
)
def test_a_misspelt_value_is_named(values: Any, said: str) -> None:
    with pytest.raises(HelmFailed) as failed:
        objects(values)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"settings": {"kueue": {"admissionCheck": True}}, "steward": {"enabled": False}},
            "settings.kueue.admissionCheck needs the steward, which answers Kueue",
        ),
        ({"files": {"settings.yaml": "mode: steer"}}, "would take the place of Fettle's settings"),
        ({"files": {"a/b.yaml": ""}}, 'files has a file "a/b.yaml"'),
        (
            {"secondScheduler": {"enabled": True, "image": {"tag": "1.36.0"}}},
            "secondScheduler.image.tag is 1.36.0, and tags of registry.k8s.io/kube-scheduler begin "
            "with v: say v1.36.0.",
        ),
        *(
            ({"lintReports": {"schedule": one}}, f'lintReports.schedule is "{one}", which is no')
            for one in UNSCHEDULED
        ),
    ],
)
def test_values_that_cannot_work_are_refused_in_a_sentence(values: Any, said: str) -> None:
    with pytest.raises(HelmFailed) as failed:
        objects(values)
    assert said in str(failed.value)


@pytest.mark.parametrize("schedule", SCHEDULED)
def test_a_report_comes_at_any_schedule_of_a_cron_job(schedule: str) -> None:
    found = named(objects({"lintReports": {"schedule": schedule}}), "CronJob")
    assert found["fettle-lint-reports"]["spec"]["schedule"] == schedule


def test_the_hook_of_an_uninstall_sees_checks_of_kueue_only_if_fettle_answers_them() -> None:
    for values, sees in (({}, False), ({"settings": {"kueue": {"admissionCheck": True}}}, True)):
        rules = named(objects(values), "ClusterRole")["fettle-withdraw"]["rules"]
        assert any("admissionchecks" in rule["resources"] for rule in rules) is sees


def test_all_defaults_of_the_settings_are_accepted() -> None:
    assert objects({"settings": msgspec.to_builtins(Settings())})


def test_a_rule_may_be_off_without_quotes(tmp_path: Any) -> None:
    """YAML reads `Off` as false."""
    values = yaml.safe_load("settings: {mode: observe, lint: {rules: {FTL010: Off}}}")
    file = tmp_path / "settings.yaml"
    file.write_text(named(objects(values), "ConfigMap")["fettle"]["data"]["settings.yaml"])
    assert load_settings(file).lint.rules == {"FTL010": "Off"}


def test_the_files_of_deploy_are_what_the_chart_renders() -> None:
    wanted = rendering.renderings()
    others = [
        path for path, text in wanted.items() if (rendering.DEPLOY / path).read_text() != text
    ]
    assert others == [], "make them again: make manifests"


def test_each_template_of_a_file_of_deploy_is_among_them() -> None:
    templates = charting.CHART / "templates"
    twins = {
        str(file.relative_to(templates))
        for file in templates.rglob("*.yaml")
        if (rendering.DEPLOY / file.relative_to(templates)).exists()
    }
    assert twins == {*rendering.renderings()} - {rendering.ALERTS, rendering.COPY}
