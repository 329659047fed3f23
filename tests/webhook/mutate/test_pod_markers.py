"""What is injected into the containers of pods: the marker of claims, and restart rules."""

import pytest

from tests.webhook.mutations import CONTEXT, OWN, TRAINING, context_of, injected, mutated, mutation
from tests.webhook.reviews import CLAIMS, Object, pod
from webhook.cluster_features import ALL_PRESERVED, PreservedFields
from webhook.mutate.mutation import Mutation


async def test_a_pod_with_claims_gets_the_marker_as_limit_and_request_of_zero() -> None:
    done = await mutated(pod(resourceClaims=CLAIMS))
    marker = {"fettle.dev/claims": "0"}
    assert done["spec"]["containers"][0]["resources"] == {"limits": marker, "requests": marker}
    assert done["spec"]["containers"][1]["resources"] == {}
    assert injected(done) == {
        "policy": None,
        "values": {
            f"spec.containers[0].resources.{part}[fettle.dev/claims]": "0"
            for part in ("limits", "requests")
        },
    }


async def test_other_resources_of_the_container_stay() -> None:
    resources = {"limits": {"cpu": "4"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    done = await mutated(
        pod(resourceClaims=CLAIMS, containers=[{"name": "main", "resources": resources}])
    )
    assert done["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "4", "fettle.dev/claims": "0"},
        "requests": {"cpu": "1", "memory": "1Gi", "fettle.dev/claims": "0"},
    }


async def test_a_container_without_resources_gets_them() -> None:
    done = await mutated(pod(resourceClaims=CLAIMS, containers=[{"name": "main"}]))
    assert done["spec"]["containers"][0]["resources"]["limits"] == {"fettle.dev/claims": "0"}


BY_CLASS = "deviceclass.resource.kubernetes.io/gpu"


@pytest.mark.parametrize("group", ["containers", "initContainers"])
@pytest.mark.parametrize(
    ("resource", "claims"),
    [(BY_CLASS, []), (BY_CLASS, CLAIMS), ("nvidia.com/gpu", CLAIMS), ("example.com/own", CLAIMS)],
)
async def test_beside_an_extended_resource_the_marker_requests_nothing(
    group: str, resource: str, claims: list[Object]
) -> None:
    """If a class stands behind that, the scheduler looks for more than zero of a marker, too."""
    needs = {"limits": {resource: "1"}, "requests": {resource: "1"}}
    spec: Object = {"resourceClaims": claims, "containers": [{"name": "main"}]}
    spec[group] = [{"name": "main", "resources": needs}]
    done = await mutated(pod(None, **spec))
    found = done["spec"]["containers"][0]["resources"]
    assert found["limits"]["fettle.dev/claims"] == found["requests"]["fettle.dev/claims"] == "0"


@pytest.mark.parametrize("quantity", ["0", "1"])
async def test_a_marker_on_another_container_is_enough(quantity: str) -> None:
    marker = {"fettle.dev/claims": quantity}
    marked = {"limits": marker, "requests": marker}
    containers = [{"name": "main"}, {"name": "side", "resources": marked}]
    assert await mutation(pod(resourceClaims=CLAIMS, containers=containers)) == Mutation()


async def test_a_pod_of_a_scheduler_that_does_not_ask_fettle_gets_no_marker() -> None:
    theirs = pod(resourceClaims=CLAIMS, schedulerName="second")
    assert await mutation(theirs) == Mutation()
    ours = pod(resourceClaims=CLAIMS, schedulerName="default-scheduler")
    assert (await mutation(ours)).patch != ()
    assert (await mutation(theirs, by=CONTEXT._replace(schedulers=("a", "second")))).patch != ()
    assert await mutation(ours, by=CONTEXT._replace(schedulers=())) == Mutation()


async def test_a_pod_of_a_scheduler_that_does_not_ask_fettle_gets_its_policys_tolerations() -> None:
    done = await mutated(pod(TRAINING, resourceClaims=CLAIMS, schedulerName="second"))
    assert sorted(injected(done)["values"]) == [
        f"spec.tolerations[node.kubernetes.io/{taint}].tolerationSeconds"
        for taint in ("not-ready", "unreachable")
    ]
    assert done["spec"]["containers"][0]["resources"] == {}


@pytest.mark.parametrize("annotations", [None, TRAINING])
async def test_a_pod_that_another_webhook_gives_to_such_a_scheduler_loses_its_marker(
    annotations: Object | None,
) -> None:
    """The API server asks again after the other one changed the pod."""
    marked = await mutated(pod(annotations, resourceClaims=CLAIMS))
    marked["spec"]["schedulerName"] = "second"
    marked["spec"]["containers"].insert(0, {"name": "sidecar"})
    done = await mutated(marked)
    assert "fettle.dev/claims" not in str(done)
    assert ("fettle.dev/injected" in str(done)) is (annotations is not None)


async def test_a_marker_that_an_author_wrote_stays_whatever_the_scheduler() -> None:
    marked = {"limits": {"fettle.dev/claims": "1"}, "requests": {"fettle.dev/claims": "1"}}
    containers = [{"name": "main", "resources": marked}]
    theirs = pod(resourceClaims=CLAIMS, schedulerName="second", containers=containers)
    assert await mutation(theirs) == Mutation()


async def test_policy_and_marker_together_are_one_record() -> None:
    done = await mutated(pod(TRAINING, resourceClaims=CLAIMS))
    assert len(injected(done)["values"]) == 4


async def test_an_earlier_record_is_added_to() -> None:
    """As when another webhook adds a claim, and the API server asks again."""
    first = await mutated(pod(TRAINING))
    first["spec"]["resourceClaims"] = CLAIMS
    second = await mutated(first)
    assert injected(second)["policy"] == "training"
    assert len(injected(second)["values"]) == 4


async def test_an_unreadable_record_is_replaced() -> None:
    done = await mutated(pod({**TRAINING, "fettle.dev/injected": "[1"}))
    assert injected(done)["policy"] == "training"


async def test_a_static_pods_mirror_is_left_alone() -> None:
    mirror = pod({**TRAINING, "kubernetes.io/config.mirror": "x"}, resourceClaims=CLAIMS)
    assert await mutation(mirror) == Mutation()


# --- pods: containers that start again

RESTARTING = context_of({"failure": {"restartContainerOnExitCodes": [42, 3]}})


async def test_containers_of_a_pod_that_never_restarts_start_again_on_the_policys_codes() -> None:
    done = await mutated(pod(OWN, restartPolicy="Never"), by=RESTARTING)
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [3, 42]}}]
    for container in done["spec"]["containers"]:
        assert container["restartPolicy"] == "Never"
        assert container["restartPolicyRules"] == rules
    assert injected(done)["values"]["spec.containers[main].restartPolicyRules"] == rules


