"""Which resources the API server serves, and at which path: read from its aggregated discovery, so
that tests name a resource by its plural (`pods`, `devicepolicies`) or hand in a manifest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@dataclass(frozen=True)
class Resource:
    plural: str
    kind: str
    group: str
    version: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str | None, namespace: str | None, subresource: str | None = None) -> str:
        parts = ["/apis" if self.group else "/api", self.api_version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


class Served:
    """The resources of one moment; the preferred version of a group comes first."""

    def __init__(self, groups: Iterable[dict[str, Any]] = ()) -> None:
        self.resources = [resource for group in groups for resource in _resources(group)]

    def named(self, name: str) -> Resource | None:
        """By plural, or by `plural.group` or `plural.group/version` where that is ambiguous."""
        for resource in self.resources:
            full = f"{resource.plural}.{resource.group}"
            if name in (resource.plural, full, f"{full}/{resource.version}"):
                return resource
        return None

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        for resource in self.resources:
            if (resource.api_version, resource.kind) == (api_version, kind):
                return resource
        return None


def _resources(group: dict[str, Any]) -> Iterable[Resource]:
    name = group.get("metadata", {}).get("name", "")
    for version in group["versions"]:
        for found in version.get("resources", []):
            if kind := found.get("responseKind", {}).get("kind"):
                namespaced = found["scope"] == "Namespaced"
                yield Resource(found["resource"], kind, name, version["version"], namespaced)
