"""Policies: which one applies, and what it says."""

from aiohttp import web

from fettle.browse.access import Viewer, pods_in
from fettle.browse.known import Known, Query, as_json, namespace_of
from fettle.browse.reviews import Right
from fettle.cluster import View
from fettle.explain import explain_policy
from fettle.model import ANNOTATION, why_unreadable
from fettle.pacing import pause, run_within
from fettle.scheduling import resolve_policy


class PolicyHandlers:
    def __init__(self, known: Known) -> None:
        self._known = known

    async def policy(self, query: Query, viewer: Viewer) -> web.Response:
        """?pod=NAMESPACE/NAME: the policy that applies to it. ?name=NAME: that policy, the
        namespaces that name it, and the pods that it applies to. Each value says where it is from.
        """
        view, policies = self._known.answers.view, self._known.answers.policies
        if key := query.get("pod", ""):
            await viewer.require(pods_in(namespace_of(key)))
            pod = self._known.pod(key)
            if pod is None:
                return self._known.unknown_pod(key)
            resolved = resolve_policy(pod, view, policies)
            ignored = await self._known.answers.ignored(resolved.policy)
            return as_json(explain_policy(resolved, ignored, self._known.stewardship))
        name = query.get("name", "")
        await viewer.require(Right("get", "devicepolicies", "fettle.dev", name=name))
        found = policies.named(name, view.policies)
        if found is None:
            known = ", ".join(policies.names(view.policies))
            why = why_unreadable(name, view.quarantined)
            no = f"{name!r} cannot be read ({why})" if why else f"there is no policy {name!r}"
            return as_json({"error": f"{no}; known: {known}"}, 404)
        named = [n for n, labels in view.namespaces.items() if labels.get(ANNOTATION) == name]
        pods = await run_within(None, lambda: self._pods_of(name, view))
        ignored = await self._known.answers.ignored(found.policy)
        shown = await viewer.shown([*named, *map(namespace_of, pods)])
        users = {
            "namespaces": sorted(name for name in named if name in shown),
            "pods": sorted(key for key in pods if namespace_of(key) in shown),
        }
        return as_json({**explain_policy(found, ignored, self._known.stewardship), **users})

    def _pods_of(self, policy: str, view: View) -> list[str]:
        """Keys of the pods that a policy applies to."""
        found = []
        for key, pod in view.pods.items():
            if resolve_policy(pod, view, self._known.answers.policies).policy.name == policy:
                found.append(key)
            pause()
        return found
