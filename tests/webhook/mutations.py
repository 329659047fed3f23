"""Mutates objects as the API server does: once, stores them with defaults, and once more."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from fettle.api import kinds, own_group
from fettle.cluster import View, view
from fettle.model import ANNOTATION, BUILT_IN, Policies, Policy
from tests.webhook.reviews import Object, encoded, review, stored
from webhook.mutate.mutation import Mutation, MutationContext, mutate
from webhook.patches import apply
from webhook.review import decode

CONTEXT = MutationContext(Policies())
TRAINING = {ANNOTATION: "training"}
OWN = {ANNOTATION: "own"}


def cluster(labels: Mapping[str, str] | None = None, *, synced: bool = True, **more: Any) -> View:
    """A view that knows the namespace `team` by these labels."""
    known = {"synced": synced, "namespaces": {"team": labels or {}}, **more}
    return msgspec.structs.replace(view.EMPTY, **known)


def policy_of(spec: Object, name: str = "own") -> Policy:
    """A policy as the cluster's DevicePolicy would say it."""
    raw = msgspec.json.encode({"metadata": {"name": name}, "spec": spec})
    decoded = kinds.POLICY.decode(raw)
    assert isinstance(decoded, own_group.DevicePolicy)
    return decoded.policy()


def context_of(spec: Object, **more: Any) -> MutationContext:
    """With a policy `own` of this spec."""
    return MutationContext(Policies({**BUILT_IN, "own": policy_of(spec)}), **more)


async def mutation(
    object: Object, known: View | None = None, by: MutationContext = CONTEXT, **request: Any
) -> Mutation:
    return await mutate(decode(encoded(review(object, **request))), known or cluster(), by)


async def mutated(
    object: Object, known: View | None = None, by: MutationContext = CONTEXT
) -> Object:
    """The object as it is stored; a second pass over that must change nothing."""
    done: Object = stored(apply(object, (await mutation(object, known, by)).patch))
    assert (await mutation(done, known, by)).patch == ()
    return done


async def updated(
    new: Object, old: Object, known: View | None = None, by: MutationContext = CONTEXT
) -> Object:
    """The new object as it replaces the old one; a second pass must change nothing."""
    how: Object = {"operation": "UPDATE", "oldObject": old}
    done: Object = stored(apply(new, (await mutation(new, known, by, **how)).patch))
    assert (await mutation(done, known, by, **how)).patch == ()
    return done


def injected(object: Object) -> Object:
    record: Object = json.loads(object["metadata"]["annotations"]["fettle.dev/injected"])
    return record
