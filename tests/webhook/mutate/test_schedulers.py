"""Pods and templates of a policy that names a scheduler go by that instead of the default one."""

import copy
import json

import pytest

from fettle.model import ANNOTATION
from tests.webhook.mutate.workloads import KINDS, USING, at, of_kind, template
from tests.webhook.mutate.workloads import deployment as deployment_of
from tests.webhook.mutations import OWN, cluster, context_of, injected, mutated, mutation, updated
from tests.webhook.reviews import Object, job, pod
from webhook.mutate.mutation import MutationContext

OURS = "fettle-scheduler"
ASKING = ("default-scheduler", OURS)


def by(scheduler: str | None = OURS, schedulers: tuple[str, ...] = ASKING) -> MutationContext:
    placement = {} if scheduler is None else {"scheduler": scheduler}
    return context_of({"placement": placement}, schedulers=schedulers)


def deployment() -> Object:
    """As the API server fills it in."""
    return deployment_of(schedulerName="default-scheduler")


def scheduler_of(object: Object) -> str | None:
    found: str | None = template(object)["spec"].get("schedulerName")
    return found


@pytest.mark.parametrize("own", [{}, {"schedulerName": "default-scheduler"}])
async def test_a_pod_that_would_go_by_the_default_scheduler_goes_by_that_of_its_policy(
    own: Object,
) -> None:
    made = await mutated(pod(OWN, **USING, **own), by=by())
    assert made["spec"]["schedulerName"] == OURS
    assert injected(made)["values"]["spec.schedulerName"] == OURS


async def test_who_names_another_scheduler_keeps_it() -> None:
    made = await mutated(pod(OWN, **USING, schedulerName="volcano"), by=by())
    assert made["spec"]["schedulerName"] == "volcano"
    own = deployment_of(schedulerName="volcano")
    assert scheduler_of(await mutated(own, by=by())) == "volcano"


@pytest.mark.parametrize(("scheduler", "marked"), [(OURS, True), ("other", False)])
async def test_the_marker_follows_the_scheduler_that_the_pod_gets(
    scheduler: str, marked: bool
) -> None:
    made = await mutated(pod(OWN, **USING), by=by(scheduler))
    assert ("fettle.dev/claims" in str(made["spec"]["containers"][0])) is marked


async def test_a_scheduler_that_does_not_ask_fettle_is_warned_of() -> None:
    (warning,) = (await mutation(pod(OWN, **USING), by=by("other"))).warnings
    assert "scheduler other is not in the setting scheduler.names" in warning
    assert (await mutation(pod(OWN, **USING), by=by())).warnings == ()


async def test_nobody_else_is_given_away() -> None:
    for made in (
        await mutated(pod(OWN, **USING), by=by(None)),
        await mutated(pod(**USING), by=by()),  # names no policy
        await mutated(pod(), cluster({ANNOTATION: "own"}), by()),  # uses no devices
        await mutated(pod(OWN, **USING, nodeName="n"), by=by()),
    ):
        assert "schedulerName" not in made["spec"]
    labelled = await mutated(pod(**USING), cluster({ANNOTATION: "own"}), by())
    assert labelled["spec"]["schedulerName"] == OURS


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "apps/DaemonSet"])
async def test_templates_of_every_kind_name_it(kind: str) -> None:
    own, paths = of_kind(kind)
    for path in paths:
        at(own, path)["spec"].update(USING)
    made = await mutated(own, by=by())
    assert [at(made, path)["spec"]["schedulerName"] for path in paths] == [OURS] * len(paths)


async def test_a_changed_policy_alone_changes_no_template() -> None:
    for before, after in ((by(), by(None)), (by(None), by()), (by(), by("other"))):
        made = await mutated(deployment(), by=before)
        scaled = copy.deepcopy(made)
        scaled["spec"]["replicas"] = 3
        assert template(await updated(scaled, made, by=after)) == template(made)


async def test_the_original_manifest_applied_again_changes_no_template() -> None:
    for own in (deployment(), job(OWN, template={**USING, "schedulerName": "default-scheduler"})):
        made = await mutated(copy.deepcopy(own), by=by())
        own["metadata"]["labels"] = {"a": "b"}
        own["spec"]["parallelism"] = 2
        for policy in (by(), by(None)):
            again = await updated(copy.deepcopy(own), made, by=policy)
            assert template(again) == template(made)
            assert injected(again) == injected(made)


async def test_a_template_that_its_author_changes_follows_the_policy_of_now() -> None:
    made = await mutated(deployment(), by=by())
    newer = copy.deepcopy(made)
    template(newer)["spec"]["containers"][0]["image"] = "newer"
    assert scheduler_of(await updated(newer, made, by=by("other"))) == "other"
    off = await updated(newer, made, by=by(None))
    assert scheduler_of(off) is None
    assert "schedulerName" not in json.dumps(off["metadata"])


async def test_an_author_may_choose_another_scheduler_later() -> None:
    made = await mutated(deployment(), by=by())
    newer = copy.deepcopy(made)
    template(newer)["spec"]["schedulerName"] = "volcano"
    assert scheduler_of(await updated(newer, made, by=by())) == "volcano"
