"""What the lint rules catch, on the real thing: without Fettle the API server accepts it, and then
it fails as docs/rules.md says; with Fettle its author is told."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from fettle.lint import RULES, Severity
from tests.controlplane import job_failures, objects, waiting
from tests.controlplane.api import Api, ApiError
from tests.controlplane.conftest import StartFettle
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.definitions import define_workloads
from tests.controlplane.fleet import create_node
from tests.controlplane.installed import start_registered
from tests.controlplane.kubelet import Kubelet
from tests.controlplane.rule_failures import (
    CASES,
    CAUGHT,
    SHOWN,
    create_pod,
    create_world,
    named,
)
from tests.fettle.lint.builders import Object
from tests.fettle.lint.fleets import GPU
from tests.fettle.lint.tables.case import Case

NOT_SERVED = {"FTL034"}
"""Beta versions are off by default."""


async def test_the_api_server_accepts_what_the_rules_catch(api: Api) -> None:
    await define_workloads(api)
    refused: dict[str, str] = {}
    for rule, cases in CAUGHT.items():
        for index, case in enumerate(cases):
            if rule not in NOT_SERVED:
                try:
                    await api.create(named(case.object, f"{rule.lower()}-{index}"))
                except ApiError as error:
                    refused[str(case)] = str(error)
    assert refused == {}


# --- seen to fail

NOTHING_FITS = "cannot allocate all claims"
REFUSED = {
    "FTL001": "device class gpu.nvidia.co does not exist",
    "FTL002": "device class nosuch does not exist",
    "FTL003": NOTHING_FITS,
    "FTL004": NOTHING_FITS,
    "FTL005": "no such key: model",
    "FTL006": "no such overload",
    "FTL007": "no such key",
    "FTL008": "no such key",
    "FTL009": NOTHING_FITS,
    "FTL010": "exceeds the claim limit of 32",
    "FTL011": "exceeds the claim limit of 32",
    "FTL012": NOTHING_FITS,
    "FTL013": NOTHING_FITS,
    "FTL014": NOTHING_FITS,
    "FTL015": NOTHING_FITS,
    "FTL016": NOTHING_FITS,
    "FTL017": NOTHING_FITS,
    "FTL025": NOTHING_FITS,
    "FTL026": NOTHING_FITS,
    "FTL029": NOTHING_FITS,
    "FTL030": NOTHING_FITS,
    "FTL045": "didn't match Pod's node affinity/selector",
    "FTL057": NOTHING_FITS,
    "FTL058": NOTHING_FITS,
    "FTL059": "Insufficient nvidia.com/gpus",
    "FTL060": "Insufficient nvidia.com/gpu",
    "FTL061": "didn't match Pod's node affinity/selector",
}
"""What the scheduler says of a pod with the first object that each rule catches."""


async def test_the_scheduler_refuses_what_can_never_be_allocated(
    control_plane: ControlPlane, api: Api
) -> None:
    await create_world(api)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    for rule in REFUSED:
        await create_pod(api, rule.lower(), CAUGHT[rule][0])
    said = await asyncio.gather(*(outcome(api, rule.lower()) for rule in REFUSED))
    found = dict(zip(REFUSED, said, strict=True))
    assert {rule: text for rule, text in found.items() if REFUSED[rule] not in text} == {}


async def test_a_literal_that_is_none_ends_scheduling(
    control_plane: ControlPlane, api: Api
) -> None:
    """FTL116. The API server accepts it."""
    await create_node(api, objects.node("n"))
    await api.create(objects.resource_slice("n", 1, driver=GPU))
    await api.create(objects.device_class(GPU, driver=GPU))
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    for name, selector in (
        ("quantity", 'quantity("64GB").isInteger()'),
        ("semver", 'semver("570").isLessThan(semver("571.0.0"))'),
    ):
        spec = objects.claim_spec(device_class=GPU, selectors=[selector])
        await api.create(objects.claim(name, spec))
        await api.create(objects.pod(name, claims={"gpu": name}))
        await waiting.refused(api, name, saying="CEL runtime error", timeout_s=30)


async def test_what_goes_wrong_in_other_ways_goes_wrong_as_told(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet
) -> None:
    await create_world(api)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    shown = {**SHOWN, **job_failures.SHOWN}
    tasks = {rule: asyncio.create_task(show(api, kubelet, rule)) for rule, show in shown.items()}
    await asyncio.wait(tasks.values())
    wrong = {rule: repr(task.exception()) for rule, task in tasks.items() if task.exception()}
    assert wrong == {}


def test_the_documentation_says_which_rules_were_seen_to_fail() -> None:
    shown = {*SHOWN, *job_failures.SHOWN}
    seen = {*REFUSED, *(rule.upper() for rule in shown), "FTL032"}
    assert {rule.id for rule in RULES if rule.reproduced} == seen
    assert {rule.id for rule in RULES if rule.on_node} == {rule.id for rule in RULES} - seen


async def test_what_goes_wrong_on_the_node_goes_there_without_a_word(
    control_plane: ControlPlane, api: Api, kubelet: Kubelet
) -> None:
    """The control plane has nothing against it: what follows is up to a driver or a kubelet."""
    await create_world(api)
    await control_plane.start_controller_manager()
    await control_plane.start_scheduler()
    cases = [CAUGHT[rule.id][ALLOCATED.get(rule.id, 0)] for rule in RULES if rule.on_node]
    claims = [case for case in cases if case.object["kind"] == "ResourceClaim"]
    assert len(claims) == 7
    for case in claims:
        name = case.rule.lower()
        await create_pod(api, name, case)
        await waiting.in_phase(api, name, "Running", timeout_s=30)
        assert {event["reason"] for event in await api.events_about(name)} <= {"Scheduled"}
        await api.delete("pods", name, grace_s=0)
        await api.delete("resourceclaims", name)
        await waiting.gone(api, "resourceclaims", name, timeout_s=30)  # and its devices are free


async def test_the_api_server_drops_fields_of_features_that_are_off_without_a_word(
    control_plane: ControlPlane, api: Api
) -> None:
    (case,) = CAUGHT["FTL032"]
    gates = ",".join(f"{gate}=false" for gate in (*case.disabled, "DRADeviceTaintRules"))
    await control_plane.stop_api_server(kill=True)
    await control_plane.start_api_server(f"--feature-gates={gates}")
    stored = await api.create(named(case.object, "dropped"))
    assert api.warnings == []
    assert case.object["spec"]["devices"]["requests"][0]["exactly"]["tolerations"]
    assert "tolerations" not in stored["spec"]["devices"]["requests"][0]["exactly"]


ALLOCATED = {"FTL021": 1}
"""Of what a rule catches, the object for which there is a device, if that is not the first."""

# --- seen to be told


NOT_SENT = {
    "FTL024",
    "FTL032",
    "FTL034",
    "FTL043",
    "FTL048",
    "FTL050",
    "FTL051",
    "FTL052",
    "FTL054",
    "FTL055",
    "FTL063",
    "FTL113",
}
"""Rules about objects that the shipped webhook configuration does not send (Jobs and pods without
devices, DeviceTaintRules), about what only settings know, or about kinds that are watched on
demand (`test_rules_watching.py`)."""
SETTINGS = """
lint:
  strict: true
  driverFeatures:
    gpu.nvidia.com: {TimeSlicingSettings: true, MPSSupport: true, PassthroughSupport: true}
