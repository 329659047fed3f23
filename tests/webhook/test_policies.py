"""DevicePolicies with parts that have no effect: a warning when they are written, and a metric. And
namespace labels that name no policy: a line in the log.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fettle.cel import Engines, SelectorEngine
from fettle.cluster import EMPTY, Publisher
from fettle.lint import DEFAULT_LEVELS, Linter
from fettle.model import Policies, RuleSeverity
from fettle.model import Validation as Levels
from fettle.model.annotations import ANNOTATION
from tests.webhook.conftest import Serve
from tests.webhook.mutations import cluster, policy_of
from tests.webhook.reviews import CLAIMS, Object, encoded, job, pod, review
from webhook import observing
from webhook.observing import StoredPolicyRules
from webhook.review import decode
from webhook.validate import ValidationContext, ValidationResult, validate

UNKNOWN = {"validation": {"rules": {"FTL999": "Deny", "FTL010": "Warn"}}}
BROKEN = {"placement": {"requires": [{"expression": "device.driver == 'x'"}, {"expression": "x("}]}}


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    engine = SelectorEngine()
    await engine.start()
    yield Engines(engine)
    await engine.close()


def device_policy(spec: Object) -> Object:
    return {
        "apiVersion": "fettle.dev/v1alpha1",
        "kind": "DevicePolicy",
        "metadata": {"name": "own"},
        "spec": spec,
    }


async def validated(
    spec: Object,
    engines: Engines | None = None,
    levels: Levels = DEFAULT_LEVELS,
    *,
    labels_nodes: bool = True,
    **request: Any,
) -> ValidationResult:
    asked = decode(encoded(review(device_policy(spec), namespace="", **request)))
    context = ValidationContext(Linter(), Policies(), levels, engines, labels_nodes=labels_nodes)
    return await validate(asked, EMPTY, context)


async def test_a_rule_that_does_not_exist_is_a_warning_and_never_a_denial() -> None:
    found = await validated(UNKNOWN, levels=Levels(rules={"FTL104": RuleSeverity.DENY}))
    assert found.denied == ()
    (warning,) = found.warned
    assert str(warning) == (
        "FTL104 spec.validation.rules.FTL999: unknown rule FTL999; docs/rules.md lists them"
    )


async def test_a_requirement_that_does_not_compile_is_a_warning(engines: Engines) -> None:
    found = await validated(BROKEN, engines)
    assert found.denied == ()
    (warning,) = found.warned
    assert (warning.rule, warning.field) == ("FTL105", "spec.placement.requires[1].expression")
    assert "does not compile" in warning.message


async def test_evictions_that_count_against_a_job_are_a_warning() -> None:
    found = await validated({"failure": {"onDeviceFailure": "Evict"}})
    assert found.denied == ()
    assert [warning.rule for warning in found.warned] == ["FTL107"]
    spared = {"failure": {"onDeviceFailure": "Evict", "ignoreDisruptions": True}}
    assert await validated(spared) == ValidationResult()


@pytest.mark.parametrize(("deadline", "hasty"), [("0s", True), ("59s", True), ("1m", False)])
async def test_a_deadline_that_leaves_no_time_to_start_is_a_warning(
    deadline: str, hasty: bool
) -> None:
    found = await validated({"failure": {"ignoreDisruptions": True, "startDeadline": deadline}})
    assert found.denied == ()
    told = [(warning.rule, warning.field) for warning in found.warned]
    assert told == [("FTL118", "spec.failure.startDeadline")] * hasty


@pytest.mark.parametrize(
    ("spec", "field", "effective"),
    [
        (
            {"failure": {"restartAction": "RestartAllContainers"}},
            "spec.failure.restartAction",
            {"failure": {"restartContainerOnExitCodes": [75]}},
        ),
        (
            {"placement": {"degraded": "Refuse", "gangDegraded": "Refuse"}},
            "spec.placement.gangDegraded",
            {"placement": {"degraded": "Allow"}},
        ),
        (
            {"placement": {"degraded": "Refuse", "affinity": "Required", "gangPatience": "2h"}},
            "spec.placement.gangPatience",
            {"placement": {"affinity": "Preferred"}},
        ),
    ],
)
async def test_a_field_that_does_nothing_is_a_warning(
    spec: dict[str, Any], field: str, effective: dict[str, Any]
) -> None:
    found = await validated(spec)
    assert found.denied == ()
    (warning,) = found.warned
    assert (warning.rule, warning.field) == ("FTL111", field)
    ((section, fields),) = effective.items()
    assert await validated({section: {**spec[section], **fields}}) == ValidationResult()


async def test_affinity_is_a_warning_where_no_node_is_labelled() -> None:
    for affinity in ("Required", "Preferred"):
        spec = {"placement": {"affinity": affinity}}
        (warning,) = (await validated(spec, labels_nodes=False)).warned
        assert (warning.rule, warning.field) == ("FTL111", "spec.placement.affinity")
        assert "nodeMarks.label" in str(warning)
        assert await validated(spec) == ValidationResult()


async def test_a_policy_that_refuses_what_it_prefers_is_a_warning() -> None:
    found = await validated({"placement": {"minScore": 0.95, "degraded": "Prefer"}})
    assert found.denied == ()
    (warning,) = found.warned
    assert (warning.rule, warning.field) == ("FTL108", "spec.placement.minScore")
    lower = await validated({"placement": {"minScore": 0.79, "degraded": "Prefer"}})
    assert lower == ValidationResult()


async def test_what_a_requirement_says_of_a_node_is_not_in_vain(engines: Engines) -> None:
    about = {"placement": {"requires": [{"expression": '"a" in node.labels'}]}}
    assert await validated(about, engines) == ValidationResult()


async def test_an_unchanged_policy_is_not_warned_of_again() -> None:
    old = device_policy(UNKNOWN)
    assert await validated(UNKNOWN, operation="UPDATE", oldObject=old) == ValidationResult()


async def test_what_stored_policies_say_in_vain_is_logged_once_and_counted() -> None:
    publisher, registry = Publisher(), CollectorRegistry()

    def publish(generation: int, **specs: Object) -> None:
        policies = {name: policy_of(spec, name) for name, spec in specs.items()}
        view = msgspec.structs.replace(EMPTY, generation=generation, synced=True, policies=policies)
        publisher.publish(view, frozenset())

    async def count_is(number: int) -> None:
        async with asyncio.timeout(20):
            while registry.get_sample_value("fettle_webhook_ignored_rules") != number:
                await asyncio.sleep(0.01)

    with capture_logs() as logs:
        running = asyncio.create_task(StoredPolicyRules(publisher, registry).run())
        publish(1, own=UNKNOWN, other=UNKNOWN)
        await count_is(2)
        publish(2, own=UNKNOWN)
        await count_is(1)
        publish(3)
        await count_is(0)
        running.cancel()
    told = [(log["policy"], log["rule"]) for log in logs if log["log_level"] == "warning"]
    assert told == [("other", "FTL999"), ("own", "FTL999")]


async def test_a_namespaces_label_that_names_no_policy_is_logged_once_and_always_counted(
    serve: Serve,
) -> None:
    served = await serve(cluster({ANNOTATION: "trainig"}))
    with capture_logs() as logs:
        for object in (pod(resourceClaims=CLAIMS), job(template={"resourceClaims": CLAIMS})):
            await served.ask("/mutate", object)
            await served.ask("/validate", object)
        await served.ask("/mutate", pod())  # it uses no devices
        await served.ask("/mutate", pod({ANNOTATION: "typo"}, resourceClaims=CLAIMS))
    (log,) = logs
    assert log == {
        "log_level": "warning",
        "event": "a namespace's label fettle.dev/policy names a policy that does not exist: "
        "pods there that name no policy themselves get the cluster's default; correct the label, "
        "or apply the policy",
        "namespace": "team",
        "policy": "trainig",
        "known": ["inference", "scavenger", "training"],
    }
    assert served.counted("unknown_policies") == 4
    served.publish(cluster({ANNOTATION: "other"}))
    with capture_logs() as logs:
        await served.ask("/mutate", pod(resourceClaims=CLAIMS))
    assert [log["policy"] for log in logs] == ["other"]


async def test_a_label_that_an_annotation_overrides_is_not_logged(serve: Serve) -> None:
    served = await serve(cluster({ANNOTATION: "trainig"}))
    with capture_logs() as logs:
        await served.ask("/mutate", pod({ANNOTATION: "training"}, resourceClaims=CLAIMS))
    assert logs == []


async def test_labels_that_change_again_and_again_do_not_fill_the_log(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "MAX_LOGGED_LABELS", 3)
    served = await serve()
    with capture_logs() as logs:
        for number in range(6):
            served.publish(cluster({ANNOTATION: f"x{number}"}))
            await served.ask("/mutate", pod(resourceClaims=CLAIMS))
    assert len(logs) == 3