@pytest.mark.parametrize(("heeded", "action"), [(True, "RestartAllContainers"), (False, "Restart")])
async def test_all_containers_start_again_where_the_policy_says_so_and_the_cluster_can(
    heeded: bool, action: str
) -> None:
    failure = {"restartContainerOnExitCodes": [42], "restartAction": "RestartAllContainers"}
    cluster = ALL_PRESERVED._replace(restart_all=heeded)
    by = context_of({"failure": failure})._replace(preserved=cluster)
    done = await mutated(pod(OWN, restartPolicy="Never"), by=by)
    rules = [c["restartPolicyRules"] for c in done["spec"]["containers"]]
    assert {rule["action"] for of_one in rules for rule in of_one} == {action}


async def test_a_container_that_says_itself_when_it_restarts_is_left_alone() -> None:
    containers = [{"name": "main", "restartPolicy": "OnFailure"}, {"name": "side"}]
    done = await mutated(pod(OWN, restartPolicy="Never", containers=containers), by=RESTARTING)
    assert done["spec"]["containers"][0] == containers[0]
    assert "restartPolicyRules" in done["spec"]["containers"][1]


@pytest.mark.parametrize("restart", ["Always", "OnFailure", None])
async def test_where_containers_restart_anyway_there_is_nothing_to_inject(
    restart: str | None,
) -> None:
    assert (await mutation(pod(OWN, restartPolicy=restart), by=RESTARTING)).patch == ()


async def test_a_cluster_too_old_for_restart_rules_gets_none() -> None:
    old = RESTARTING._replace(preserved=PreservedFields(tolerations=True, alternatives=True))
    assert (await mutation(pod(OWN, restartPolicy="Never"), by=old)).patch == ()
    unknown = await mutation(
        pod(OWN, restartPolicy="Never"), by=RESTARTING._replace(preserved=None)
    )
    assert (unknown.patch, unknown.undecided) == ((), "gates")
