"""What policies require of nodes and devices, from the engine's memory."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from structlog.testing import capture_logs

from fettle.api.resource import DeviceAttribute
from fettle.cel import SelectorEngine
from fettle.cluster import NodeView, Publisher
from fettle.config import BreakerSettings
from fettle.dra import AllocatedDevice, Alternative, Claim, Request
from fettle.explain.pods import explain_policy
from fettle.explain.wording import text, texts
from fettle.model import BUILT_IN, DeviceId, Placement, Policy, Requirement, Resolved, reasons
from fettle.scheduling.answers import Answers
from fettle.scheduling.demand import Bound, Demand, Units, WaitStage
from fettle.scheduling.judge.verdicts import Verdict
from tests.fettle import building as b
from tests.fettle.scheduling.clusters import PATIENT

pytestmark = pytest.mark.asyncio(loop_scope="module")  # that of the worker, which all share
VERSION = f'device.attributes["{b.DRIVER}"].driverVersion'
RECENT = Requirement(
    expression=f'{VERSION}.isGreaterThan(semver("569.0.0"))', message="driver 570 or later"
)
ZONE_A = Requirement(expression='node.labels[?"zone"].orValue("") == "a"', message="zone a")
GPU = (Claim("gpu", (Request("r", (Alternative("r", b.DRIVER),)),)),)


def requiring(*requirements: Requirement) -> Policy:
    return Policy(name="picky", placement=Placement(requires=requirements))


def devices(*requirements: Requirement) -> Demand:
    return Demand(requiring(*requirements), claims=GPU)


def units(*requirements: Requirement) -> Demand:
    return Demand(requiring(*requirements), units=(Units(b.RESOURCE, 1),))


def node(name: str = "n", *versions: str, score: float = 1.0, **labels: str) -> NodeView:
    """A node with labels, a device of each driver version ("": it does not say), and a plugin."""
    made = [
        b.device(
            f"gpu-{at}",
            score,
            pool=name,
            attributes={"driverVersion": DeviceAttribute(version=version)} if version else None,
        )
        for at, version in enumerate(versions)
    ]
    pools = (b.looked_at(b.pool(*made, name=name)),) if made else ()
    return msgspec.structs.replace(b.node(name, gpus=2, pools=pools), labels=labels)


@pytest.fixture
def answers(engine: SelectorEngine) -> Answers:
    return Answers(Publisher(), engine, PATIENT)


async def verdicts(answers: Answers, demand: Demand, *nodes: NodeView) -> Mapping[str, Verdict]:
    answers.publisher.publish(b.view(*nodes), frozenset(n.name for n in nodes))
    return (await answers.judged(demand)).verdicts


async def test_a_device_that_does_not_meet_the_policy_keeps_the_pod_off_its_node(
    answers: Answers,
) -> None:
    found = await verdicts(answers, devices(RECENT), node("old", "535.1.2"), node("new", "570.1.2"))
    assert found["new"].fits
    assert not found["new"].undecided
    device = DeviceId(b.DRIVER, "old", "gpu-0")
    assert found["old"].refusals == (
        reasons.DeviceRequirementNotMet("gpu/r", device, "driver 570 or later"),
    )


async def test_only_devices_that_the_scheduler_would_take_must_meet_the_policy(
    answers: Answers,
) -> None:
    found = await verdicts(answers, devices(RECENT), node("n", "535.1.2", "570.1.2"))
    (refusal,) = found["n"].refusals
    assert isinstance(refusal, reasons.DeviceRequirementNotMet)
    assert (refusal.requirement, refusal.passed_over) == ("driver 570 or later", True)
    answers.publisher.publish(
        msgspec.structs.replace(b.view(node("n", "570.1.2", "535.1.2")), generation=2, basis=2),
        frozenset({"n"}),
    )
    assert (await answers.judged(devices(RECENT))).verdicts["n"].fits


async def test_requirements_of_a_node_that_was_never_readable_are_undecided(
    answers: Answers,
) -> None:
    unread = msgspec.structs.replace(node(), unread=True, quarantined=("Node n: wrong",))
    answer = (await verdicts(answers, units(ZONE_A), unread))["n"]
    assert answer.fits
    assert any("zone a" in why for why in texts(answer.undecided))


async def test_the_device_of_an_allocated_claim_must_meet_the_policy_too(answers: Answers) -> None:
    old = node("n", "535.1.2")
    held = AllocatedDevice(old.pools[0].devices[0].id)
    demand = Demand(requiring(RECENT), bound=(Bound("gpu", (held,)),))
    refusal, *_ = (await verdicts(answers, demand, old))["n"].refusals
    assert "is allocated" in text(refusal)


async def test_the_device_of_an_allocated_claim_must_meet_the_policy_during_a_pool_update(
    answers: Answers,
) -> None:
    whole = node("n", "535.1.2")
    (pool,) = whole.pools
    updated = msgspec.structs.replace(pool, devices=(), withheld=pool.devices, incomplete=True)
    demand = Demand(
        requiring(RECENT), bound=(Bound("gpu", (AllocatedDevice(pool.devices[0].id),)),)
    )
    answer = (await verdicts(answers, demand, msgspec.structs.replace(whole, pools=(updated,))))[
        "n"
    ]
    assert answer.undecided == ()
    assert "does not meet the policy: driver 570" in text(answer.refusals[0])


@pytest.mark.parametrize("demand", [devices(ZONE_A), units(ZONE_A)], ids=["claims", "units"])
async def test_a_node_that_does_not_meet_the_policy_is_refused(
    answers: Answers, demand: Demand
) -> None:
    nodes = (node("a", "1.0.0", zone="a"), node("b", "1.0.0", zone="b"), node("c", "1.0.0"))
    found = await verdicts(answers, demand, *nodes)
    assert found["a"].fits
    for other in ("b", "c"):
        assert tuple(texts(found[other].refusals)) == ("node does not meet the policy: zone a",)


async def test_requirements_of_devices_do_not_apply_to_device_plugin_units(
    answers: Answers,
) -> None:
    found = await verdicts(answers, units(RECENT), node("n", "535.1.2"))
    assert found["n"].fits
    assert not found["n"].undecided


async def test_a_requirement_that_ends_in_an_error_is_undecided_and_refuses_nothing(
    answers: Answers,
) -> None:
    found = await verdicts(answers, devices(RECENT), node("n", ""))
    assert found["n"].fits
    assert "no such key" in text(found["n"].undecided[0])


async def test_a_requirement_without_a_message_is_described_by_its_expression(
    answers: Answers,
) -> None:
    bare = Requirement(expression=ZONE_A.expression)
    found = await verdicts(answers, units(bare), node("n"))
    assert tuple(texts(found["n"].refusals)) == (
        f"node does not meet the policy: {ZONE_A.expression}",
    )


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("device.attributes[", "it does not compile"),
        ("nodes.labels.zone == 'a'", "undeclared reference to 'nodes'"),
        ("node.name == 'a'", "undefined field 'name'"),
        ("device.driver == node.labels.driver", "undeclared reference to 'node'"),
        ("node.labels.zone", "must evaluate to bool"),
    ],
)
async def test_a_requirement_that_does_not_compile_is_ignored_and_reported(
    answers: Answers, expression: str, why: str
) -> None:
    wrong = Requirement(expression=expression)
    found = await verdicts(answers, devices(wrong), node("n", "1.0.0"))
    assert found["n"].fits
    assert not answers.table(devices(wrong)).provisional
    policy = requiring(ZONE_A, wrong)
    (said,) = await answers.ignored(policy)
    assert said.startswith("placement.requires[1] is ignored: ")
    assert why in said
    assert said in explain_policy(Resolved(policy, ""), [said])["warnings"]


WRONG = Requirement(expression="devise.driver == 'x'")


async def ignored(logs: Sequence[Mapping[str, Any]], number: int) -> list[Mapping[str, Any]]:
    """The log lines about ignored requirements, once there are so many of them."""
    async with asyncio.timeout(20):
        while len(said := [log for log in logs if "ignored" in log["event"]]) < number:
            await asyncio.sleep(0.01)
    return said


async def test_an_ignored_requirement_is_logged_once(answers: Answers) -> None:
    wrong = requiring(WRONG)
    policies = {"picky": wrong}
    with capture_logs() as logs:
        work = asyncio.ensure_future(answers.keep_ready())
        for turn in (1, 2):
            view = b.view(node("n", "1.0.0", zone=str(turn)), policies=policies)
            view = msgspec.structs.replace(view, generation=turn, basis=turn)
            answers.publisher.publish(view, frozenset({"n"}))
            said, *others = await ignored(logs, turn)
            policies = policies | {"another": msgspec.structs.replace(wrong, name="another")}
        work.cancel()
    assert said["policy"] == "picky"
    assert "undeclared reference to 'devise'" in said["reason"]
    assert [log["policy"] for log in others] == ["another"]


async def test_requirements_are_evaluated_before_any_pod_asks() -> None:
    engine = SelectorEngine()
    answers = Answers(Publisher(), engine, PATIENT)
    await engine.start()
    policy = requiring(RECENT, ZONE_A)
    nodes = [node("good", "570.1.2", zone="a"), node("bad", "570.1.2", zone="b")]
    policies = {"picky": policy, "wrong": requiring(WRONG)}
    answers.publisher.publish(b.view(*nodes, policies=policies), frozenset())
    with capture_logs() as logs:
        work = asyncio.ensure_future(answers.keep_ready())
        await ignored(logs, 1)
        work.cancel()
    await engine.close()
    table = await answers.judged(Demand(policy, claims=GPU))
    assert table.complete(answers.view)
    assert table.refused == {"bad"}


async def test_nodes_share_a_verdict_if_the_required_labels_are_the_same(answers: Answers) -> None:
    nodes = [
        node("a", "570.1.2", zone="a", rack="1"),
        node("b", "570.1.2", zone="a", rack="2"),
        node("c", "570.1.2", zone="c", rack="1"),
        node("d", "535.1.2", zone="a", rack="1"),
    ]
    demand = devices(RECENT, ZONE_A)
    await verdicts(answers, demand, *nodes)
    answers.publisher.publish(
        msgspec.structs.replace(answers.view, generation=2, basis=2), frozenset(answers.view.nodes)
    )
    found = (await answers.judged(demand)).verdicts
    assert found["a"] is found["b"]
    assert {name for name, verdict in found.items() if not verdict.fits} == {"c", "d"}


async def test_an_open_breaker_does_not_overrule_requirements(engine: SelectorEngine) -> None:
    breaker = BreakerSettings(min_nodes=1)
    settings = msgspec.structs.replace(PATIENT, breaker=breaker)
    answers = Answers(Publisher(), engine, settings)
    ill = [node(name, "535.1.2", score=0.1) for name in "abc"]
    health = Demand(BUILT_IN["inference"], claims=GPU, waited=WaitStage.ENOUGH)
    found = await verdicts(answers, health, *ill)
    assert found["a"].fits
    assert found["a"].overruled
    long = msgspec.structs.replace(devices(RECENT), waited=WaitStage.ENOUGH)
    found = (await answers.judged(long)).verdicts
    assert found["a"].overruled
    assert len(found["a"].refusals) == 1
    assert "driver 570" in text(found["a"].refusals[0])


ROOT = Path(__file__).parents[4]
DRIVER = "gpu.nvidia.com"


def shown() -> list[Requirement]:
    """The requirements in samples and documentation."""
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/policies.md").read_text(), re.DOTALL)
    sample = (ROOT / "deploy/samples/requirements.yaml").read_text()
    specs = [*map(yaml.safe_load, blocks), yaml.safe_load(sample)["spec"]]
    placements = [spec["placement"] for spec in specs if "placement" in spec]
    return [msgspec.convert(raw, Requirement) for p in placements for raw in p.get("requires", ())]


@pytest.mark.parametrize("requirement", shown(), ids=lambda r: r.message)
@pytest.mark.parametrize("suits", [True, False], ids=["suits", "does not"])
async def test_the_examples_in_the_docs_work(
    answers: Answers, requirement: Requirement, suits: bool
) -> None:
    version = DeviceAttribute(version="12.8.0" if suits else "12.4.0")
    device = b.device("gpu", driver=DRIVER, attributes={"cudaDriverVersion": version})
    labels = {"nvidia.com/mig.strategy": "none", "kubernetes.io/os": "linux"}
    made = b.node(pools=(msgspec.structs.replace(b.pool(device), driver=DRIVER),))
    made = msgspec.structs.replace(made, labels=labels if suits else {})
    verdict = (await verdicts(answers, devices(requirement), made))["n"]
    assert verdict.fits is suits
    assert not verdict.undecided
