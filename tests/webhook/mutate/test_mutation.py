"""What Fettle does not change, and that a second pass changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fettle.model.annotations import ANNOTATION
from tests.webhook.mutations import TRAINING, mutated, mutation
from tests.webhook.reviews import CLAIMS, NOT_READY, UNREACHABLE, Object, job, pod, tolerations
from webhook.mutate.mutation import Mutation


@pytest.mark.parametrize(
    ("object", "request_fields"),
    [
        (pod(TRAINING, resourceClaims=CLAIMS), {"operation": "UPDATE"}),
        (job(TRAINING), {"operation": "UPDATE"}),
        (pod(TRAINING, resourceClaims=CLAIMS), {"subResource": "status"}),
        ({**pod(TRAINING), "kind": "Podlike"}, {}),
        ({**job(TRAINING), "apiVersion": "example.com/v1"}, {}),
        (job(TRAINING), {"operation": "CONNECT"}),
        (job(TRAINING), {"userInfo": {"username": "system:kube-scheduler"}}),
    ],
)
async def test_objects_that_fettle_does_not_change_get_no_patch(
    object: Object, request_fields: Object
) -> None:
    operation = request_fields.pop("operation", "CREATE")
    assert await mutation(object, operation=operation, **request_fields) == Mutation()


@given(
    name=st.sampled_from(["training", "inference", "scavenger", "none", ""]),
    listed=st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "key": st.sampled_from([NOT_READY, UNREACHABLE, "other", ""]),
                "operator": st.sampled_from(["Exists", "Equal", ""]),
                "effect": st.sampled_from(["NoExecute", "NoSchedule", ""]),
                "tolerationSeconds": st.sampled_from([300, 60, 1]),
            },
        ),
        max_size=4,
    ),
    claims=st.booleans(),
)
async def test_any_pod_is_stable_after_one_pass(
    name: str, listed: list[Object], claims: bool
) -> None:
    spec: Object = {"tolerations": listed, **({"resourceClaims": CLAIMS} if claims else {})}
    done = await mutated(pod({ANNOTATION: name}, **spec))
    after = done["spec"]["tolerations"]
    assert len(after) <= len(listed) + 2
    for old, new in zip(listed, after, strict=False):
        assert new == old or old in tolerations()  # only the API's own defaults are edited
