"""What one cluster's API server can do: which versions it serves, and which fields it preserves.

The shipped webhook configurations are fitted to the first. The second decides what is injected: a
field that the API server would drop is not. Beside the flow *watch → inventory → health → verdict →
answer*; reviews read the latest result and never wait for it.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from fettle.api import api_path, kinds
from fettle.client import ServedKind, Session, decoded, served_kinds, server_version
from fettle.config import WorkloadSettings
from fettle.dra import parse_git_version
from fettle.lint import IN_PLACE_RESTART
from fettle.logs import Logger
from fettle.model import DEGRADED_TAINT, ClusterError, Forbidden, Invalid, NotFound, NotServed
from fettle.pacing import keep

PROBE_EVERY_S = 600.0
"""Clusters are upgraded, so they are probed again."""
RETRY_S = 5.0
RESTART_RULES_SINCE, RESTART_ALL_SINCE = (1, 35), (1, 36)
READ_VERSIONS: Mapping[str, tuple[str, ...]] = {"resource.k8s.io": ("v1", "v1beta2", "v1beta1")}
"""API groups of which the webhook reads more versions than its rules name, the best first."""
_OF_CONFIGURED_WORKLOADS = ("workloads.mutate.fettle.dev", "gangs.validate.fettle.dev")
"""The webhook entries whose conditions hold for workloads of any kind."""
_UNKNOWN = "cannot determine which fields the API server preserves"
_NAME = "fettle-probe"
"""Not generated: a refusal names the object, and is logged whenever its text changes."""

Object = dict[str, Any]
ServedKinds = Mapping[str, Sequence[ServedKind]]
"""By API group."""

_log = Logger("fettle.webhook")


# --- the versions that it serves


def groups_to_discover(
    configurations: Iterable[Object], workloads: Iterable[WorkloadSettings]
) -> set[str]:
    """The API groups that these configurations and configured workloads name."""
    rules = (rule for entry in _entries(configurations) for rule in entry.get("rules") or ())
    named = {group for rule in rules for group in rule["apiGroups"]}
    return named | {workload.group for workload in workloads}


def fit_configuration(
    configuration: Object, served: ServedKinds, workloads: Iterable[WorkloadSettings]
) -> Object:
    """The webhook configuration with rules for what is served; an entry without rules is dropped.

    A rule on a version that is not served matches nothing, whatever its matchPolicy: the API server
    converts only between versions that it serves. `workloads` are the kinds that the settings add:
    they get rules too.
    """
    kept = []
    fitted = [
        (entry, [new for rule in entry.get("rules") or () for new in _served_rules(rule, served)])
        for entry in _entries([configuration])
    ]
    shipped = [rule for _, rules in fitted for rule in rules]
    for entry, rules in fitted:
        if entry["name"] in _OF_CONFIGURED_WORKLOADS:
            rules += _workload_rules(workloads, served, shipped)
        if rules:
            kept.append({**entry, "rules": rules})
    return {**configuration, "webhooks": kept}


def _entries(configurations: Iterable[Object]) -> Iterator[Object]:
    for configuration in configurations:
        yield from configuration.get("webhooks") or ()


def _served_rules(rule: Object, served: ServedKinds) -> Iterator[Object]:
    """The rule for each of its groups, in the best version that serves a resource of it."""
    for group in rule["apiGroups"]:
        there = served.get(group, ())
        for version in READ_VERSIONS.get(group, tuple(rule["apiVersions"])):
            plurals = {kind.plural for kind in there if kind.version == version}
            if resources := [name for name in rule["resources"] if name in plurals]:
                new = {"apiGroups": [group], "apiVersions": [version], "resources": resources}
                yield {**rule, **new}
                break


def _workload_rules(
    workloads: Iterable[WorkloadSettings], served: ServedKinds, rules: Sequence[Object]
) -> Iterator[Object]:
    """A rule for each configured workload that is served and that no shipped rule names."""
    ruled = {(group, name) for r in rules for group in r["apiGroups"] for name in r["resources"]}
    for workload in workloads:
        found = (kind for kind in served.get(workload.group, ()) if kind.kind == workload.kind)
        kind = next(found, None)
        if kind is not None and (workload.group, kind.plural) not in ruled:
            yield {
                "apiGroups": [workload.group],
                "apiVersions": [kind.version],
                "operations": ["CREATE", "UPDATE"],
                "resources": [kind.plural],
                "scope": "Namespaced",
            }


# --- the fields that it preserves


class PreservedFields(NamedTuple):
    """Whether claims keep device tolerations and alternatives, and pods keep restart rules, also
    with the action RestartAllContainers; and whether JobSets may restart in place."""

    tolerations: bool = False
    alternatives: bool = False
    restart_rules: bool = False
    restart_all: bool = False
    in_place_restart: bool = False

    def without(self, disabled: Collection[str]) -> "PreservedFields":
        """Those that are heeded too, with these feature gates off."""
        return self._replace(
            tolerations=self.tolerations and "DRADeviceTaints" not in disabled,
            alternatives=self.alternatives and "DRAPrioritizedList" not in disabled,
            restart_all=self.restart_all and "RestartAllContainersOnContainerExits" not in disabled,
        )


ALL_PRESERVED = PreservedFields(True, True, True, True, True)
"""For use without a cluster."""


class FieldProbe:
    """Finds out which injected fields the API server preserves, by server-side dry runs.

    It creates nothing. It works in our own namespace, whose objects are not sent to our webhooks.
    `preserved` is the latest result; None: there is none yet.
    """

    def __init__(
        self,
        session: Session,
        namespace: str,
        *,
        every_s: float = PROBE_EVERY_S,
        retry_s: float = RETRY_S,
    ) -> None:
        self.every_s = every_s
        self.retry_s = retry_s
        self.preserved: PreservedFields | None = None
        self._session = session
        self._namespace = namespace
        self._failure = ""

    async def run(self) -> None:
        """Probe again and again, until cancelled."""
        await keep("probe of the cluster", self._look)

    async def _look(self) -> None:
        try:
            preserved = await self.discover()
        except ClusterError as error:
            if str(error) != self._failure:
                _log.warning(_UNKNOWN, reason=str(error))
            self._failure = str(error)
            await asyncio.sleep(self.retry_s)
            return
        if preserved != self.preserved:
            _log.info("injected fields that the API server preserves", **preserved._asdict())
        self.preserved, self._failure = preserved, ""
        await asyncio.sleep(self.every_s)

    def notes(self) -> list[str]:
        """For `/readyz?verbose`: why the last probe failed, and what follows from that."""
        if not self._failure:
            return []
        does = "goes by what it was" if self.preserved is not None else "injects none of them"
        return [f"webhook: {_UNKNOWN}, so it {does}: {self._failure}"]

    async def discover(self) -> PreservedFields:
        """Raises ClusterError if the API server gives no answer."""
        kinds = await served_kinds(self._session, "resource.k8s.io")
        served = {found.version for found in kinds if found.kind == "ResourceClaim"}
        best_first = READ_VERSIONS["resource.k8s.io"]
        version = next((version for version in best_first if version in served), "v1")
        option = _option() if version == "v1beta1" else {"exactly": _option()}
        exactly = await self._stored(version, option)
        alternatives = await self._stored(
            version, {"firstAvailable": [{"name": "one", **_option()}]}
        )
        stored = exactly.exactly or exactly
        release = parse_git_version(await server_version(self._session))
        return PreservedFields(
            tolerations=bool(stored.tolerations),
            alternatives=bool(alternatives.first_available),
            restart_rules=release >= RESTART_RULES_SINCE,
            restart_all=release >= RESTART_ALL_SINCE,
            in_place_restart=await self._takes_in_place_restart(),
        )

    async def _takes_in_place_restart(self) -> bool:
        """Whether the definition of JobSet that is served has this restartStrategy. Whoever is
        authenticated may read it, but for clusters that changed that."""
        try:
            answer = await self._session.get(_JOBSET_SCHEMAS)
        except (NotServed, NotFound, Forbidden) as error:
            _log.debug("no schema of JobSets", reason=str(error))
            return False
        schemas = decoded(answer, _Document, f"OpenAPI at {_JOBSET_SCHEMAS}").components.schemas
        return any(
            IN_PLACE_RESTART in schema.properties.strategies
            for name, schema in schemas.items()
            if name.endswith(".JobSet")
        )

    async def _stored(self, version: str, request: Object) -> "_Request":
        """The request as it would be stored; an empty one if the claim would be refused.

        The API server drops fields of disabled features in silence, and then refuses some of what
        is left.
        """
        api_version = f"{kinds.CLAIM.group}/{version}"
        path = api_path(api_version, kinds.CLAIM.plural, namespace=self._namespace)
        claim = {
            "apiVersion": api_version,
            "kind": "ResourceClaim",
            "metadata": {"name": _NAME, "namespace": self._namespace},
            "spec": {"devices": {"requests": [{"name": "probe", **request}]}},
        }
        try:
            stored = await self._session.create(path, claim, dry_run=True)
        except (Invalid, NotServed) as error:
            _log.debug("a claim would be refused", reason=str(error))
            return _Request()
        return decoded(stored, _Claim, "dry-run claim").spec.devices.requests[0]


_JOBSET_SCHEMAS = "/openapi/v3/apis/jobset.x-k8s.io/v1alpha2"


class _Strategy(msgspec.Struct, frozen=True):
    enum: Sequence[Any] = ()


class _PolicyFields(msgspec.Struct, frozen=True, rename="camel"):
    restart_strategy: _Strategy = _Strategy()


class _PolicySchema(msgspec.Struct, frozen=True):
    properties: _PolicyFields = _PolicyFields()


class _SpecFields(msgspec.Struct, frozen=True, rename="camel"):
    failure_policy: _PolicySchema = _PolicySchema()


class _SpecSchema(msgspec.Struct, frozen=True):
    properties: _SpecFields = _SpecFields()


class _Fields(msgspec.Struct, frozen=True):
    spec: _SpecSchema = _SpecSchema()

    @property
    def strategies(self) -> Sequence[Any]:
        return self.spec.properties.failure_policy.properties.restart_strategy.enum


class _Schema(msgspec.Struct, frozen=True):
    properties: _Fields = _Fields()


class _Components(msgspec.Struct, frozen=True):
    schemas: Mapping[str, _Schema] = {}


class _Document(msgspec.Struct, frozen=True):
    """OpenAPI of a group's version, of which nothing else is read."""

    components: _Components = _Components()


class _Option(msgspec.Struct, frozen=True):
    tolerations: Sequence[Any] | None = None


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    # In v1beta1 the request itself is the one option, which later versions have in `exactly`.
    tolerations: Sequence[Any] | None = None
    exactly: _Option | None = None
    first_available: Sequence[Any] | None = None


class _Devices(msgspec.Struct, frozen=True):
    requests: Annotated[Sequence[_Request], msgspec.Meta(min_length=1)]


class _Spec(msgspec.Struct, frozen=True):
    devices: _Devices


class _Claim(msgspec.Struct, frozen=True):
    spec: _Spec


def _option() -> Object:
    toleration = {"key": DEGRADED_TAINT, "operator": "Exists", "effect": "NoSchedule"}
    return {"deviceClassName": "fettle.dev", "tolerations": [toleration]}
