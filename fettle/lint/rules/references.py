"""Rules about the claims, templates and requests that pods name, and pods that share one claim."""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import NamedTuple

from fettle.api import resource
from fettle.api.resource import MAX_RESERVED
from fettle.lint import workload_kinds
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Field, Manifest, ManifestClaim, ManifestPod, objects_at
from fettle.lint.names import nearest

_MAX_SEARCHED = 2000
_SPEC_IN_TEMPLATE = ".template.spec"
_GROUPS: workload_kinds.Table = {
    ("kubeflow.org", "PyTorchJob"): (("spec", "pytorchReplicaSpecs", "*"),),
    ("ray.io", "RayCluster"): (("spec", "workerGroupSpecs", "*"),),
    ("ray.io", "RayJob"): (("spec", "rayClusterSpec", "workerGroupSpecs", "*"),),
}
"""Kinds with several pod templates: the objects that hold a template and its replicas."""


class AbsentClaim(Rule):
    """A pod names a ResourceClaim that does not exist, or is being deleted."""

    id = "FTL037"
    reproduced = True
    name = "absent-claim"
    severity = Severity.WARN
    inventory = True
    absence = True
    today = "The pod stays Pending, without any condition or event for minutes."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        names = cache(partial(_names_in, cluster.view.claims, manifest.namespace))
        for field, name in _claims_named_by(manifest, "resourceClaimName"):
            claim = cluster.claim(manifest.namespace, name)
            where = f"ResourceClaim {manifest.namespace}/{name}"
            if claim is not None and claim.metadata.deletion_timestamp is not None:
                yield self.finding(field, f"{where} is being deleted", "wait, then create it again")
            elif claim is not None:
                continue
            elif other := _elsewhere(cluster.view.claims, manifest, name, cluster, "ResourceClaim"):
                yield self.finding(field, *_in_another(where, manifest.namespace, other))
            elif cluster.knows("ResourceClaim"):
                near = nearest(name, names())
                yield self.finding(
                    field,
                    f"{where} does not exist (yet); until it does, the pod waits silently",
                    f"write {near}" if near else "create it, or use resourceClaimTemplateName",
                )