"""


async def test_the_webhook_tells_of_each_mistake_and_of_no_near_miss(
    api: Api, start_fettle: StartFettle, tmp_path: Path
) -> None:
    await create_world(api)
    await define_workloads(api)
    settings = tmp_path / "settings.yaml"
    settings.write_text(SETTINGS)
    await start_registered(api, start_fettle, "webhook", settings=settings)
    wrong: dict[str, str] = {}
    for case in CASES:
        if not is_sent(case):
            continue
        refused, warned = await told(api, named(case.object, "new"))
        said = refused if denies(case) else refused + warned
        if (case.rule in said) is not case.caught:
            wrong[str(case)] = f"refused: {refused}; warned: {warned}"
    assert wrong == {}


async def test_manifests_are_checked_against_a_running_cluster(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    await create_world(api)
    caught = [CAUGHT[rule][0] for rule in ("FTL001", "FTL004", "FTL009", "FTL045")]
    manifests = tmp_path / "manifests.json"
    items = [
        {**case.object, "metadata": {**case.object["metadata"], "name": f"c{number}"}}
        for number, case in enumerate(caught)
    ]
    manifests.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    kubeconfig = control_plane.kubeconfig_for_user("tester", "system:masters")
    lint = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fettle", "lint", manifests, "--output", "json"),
        *("--kubeconfig", kubeconfig, "--fail-on", "warn"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(lint.communicate(), 60)
    assert lint.returncode == 1, err.decode()
    assert {found["rule"] for found in json.loads(out)} == {case.rule for case in caught}


def denies(case: Case) -> bool:
    """In strict mode, what is caught is refused; a near miss may not even be warned of."""
    rule = next(rule for rule in RULES if rule.id == case.rule)
    if not case.caught or case.possible:
        return False
    pod = case.object["kind"] == "Pod"
    default = case.severity or rule.severity
    return rule.strict or (default == Severity.DENY and not pod)


def is_sent(case: Case) -> bool:
    """What is sent, and in the cluster of all tables means what it means in its own."""
    claims_of_its_own = {
        known["metadata"]["name"] for known in case.known if known["kind"] == "ResourceClaim"
    } - {"c"}
    own = bool(claims_of_its_own)
    differs = case.features and not all(case.features["gpu.nvidia.com"].values())
    by_default = "by default" in case.says
    alone = case.rule == "FTL053" and not case.caught  # no old kubelet in the whole cluster
    return not (own or differs or by_default or alone or case.rule in NOT_SENT)


async def told(api: Api, object: Object) -> tuple[str, str]:
    """What a dry run is refused with, and the warnings it comes with."""
    try:
        await api.create(object, dry_run=True)
    except ApiError as error:
        return str(error), " ".join(api.warnings)
    return "", " ".join(api.warnings)


async def outcome(api: Api, pod: str) -> str:
    try:
        return await waiting.refused(api, pod, timeout_s=30)
    except AssertionError as error:
        return str(error)
