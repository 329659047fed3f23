"""AdmissionReviews of every kind with some parts spoilt at random, the same for the same seed; and
what must hold for the answer to each.

`python -m tests.webhook.mutants 1000000` tries a million of them; a second number is the seed.
"""

import asyncio
import copy
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fettle.lint import Linter
from fettle.model import BadInput
from fettle.model.annotations import ANNOTATION
from tests.webhook.mutate.claims import claim, either, exactly, spec, template
from tests.webhook.mutate.workloads import KINDS, workload
from tests.webhook.mutations import cluster, context_of, mutation
from tests.webhook.reviews import CLAIMS, Object, encoded, job, pod, review
from tests.webhook.test_old_versions import flat
from webhook.mutate.mutation import Mutation, mutate
from webhook.patches import apply
from webhook.review import decode
from webhook.validate import ValidationContext, validate

OWN = {ANNOTATION: "own"}
SPEC: Object = {
    "tolerations": {
        "notReadySeconds": 45,
        "unreachableSeconds": 45,
        "devices": [{"key": "a.example.com/b", "seconds": 6}],
        "degradedAsFallback": True,
    },
    "failure": {
        "ignoreDisruptions": True,
        "failJobOnExitCodes": [42],
        "restartContainerOnExitCodes": [75],
        "backoffLimitPerIndex": 2,
        "jobSet": {"maxRestarts": 3},
    },
}
"""A policy of every kind of injection."""
BY = context_of(SPEC)
KNOWN = cluster()
LINTER = Linter()
SOUND: list[Object] = [
    pod(OWN, resourceClaims=CLAIMS, restartPolicy="Never"),
    pod(resourceClaims=CLAIMS),
    job(OWN, completionMode="Indexed", parallelism=4),
    claim(spec(exactly(), either("a", "b"))),
    template(),
    {**claim(spec(flat(), either("a"))), "apiVersion": "resource.k8s.io/v1beta1"},
    *(workload(kind, spec_, OWN) for kind, (spec_, _) in KINDS.items()),
    workload("trainer.kubeflow.org/TrainJob", {"runtimeRef": {}}, OWN),
]
_SCRAPS: list[Any] = [None, True, 0, -1, 2**40, 1.5, "", "x", "Exists", "own", [], {}, [{}], [None]]
_KEYS = [
    "metadata",
    "annotations",
    "spec",
    "name",
    "tolerations",
    "exactly",
    "firstAvailable",
    "key",
]


async def injected() -> list[Object]:
    """The sound objects as they are stored."""
    return [apply(one, (await mutation(one, KNOWN, BY)).patch) for one in SOUND]


def mutants(seed: int, stored: list[Object]) -> Iterator[Any]:
    """Reviews without end."""
    chance = random.Random(seed)
    while True:
        at = chance.randrange(len(SOUND))
        versions = (SOUND[at], stored[at])
        how: Object = {}
        if chance.random() < 0.4:
            how = {"operation": "UPDATE", "oldObject": chance.choice(versions)}
        sent = review(chance.choice(versions), **how)
        for _ in range(chance.randint(1, 3)):
            part = "oldObject" if how and chance.random() < 0.2 else "object"
            sent["request"][part] = _spoilt(chance, sent["request"][part])
        yield _spoilt(chance, sent) if chance.random() < 0.1 else sent


def _spoilt(chance: random.Random, value: Any) -> Any:
    """With one part replaced, removed, doubled or added, at any depth."""
    how = chance.random()
    if not isinstance(value, dict | list) or not value or how < 0.12:
        return copy.deepcopy(chance.choice(_SCRAPS))
    if isinstance(value, list):
        at = chance.randrange(len(value))
        if how < 0.25:
            return [*value[:at], *value[at + 1 :]]
        if how < 0.35:
            return [*value, value[at]]
        return [*value[:at], _spoilt(chance, value[at]), *value[at + 1 :]]
    key = chance.choice(sorted(value))
    if how < 0.25:
        return {name: part for name, part in value.items() if name != key}
    if how < 0.35:
        return {**value, chance.choice(_KEYS): copy.deepcopy(chance.choice(_SCRAPS))}
    return {**value, key: _spoilt(chance, value[key])}


async def tried(sent: Any) -> str:
    """What became of a review; fails where a patch does not fit or is not the last."""
    try:
        request = decode(encoded(sent))
    except BadInput:
        return "no review"
    found = await validate(request, KNOWN, ValidationContext(LINTER, BY.policies))
    assert not found.denied or found.message
    try:
        done = await mutate(request, KNOWN, BY)
    except BadInput:
        return "no patch fits"
    if not done.patch:
        return "unchanged"
    after = apply(request.object, done.patch)
    assert after != request.object
    again = {**sent, "request": {**sent["request"], "object": after}}
    assert (await mutate(decode(encoded(again)), KNOWN, BY))._replace(warnings=()) == Mutation(
        undecided=done.undecided, unknown=done.unknown
    ), sent
    return "changed"


async def try_many(number: int, seed: int) -> Counter[str]:
    """How many of them came to what."""
    results: Counter[str] = Counter()
    for _, sent in zip(range(number), mutants(seed, await injected()), strict=False):
        results[await tried(sent)] += 1
    return results


if __name__ == "__main__":
    print(dict(asyncio.run(try_many(int(sys.argv[1]), seed=int((sys.argv[2:] or ["1"])[0])))))