class AbsentTemplate(Rule):
    """A pod names a ResourceClaimTemplate that does not exist."""

    id = "FTL038"
    reproduced = True
    name = "absent-template"
    severity = Severity.WARN
    inventory = True
    absence = True
    today = (
        "The pod stays Pending with the event `FailedResourceClaimCreation`; retries back "
        "off to 1000 s."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        names = cache(partial(_names_in, cluster.view.templates, manifest.namespace))
        kind, held = "ResourceClaimTemplate", cluster.view.templates
        for field, name in _claims_named_by(manifest, "resourceClaimTemplateName"):
            if cluster.template(manifest.namespace, name) is not None:
                continue
            where = f"{kind} {manifest.namespace}/{name}"
            if other := _elsewhere(held, manifest, name, cluster, kind):
                yield self.finding(field, *_in_another(where, manifest.namespace, other))
            elif cluster.knows(kind):
                near = nearest(name, names())
                yield self.finding(
                    field,
                    f"{where} does not exist (yet)",
                    f"write {near}" if near else "create it before its pods",
                )


def _elsewhere(
    held: Mapping[str, resource.ResourceClaim] | Mapping[str, resource.ResourceClaimTemplate],
    manifest: Manifest,
    name: str,
    cluster: Cluster,
    kind: str,
) -> str:
    """A namespace that has an object of this name, though the pod's has none; "" if none has.

    Of objects in files alone, both must say their namespace: kubectl may put others into any.
    """
    known = cluster.knows(kind)
    if len(held) > _MAX_SEARCHED or not (known or manifest.root.text("metadata", "namespace")):
        return ""
    for key, other in held.items():
        namespace, _, its_name = key.partition("/")
        written = not other.metadata.uid and (known or other.metadata.namespace)
        if its_name == name and written:
            return namespace
    return ""


def _in_another(where: str, namespace: str, other: str) -> tuple[str, str]:
    """What is wrong with a reference to an object in another namespace, and the fix."""
    message = f"{where} does not exist (yet), but namespace {other} has one of this name"
    return f"{message}; pods find only those of their own", f"create it in {namespace}, too"


def _claims_named_by(manifest: Manifest, key: str) -> Iterator[tuple[Field, str]]:
    for pod in manifest.pods:
        for entry in pod.claims:
            if name := entry.text(key):
                yield entry.at(key), name


def _names_in(known: Mapping[str, object], namespace: str) -> set[str]:
    """The names in a namespace; none if there are too many objects to go through."""
    if len(known) > _MAX_SEARCHED:
        return set()
    prefix = f"{namespace}/"
    return {key.removeprefix(prefix) for key in known if key.startswith(prefix)}


class TooManyConsumers(Rule):
    """More than 256 pods share one claim by name."""

    id = "FTL039"
    reproduced = True
    name = "too-many-consumers"
    severity = Severity.DENY
    warns_if = "they are a Job's, since others take their places when they end"
    today = "The 257th pod and all after it stay Pending: a claim can be reserved for 256 pods."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for field, name, count in _shared_claims(manifest):
            if count > MAX_RESERVED:
                yield self.finding(
                    field,
                    f"up to {count} pods share ResourceClaim {name}, but a claim can be "
                    f"reserved for {MAX_RESERVED} pods",
                    f"use resourceClaimTemplateName, or at most {MAX_RESERVED} pods for one claim",
                    Severity.WARN if manifest.jobs else None,
                )


class PinnedReplicas(Rule):
    """Several pods share a claim whose devices are local to one node."""

    id = "FTL040"
    reproduced = True
    name = "pinned-replicas"
    severity = Severity.WARN
    inventory = True
    today = "All pods run on the node where the claim is allocated, or stay Pending."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for field, name, count in _shared_claims(manifest):
            claim = cluster.claim(manifest.namespace, name)
            if count < 2 or claim is None:
                continue
            options = list(cluster.claim_spec(claim).options)
            surveys = [cluster.survey(option) for option in options]
            if any(s is not None and s.matched and s.local for s in surveys):
                yield self.finding(
                    field,
                    f"{count} pods share ResourceClaim {name}, whose devices are local to a node, "
                    "so all of them must run there",
                    "use resourceClaimTemplateName to give each pod its own claim",
                )


class RepeatedClaim(Rule):
    """A pod names one ResourceClaim in two entries."""

    id = "FTL056"
    reproduced = True
    name = "repeated-claim"
    severity = Severity.DENY
    today = (
        "The pod stays Pending: the scheduler reserves the claim for it once for each entry, and "
        "the API server refuses the second one (`Duplicate value`)."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            named: set[str] = set()
            for entry in pod.claims:
                name = entry.text("resourceClaimName")
                if name and name in named:
                    yield self.finding(
                        entry.at("resourceClaimName"),
                        f"the pod names ResourceClaim {name} twice",
                        "list it once; all containers can use that entry",
                    )
                named.add(name)


def _shared_claims(manifest: Manifest) -> Iterator[tuple[Field, str, int]]:
    """Claims that a workload's pods name, and how many of these pods run at a time.

    Pods of a PodGroup are left out: together, they may hold a claim as one consumer.
    """
    found: dict[str, tuple[Field, int]] = {}
    counts = _pod_counts(manifest)
    for pod in manifest.pods:
        grouped = pod.field.at("schedulingGroup").exists or pod.field.at("workloadRef").exists
        count = _pods_at_a_time(manifest, pod.field.path, counts)
        names = {} if grouped else {e.text("resourceClaimName"): e for e in pod.claims}
        for name, entry in names.items():
            if name:
                field, before = found.get(name, (entry.at("resourceClaimName"), 0))
                found[name] = (field, before + count)
    for name, (field, count) in found.items():
        yield field, name, count


def _pods_at_a_time(manifest: Manifest, pod_path: str, counts: Mapping[str, int]) -> int:
    """Replicas of a workload, or the parallelism of a Job; 1 for a pod, or if unknown."""
    if (count := counts.get(pod_path.removesuffix(_SPEC_IN_TEMPLATE))) is not None:
        return count
    if manifest.paths(_GROUPS):
        return 1
    return _number_or_one(manifest.root.at("spec", "replicas")) * _pods_per_replica(
        manifest, pod_path
    )


def _pod_counts(manifest: Manifest) -> dict[str, int]:
    """Pods at a time, by the path of the Job or group whose template makes them."""
    entries = manifest.root.each("spec", "replicatedJobs")
    replicas = {entry.path: _number_or_one(entry.at("replicas")) for entry in entries}
    counts = {
        job.path: _pods_of_job(job) * replicas.get(job.path.removesuffix(_SPEC_IN_TEMPLATE), 1)
        for job in manifest.jobs
    }
    for path in manifest.paths(_GROUPS):
        counts.update((g.path, _pods_of_group(g)) for g in objects_at(manifest.root, path))
    return counts


def _pods_of_job(job: Field) -> int:
    parallelism = job.integer("parallelism")
    completions = job.integer("completions")
    at_once = 1 if parallelism is None else parallelism
    return at_once if completions is None else min(at_once, completions)


def _pods_of_group(group: Field) -> int:
    return _number_or_one(group.at("replicas")) * _number_or_one(group.at("numOfHosts"))


def _pods_per_replica(manifest: Manifest, pod_path: str) -> int:
    """Workers in a group of a LeaderWorkerSet; with a leader template, one less than its size."""
    groups = manifest.root.at("spec", "leaderWorkerTemplate")
    if pod_path.startswith(f"{groups.path}.leaderTemplate."):
        return 1
    leaders = 1 if groups.raw("leaderTemplate") else 0
    return _number_or_one(groups.at("size")) - leaders


def _number_or_one(field: Field) -> int:
    number = field.integer()
    return 1 if number is None else number


class _Use(NamedTuple):
    """A container's use of one request: its field, and the entry of the pod's claims it names."""

    field: Field
    request: str
    entry: Field


class UnknownRequest(Rule):
    """A container names a request that its claim does not have.

    The kubelet compares with the names of main requests, so `main/sub` matches nothing either.
    That only warns: the library of most drivers, not the kubelet, removes the names of
    alternatives.
    """

    id = "FTL035"
    reproduced = True
    name = "unknown-request"
    severity = Severity.DENY
    denies_pods = True
    today = "The pod runs, the container gets no device, and there is no event."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            for use in _uses_of_requests(pod):
                what, claim = cluster.claim_of(use.entry, manifest.namespace)
                if claim is not None:
                    yield from self._compare(use, what, claim)
                elif what:
                    message = f"{what} is not known yet, so {use.request!r} cannot be checked"
                    yield self.finding(use.field, message, severity=Severity.UNDECIDED)

    def _compare(self, use: _Use, what: str, claim: ManifestClaim) -> Iterator[Finding]:
        names = [request.name for request in claim.requests]
        if use.request in names:
            return
        main, _, _ = use.request.partition("/")
        if any(option.name == use.request for option in claim.options):
            message = f"{use.request!r} names an alternative; the container gets no device"
            yield self.finding(use.field, message, f"write request: {main}", Severity.WARN)
            return
        has = f"has only: {', '.join(names)}" if names else "has no requests"
        near = nearest(use.request, names)
        yield self.finding(
            use.field,
            f"{what} has no request {use.request!r} ({has}); the container gets no device",
            f"write request: {near}"
            if near
            else "name one of its requests, or leave request out to get all of the claim's devices",
        )


def _uses_of_requests(pod: ManifestPod) -> Iterator[_Use]:
    """Uses that name a request, without those of unlisted claims, which the API server refuses."""
    entries = {entry.text("name"): entry for entry in pod.claims}
    for container in pod.containers:
        for use in container.each("resources", "claims"):
            entry = entries.get(use.text("name"))
            if use.text("request") and entry is not None:
                yield _Use(use.at("request"), use.text("request"), entry)


_OF_CONTAINERS = frozenset(
    (
        "gpu.nvidia.com",
        "mig.nvidia.com",
        "vfio.gpu.nvidia.com",
        "gpu.amd.com",
        "gpu.intel.com",
        "gaudi.intel.com",
        "qat.intel.com",
        "tpu.google.com",
        "neuron.aws.com",
        "gpu.example.com",
    )
)
"""Drivers, and classes named after them, whose devices get into containers by CDI: their kubelet
plugins return CDI devices from NodePrepareResources, and do nothing else."""


def _is_of_containers(entry: Field, manifest: Manifest, cluster: Cluster) -> bool:
    _, claim = cluster.claim_of(entry, manifest.namespace)
    options = [*claim.options] if claim is not None else []
    for option in options:
        selection = cluster.selection(option)
        asked = cluster.drivers_asked(selection) if selection is not None else frozenset()
        if _OF_CONTAINERS.isdisjoint(asked or (option.class_name,)):
            return False
    return bool(options)


class UnusedClaim(Rule):
    """A pod lists a claim that none of its containers uses, of devices that only containers get.

    A driver of network devices acts on the pod's sandbox, so no container names its claim.
    """

    id = "FTL036"
    reproduced = True
    name = "unused-claim"
    severity = Severity.WARN
    today = "The devices are allocated to the pod and stay idle."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            used = {
                use.text("name")
                for container in pod.containers
                for use in container.each("resources", "claims")
            }
            for entry in pod.claims:
                name = entry.text("name")
                if name and name not in used and _is_of_containers(entry, manifest, cluster):
                    yield self.finding(
                        entry,
                        f"no container uses the claim {name!r}, so its devices would be idle",
                        f"add {{name: {name}}} to a container's resources.claims, or remove it",
                    )
