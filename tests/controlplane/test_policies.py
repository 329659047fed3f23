"""DevicePolicy on the real API server: what it refuses, what it fills in, and that a policy there
is what pods get."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, ApiError, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_policies, define_workloads
from tests.controlplane.fleet import create_dra_node, create_gpu_nodes
from tests.controlplane.installed import install, register_extender, scores, start_registered
from tests.controlplane.objects import policy

SAMPLES = sorted((shipped.DEPLOY / "samples").glob("*.yaml"))


REFUSED: list[tuple[Object, str]] = [
    ({"placement": {"minScore": 1.5}}, "spec.placement.minScore"),
    ({"placement": {"degraded": "Avoid"}}, "spec.placement.degraded"),
    (
        {"placement": {"requires": [{"expression": "true"}]}},
        "must be about device, as in a DRA selector, or about node.labels",
    ),
    ({"placement": {"degraded": "Refuse", "patience": "5 min"}}, "spec.placement.patience"),
    ({"placement": {"degraded": "Refuse", "gangPatience": ""}}, "spec.placement.gangPatience"),
    ({"placement": {"expectedRuntime": "3 days"}}, "spec.placement.expectedRuntime"),
    ({"placement": {"patience": "5m"}}, "patience and gangPatience need degraded: Refuse"),
    ({"placement": {"gangDegraded": "Allow"}}, "spec.placement.gangDegraded"),
    (
        {"placement": {"gangDegraded": "Refuse", "degraded": "Prefer"}},
        "gangDegraded: Refuse contradicts degraded: Prefer",
    ),
    ({"placement": {"previousNode": "Require"}}, "spec.placement.previousNode"),
    ({"placement": {"affinity": "Require"}}, "spec.placement.affinity"),
    ({"placement": {"scheduler": "two words"}}, "spec.placement.scheduler"),
    ({"placement": {"requires": [{"message": "x"}]}}, "requires[0].expression"),
    ({"placement": {"requires": [{"expression": "has(node.labels.a)"}] * 2}}, "Duplicate value"),
    ({"tolerations": {"notReadySeconds": -1}}, "spec.tolerations.notReadySeconds"),
    ({"tolerations": {"devices": [{"value": "x"}]}}, "spec.tolerations.devices[0].key"),
    ({"tolerations": {"devices": [{"key": "a" * 318}]}}, "spec.tolerations.devices[0].key"),
    *(
        ({"tolerations": {"devices": [{"key": key}]}}, "must be a taint's key, name or example.com")
        for key in ("a b", "a..b/x", "a/b/c", "A.b/c", "k" * 64, f"{'a' * 254}/k")
    ),
    ({"tolerations": {"devices": [{"key": "a", "value": "v" * 64}]}}, "devices[0].value"),
    ({"tolerations": {"devices": [{"key": "a", "seconds": 9223372037}]}}, "devices[0].seconds"),
    ({"tolerations": {"unreachableSeconds": 2**70}}, "spec.tolerations.unreachableSeconds"),
    (
        {"tolerations": {"devices": [{"key": "a"}, {"key": "a"}]}},
        "each key and value must be listed once",
    ),
    (
        {"tolerations": {"degradedAsFallback": True}, "placement": {"degraded": "Refuse"}},
        "degradedAsFallback needs placement.degraded: Allow",
    ),
    (
        {"tolerations": {"degradedAsFallback": True, "devices": [{"key": "fettle.dev/degraded"}]}},
        "what is tolerated is not a fallback",
    ),
    ({"failure": {"failJobOnExitCodes": [0]}}, "spec.failure.failJobOnExitCodes[0]"),
    ({"failure": {"failJobOnExitCodes": [3, 3]}}, "Duplicate value"),
    (
        {"failure": {"failJobOnExitCodes": [3, 4], "restartContainerOnExitCodes": [4]}},
        "a restarted container does not fail its pod",
    ),
    ({"failure": {"backoffLimitPerIndex": -1}}, "spec.failure.backoffLimitPerIndex"),
    ({"failure": {"jobSet": {"rules": [{"name": "1", "action": "FailJobSet"}]}}}, "rules[0].name"),
    ({"failure": {"jobSet": {"rules": [{"name": "a", "action": "Retry"}]}}}, "rules[0].action"),
    (
        {
            "failure": {
                "jobSet": {
                    "rules": [{"name": "a", "action": "FailJobSet", "targetReplicatedJobs": ["A"]}]
                }
            }
        },
        "targetReplicatedJobs[0]",
    ),
    ({"failure": {"jobSet": {"maxRestarts": 2**31}}}, "spec.failure.jobSet.maxRestarts"),
    ({"validation": {"rules": {"ClaimTooLarge": "Deny"}}}, "named by their id, such as FTL010"),
    ({"validation": {"rules": {"FTL010": "Never"}}}, "spec.validation.rules"),
]


async def test_what_makes_no_sense_is_refused_with_our_message_and_the_rest_is_filled_in(
    api: Api,
) -> None:
    await define_policies(api)
    for spec, says in REFUSED:
        with pytest.raises(ApiError) as refusal:
            await api.create(policy("wrong", spec))
        assert refusal.value.code == 422, spec
        assert says in refusal.value.message, (spec, refusal.value.message)
    with pytest.raises(ApiError, match="at most 63 characters"):
        await api.create(policy("long" * 16, {}))
    longest = f"{'a.' * 126}b/{'k' * 63}"
    await api.create(policy("longest", {"tolerations": {"devices": [{"key": longest}]}}))
    request = {"key": longest, "operator": "Exists", "effect": "NoSchedule"}
    claim = objects.claim("longest")
    claim["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = [request]
    await api.create(claim)
    made = await api.create(policy("empty", {"unknownField": 1}))
    assert made["spec"] == {
        "placement": {
            "minScore": 0.3,
            "degraded": "Allow",
            "unknown": "Allow",
            "aggregate": "Mean",
            "newDriver": "Allow",
            "previousNode": "Allow",
            "affinity": "None",
        },
        "tolerations": {"degradedAsFallback": False},
        "failure": {
            "ignoreDisruptions": False,
            "restartAction": "Restart",
            "onDeviceFailure": "Mark",
            "onLostNode": "None",
            "suspendHopelessJobs": False,
        },
        "validation": {"strict": False},
    }


async def test_every_sample_is_accepted_and_applying_it_again_changes_nothing(
    api: Api, start_fettle: StartFettle
) -> None:
    await define_policies(api)
    await define_workloads(api)
    await api.create(objects.device_class())
    await api.create(objects.device_class("fettle.dev", selectors=["false"]))
    await start_registered(api, start_fettle, "webhook")
    assert len(SAMPLES) >= 10
    changed = 0
    for file in SAMPLES:
        for document in shipped.manifests(file):
            first = await _applied(api, document)
            assert not [w for w in api.warnings if "unknown field" in w]
            again = await _applied(api, document)
            assert again.get("spec") == first.get("spec"), file
            assert _of_ours(again) == _of_ours(first), file
            changed += "fettle.dev/injected" in _of_ours(first)
    assert changed >= 8


async def _applied(api: Api, document: Object) -> Object:
    """Applied as users do, once the policy that it names is known."""

    async def apply() -> Object:
        done = await api.apply(copy.deepcopy(document), dry_run=True)
        if any("there is no policy" in warning for warning in api.warnings):
            raise ApiError(0, "", f"{api.warnings}", "apply")
        return done

    await waiting.wait_until(apply, what=f"the policy of {document['metadata']} is known")
    return await api.apply(copy.deepcopy(document))


def _of_ours(stored: Object) -> Any:
    found = stored["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if key.startswith("fettle.dev/")}


async def test_without_the_definition_the_built_in_policies_go_on(
    api: Api, start_fettle: StartFettle
) -> None:
    fettle = await start_fettle("webhook")
    _, ready = await fettle.browse("/readyz", verbose="true")
    assert "DevicePolicy: not served by this cluster" in ready
    status, found = await fettle.browse("/policy", name="training")
    assert (status, found["source"]) == (200, "built in")
    log = (fettle.folder / "fettle.log").read_text()
    said = [line for line in log.splitlines() if "DevicePolicy" in line]
    assert len(said) == 1, said


async def test_a_policy_decides_where_pods_may_go_and_a_change_of_it_changes_that(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await define_policies(api)
    await create_gpu_nodes(api, "w0")
    name = "short-of-devices"
    await api.patch_status("nodes", "w0", {"allocatable": {objects.GPU: "7"}})
    await api.create(policy(name, {"placement": {"minScore": 0.1, "degraded": "Allow"}}))
    fettle = await start_fettle("extender")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("p", gpus=1, annotations={"fettle.dev/policy": name}, cpu="900"))
    seen = await waiting.wait_until(
        lambda: scores(fettle, "p"), lambda found: "w0" in found, what="the pod is explained"
    )
    assert seen["w0"]["fits"]
    await api.patch("devicepolicies", name, {"spec": {"placement": {"minScore": 1}}})
    await waiting.wait_until(
        lambda: scores(fettle, "p"),
        lambda found: not found["w0"]["fits"],
        what="the stricter policy refuses the node",
    )
    _, shown = await fettle.browse("/policy", pod="default/p")
    (minimum,) = [v for v in shown["values"] if v["field"] == "placement.minScore"]
    assert json.dumps(minimum["value"]) in ("1", "1.0")
    assert minimum["from"] == f"{name} (DevicePolicy)"
    await api.delete("devicepolicies", name)
    await waiting.wait_until(
        lambda: scores(fettle, "p"),
        lambda found: found["w0"]["fits"],
        what="without it the default applies",
    )


async def test_when_the_definition_goes_its_policies_do_and_the_built_in_ones_stay(
    api: Api, start_fettle: StartFettle
) -> None:
    await define_policies(api)
    await api.create(policy("training", {"placement": {"minScore": 0.95}}))
    fettle = await start_fettle("extender")

    async def source() -> str:
        return str((await fettle.browse("/policy", name="training"))[1]["source"])

    await waiting.wait_until(source, lambda s: s == "DevicePolicy", what="ours replaces it")
    await api.delete("customresourcedefinitions", "devicepolicies.fettle.dev")
    await waiting.wait_until(
        source, lambda s: s == "built in", what="the built-in one is back", timeout_s=30
    )
    status, _ = await fettle.browse("/readyz")
    assert status == 200


async def test_each_policy_says_whether_it_is_read_and_what_is_wrong_with_it(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    """With the shipped rights, in mode `observe`. That a policy cannot be read takes a definition
    that is looser than what reads it, as when Fettle is older."""
    await define_policies(api)
    loose = await api.get("customresourcedefinitions", "devicepolicies.fettle.dev")
    (version,) = loose["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["placement"]["properties"]["minScore"]["maximum"] = 2
    await api.replace(loose)
    await api.create(policy("right", {}))
    vain = {"placement": {"requires": [{"expression": "node.stack == 'new'"}]}}
    await api.create(policy("in-vain", vain))
    await waiting.wait_until(
        lambda: api.create(policy("wrong", {"placement": {"minScore": 1.5}})),
        what="the looser definition is in force",
    )
    settings = tmp_path / "settings.yaml"
    settings.write_text(shipped.settings())
    fettle = await start_fettle("steward", settings=settings)

    async def read() -> dict[str, str]:
        return {row["Name"]: row["Read"] for row in await api.table("devicepolicies")}

    wanted = {"right": "AllOfIt", "in-vain": "InPart", "wrong": "Unreadable"}
    await waiting.wait_until(read, lambda found: found == wanted, what="each has its status")
    wrong = {row["Name"]: row["Wrong"] for row in await api.table("devicepolicies")}
    assert "placement.requires[0] is ignored" in wrong["in-vain"]
    assert "$.spec.placement" in wrong["wrong"]
    status = (await api.get("devicepolicies", "right"))["status"]
    assert status["readBy"].startswith("fettle ")
    versions = {
        name: (await api.get("devicepolicies", name))["metadata"]["resourceVersion"]
        for name in wanted
    }

    await api.patch("devicepolicies", "wrong", {"spec": {"placement": {"minScore": 0.5}}})
    wanted["wrong"] = "AllOfIt"
    await waiting.wait_until(read, lambda found: found == wanted, what="it is read")
    right = await api.get("devicepolicies", "wrong")
    (condition,) = right["status"]["conditions"]
    assert condition["observedGeneration"] == right["metadata"]["generation"] == 2
    for name in ("right", "in-vain"):
        now = await api.get("devicepolicies", name)
        assert now["metadata"]["resourceVersion"] == versions[name], "written again"
    assert "cannot be written" not in (fettle.folder / "fettle.log").read_text()


async def test_a_loosened_policy_wakes_the_pods_that_it_kept_waiting(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await define_policies(api)
    await create_gpu_nodes(api, "w0")
    await api.patch_status("nodes", "w0", {"allocatable": {objects.GPU: "7"}})
    await api.create(policy("own", {"placement": {"minScore": 1}}))
    fettle = await start_fettle("extender", "steward")
    await register_extender(control_plane, fettle)
    await api.create(objects.pod("p", gpus=1, annotations={"fettle.dev/policy": "own"}))
    await waiting.refused(api, "p", saying="fettle: no sound devices")
    await api.patch("devicepolicies", "own", {"spec": {"placement": {"minScore": 0.1}}})
    assert await waiting.bound(api, "p") == "w0"


async def test_what_a_policy_requires_of_devices_and_nodes_keeps_pods_off_the_others(
    control_plane: ControlPlane, api: Api, start_fettle: StartFettle
) -> None:
    await define_policies(api)
    for name, cpu, driver in (("old", "512", "535.1.2"), ("new", "16", "570.1.2")):
        devices = [objects.device(f"gpu-{i}", {"driver": driver}) for i in range(4)]
        node = objects.node(name, cpu=cpu, labels={"stack": name})
        await create_dra_node(api, name, devices, node)
    await api.create(objects.claim_template("one-gpu"))
    about_device = 'device.attributes["gpu.nvidia.com"].driver.startsWith("570.")'
    for name, expression in (
        ("by-device", about_device),
        ("by-node", 'node.labels[?"stack"].orValue("") == "new"'),
        ("in-vain", "node.stack == 'new'"),
    ):
        requires = [{"expression": expression, "message": "the new stack"}]
        await api.create(policy(name, {"placement": {"requires": requires}}))
    await control_plane.start_controller_manager()
    fettle = await install(control_plane, api, start_fettle)

    # The scheduler's own scores prefer the node with the most idle processors.
    for name, where in (
        ("inference", "old"),
        ("in-vain", "old"),
        ("by-device", "new"),
        ("by-node", "new"),
    ):
        annotations = {"fettle.dev/policy": name}
        pod = objects.pod(name, templates={"gpu": "one-gpu"}, cpu="2", annotations=annotations)
        await api.create(pod)
        assert await waiting.bound(api, name) == where
    for name in ("by-device", "by-node"):  # of a pod like it, whose claim is not allocated
        further = f"further-{name}"
        annotations = {"fettle.dev/policy": name}
        pod = objects.pod(further, templates={"gpu": "one-gpu"}, annotations=annotations)
        await fettle.ask_extender("filter", {"Pod": pod, "NodeNames": ["old", "new"]})
        verdict = (await scores(fettle, further))["old"]
        assert "the new stack" in verdict["refusals"][0]
    _, shown = await fettle.browse("/policy", name="in-vain")
    assert "placement.requires[0] is ignored" in shown["warnings"][0]
    assert "a policy's requirement is ignored" in (fettle.folder / "fettle.log").read_text()
