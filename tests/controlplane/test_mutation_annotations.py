"""Annotations that say something in vain: the real API server sends what has them, and nothing else
for them, and passes the warnings on; and how an operator sees whether it asks at all."""

from __future__ import annotations

import pytest

from tests.controlplane import objects, shipped, waiting
from tests.controlplane.api import Api, Object
from tests.controlplane.conftest import StartFettle
from tests.controlplane.installed import start_registered, trusted
from tests.controlplane.mutating import reviewed

SCORE = {"fettle.dev/min-score": "0.99x"}
TYPO = {"fettle.dev/polcy": "training"}
TRAINING, SCAVENGER = {"fettle.dev/policy": "training"}, {"fettle.dev/policy": "scavenger"}
PERMITTED_BYTES = 256 * 2**10
"""Of all annotations of an object."""


def deployment(annotations: Object, template: Object) -> Object:
    labels = {"app": "w"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": "default", "annotations": annotations},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": objects.pod_template(
                labels=labels, annotations=template, restart_policy="Always"
            ),
        },
    }


def cron_job(on_jobs: Object) -> Object:
    template = {"metadata": {"annotations": on_jobs}, "spec": {"template": objects.pod_template()}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": template},
    }


def as_many_as_there_may_be(last: Object) -> Object:
    """The shortest annotations, up to the size that the API server permits."""
    found: Object = {}
    room = PERMITTED_BYTES - sum(len(key) + len(value) for key, value in last.items())
    number = 0
    while room >= (size := len(key := f"a{number:x}")):
        found[key] = ""
        room, number = room - size, number + 1
    return {**found, **last}


def told(api: Api) -> str:
    """The warnings of the last reply."""
    return " ".join(api.warnings)


@pytest.fixture
async def asked(api: Api, start_fettle: StartFettle) -> None:
    await start_registered(api, start_fettle, "webhook")
    await waiting.wait_until(
        lambda: api.create(objects.pod("first", annotations=TYPO), dry_run=True),
        lambda _: bool(api.warnings),
        what="the API server asks the webhook",
    )


@pytest.mark.usefixtures("asked")
async def test_plain_pods_are_warned_of_annotations_that_have_no_effect(api: Api) -> None:
    await api.create(objects.pod("score", annotations=SCORE))
    assert "fettle.dev/min-score: '0.99x' is not a number" in told(api)
    await api.create(objects.pod("typo", annotations=TYPO))
    assert told(api).startswith("Pod default/typo: fettle: annotation fettle.dev/polcy: ")


@pytest.mark.usefixtures("asked")
async def test_workloads_are_warned_of_their_own_annotations_and_their_templates(api: Api) -> None:
    await api.create(objects.job("j", job_annotations=TRAINING, annotations=SCAVENGER))
    assert "'training' on this Job but 'scavenger' in" in told(api)
    await api.create(deployment({}, TYPO))
    assert "fettle.dev/polcy in spec.template.metadata: " in told(api)
    await api.create(cron_job(TYPO))
    assert "fettle.dev/polcy in spec.jobTemplate.metadata: " in told(api)
    await api.create(objects.claim("g", annotations=TYPO))
    assert "fettle.dev/policy if that is meant" in told(api)
    for plural, name in (("jobs", "j"), ("deployments", "w"), ("resourceclaims", "g")):
        added = {"metadata": {"annotations": {"fettle.dev/min_score": "0.9"}}}
        await api.patch(plural, name, added)
        assert "write fettle.dev/min-score if that is meant" in told(api), plural


@pytest.mark.usefixtures("asked")
async def test_what_has_as_many_annotations_as_there_may_be_is_still_sent(api: Api) -> None:
    """The conditions have a budget, beyond which an object would pass unseen."""
    many = as_many_as_there_may_be(TYPO)
    await api.create(objects.pod("p", annotations=many))
    assert "write fettle.dev/policy if that is meant" in told(api)
    await api.create(deployment({}, many))
    assert "in spec.template.metadata: Fettle has no such" in told(api)
    many = as_many_as_there_may_be({})
    await api.create(objects.job("j", job_annotations=many))
    assert api.warnings == []
    keys = list(many)
    removed = dict.fromkeys(keys[: len(keys) // 10])
    await api.patch("jobs", "j", {"metadata": {"annotations": {**removed, **TYPO}}})
    assert "write fettle.dev/policy if that is meant" in told(api)


async def test_how_long_ago_the_api_server_asked_is_told(
    api: Api, start_fettle: StartFettle
) -> None:
    fettle = await start_fettle("webhook")
    shipped_ones = shipped.webhook_configurations(fettle.webhook_port)
    (mutating,) = (one for one in shipped_ones if one["kind"] == "MutatingWebhookConfiguration")
    await api.apply(mutating)
    await waiting.wait_until(
        lambda: api.get("mutatingwebhookconfigurations", "fettle"), trusted, what="a caBundle"
    )
    await api.create(objects.pod("plain"))
    _, said = await fettle.browse("/readyz", verbose="")
    assert "\nwebhook: the API server has not asked yet" in said
    assert await reviewed(fettle) == 0
    await api.create(objects.pod("training", gpus=1, annotations=TRAINING))
    _, said = await fettle.browse("/readyz", verbose="")
    assert "\nwebhook: last asked: mutate 0 s ago, validate never" in said
