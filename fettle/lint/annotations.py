"""What objects tell Fettle by annotations and labels, and what of it is not heard: a policy that
there is not, a value that is none, an annotation in place of a label, a misspelt name."""

from collections.abc import Iterable, Iterator, Mapping

from fettle.api.meta import ObjectMeta
from fettle.lint import workload_kinds
from fettle.lint.findings import Check, Finding, Severity
from fettle.lint.manifests import Field, Manifest, objects_at
from fettle.lint.names import nearest
from fettle.lint.shapes import kubernetes
from fettle.model import (
    ANNOTATION,
    ANNOTATIONS,
    EXPECTED_DEVICES,
    HEALTH,
    HOLD,
    MODE_LABEL,
    ON_DEVICE_FAILURE_ANNOTATION,
    OWN_PREFIX,
    REPAIRED,
    Mode,
    OnDeviceFailure,
    Policies,
    Policy,
    Resolved,
    is_unknown,
    wrong_label,
)
from fettle.pacing import pause

IGNORED = Check(
    "FTL101",
    "ignored-policy",
    Severity.WARN,
    "An annotation or label that names no existing policy, or has an invalid value or one without "
    "effect.",
    "The pod runs under the next policy that applies; the webhook warns.",
)
UNKNOWN_ANNOTATION = Check(
    "FTL109",
    "unknown-annotation",
    Severity.WARN,
    "An annotation `fettle.dev/...` that Fettle does not have.",
    "It is ignored; the webhook warns.",
)
EVICTED_FOR_GOOD = Check(
    "FTL112",
    "evicted-for-good",
    Severity.WARN,
    "A Pod without a controller whose annotations or policy say `onDeviceFailure: Evict`.",
    "Once it is evicted from a failed device, nobody makes it anew.",
)
MISSPELT_NAME = Check(
    "FTL115",
    "misspelt-name",
    Severity.WARN,
    "An annotation or label whose name is almost one of Fettle's, such as `fettle.io/policy`, or "
    "the label `fettle.dev/mod`.",
    "It is ignored: the pod runs under the next policy that applies.",
)
NOT_PASSED_ON = Check(
    "FTL114",
    "not-passed-on",
    Severity.WARN,
    "A policy's annotation on an object that passes nothing on to pods, as far as Fettle knows.",
    "Its pods run under the next policy that applies.",
)
ANNOTATION_IGNORED = "Fettle has no such annotation, so it is ignored"

_OF_THEIR_CONTROLLERS = frozenset(
    (
        ("serving.kserve.io", "InferenceService"),  # KServe, `Predictor.Reconcile`
        ("ray.io", "RayService"),  # KubeRay, `constructRayClusterForRayService`
    )
)
"""Kinds whose controllers hand their annotations on."""
_READ_THEMSELVES = frozenset(
    (
        *(("", kind) for kind in ("Pod", "Namespace")),
        *(("resource.k8s.io", kind) for kind in ("ResourceClaim", "ResourceClaimTemplate")),
    )
)
_WHERE = {
    ("kubeflow.org", "MPIJob"): "spec.mpiReplicaSpecs.*.template.metadata",
    ("kubeflow.org", "TFJob"): "spec.tfReplicaSpecs.*.template.metadata",
    ("batch.volcano.sh", "Job"): "spec.tasks.*.template.metadata",
    ("argoproj.io", "Workflow"): "spec.podMetadata",
    ("argoproj.io", "CronWorkflow"): "spec.workflowSpec.podMetadata",
}
"""Where other kinds have the metadata of their pods: kubeflow/mpi-operator and training-operator,
pkg/apis; volcano.sh/apis, pkg/apis/batch/v1alpha1; argo-workflows, pkg/apis/workflow/v1alpha1."""
_OF_NAMESPACES = (ANNOTATION, MODE_LABEL)
"""Labels that Fettle reads on Namespaces."""
_READ = (*ANNOTATIONS, MODE_LABEL, HOLD, REPAIRED, EXPECTED_DEVICES, HEALTH)
"""What people write or select by."""
_OWN_WORD = OWN_PREFIX.partition(".")[0]
_ENDINGS = frozenset(("ai", "com", "dev", "io", "k8s", "net", "org", "sh", "x"))
"""Words that may stand between ours and the name: of other domains."""
_SEPARATORS = str.maketrans("/_-", "...")
_LONGEST = 128


def ignored_references(
    manifest: Manifest, policies: Policies, installed: Mapping[str, Policy]
) -> Iterator[Finding]:
    """Annotations and labels that are ignored: they name no existing policy, have an invalid value,
    or are labels where annotations are read, or the other way round."""
    if _is(manifest, "Namespace"):
        labels = manifest.root.at("metadata", "labels")
        if (name := labels.strings().get(ANNOTATION)) is not None:
            resolved = policies.resolve(None, {ANNOTATION: name}, installed)
            yield from _warnings(labels.at(ANNOTATION), resolved, policies.names(installed))
        if wrong := wrong_label(labels.strings()):
            near = nearest(labels.strings()[MODE_LABEL], Mode)
            fix = f"write {near or ' or '.join(Mode)}"
            yield IGNORED.finding(labels.at(MODE_LABEL), wrong, fix)
    for annotations in _annotations(manifest):
        given = annotations.strings()
        for key in ANNOTATIONS:
            if key in given:
                resolved = policies.resolve({key: given[key]}, None, installed)
                yield from _warnings(annotations.at(key), resolved, policies.names(installed))
    if _is(manifest, "Node"):
        yield from _unread_expectation(manifest)
    yield from _misplaced(manifest)


def evicted_for_good(
    manifest: Manifest, policies: Policies, installed: Mapping[str, Policy]
) -> Iterator[Finding]:
    """A Pod that nobody makes anew and that may be evicted, by its annotations or the default
    policy. What its namespace says is not known here."""
    if not _is(manifest, "Pod"):
        return
    owners = manifest.root.entries("metadata", "ownerReferences")
    if any(owner.at("controller").value is True for owner in owners):
        return
    annotations = manifest.root.at("metadata", "annotations")
    resolved = policies.resolve(annotations.strings(), None, installed)
    if resolved.policy.failure.on_device_failure is OnDeviceFailure.EVICT:
        yield EVICTED_FOR_GOOD.finding(
            annotations,
            f"policy {resolved.policy.name} evicts the pod from a failed device, and nobody makes "
            "it anew: it has no controller",
            f"write {ON_DEVICE_FAILURE_ANNOTATION}: Mark, or let a Job make it",
        )


def unknown_annotations(manifest: Manifest) -> Iterator[Finding]:
    """Annotations `fettle.dev/...` that Fettle does not have."""
    for annotations in _annotations(manifest):
        for key in filter(is_unknown, annotations.strings()):
            yield UNKNOWN_ANNOTATION.finding(
                annotations.at(key), ANNOTATION_IGNORED, suggest_annotation(key)
            )


def suggest_annotation(key: str) -> str:
    """What to write instead of an annotation that Fettle does not have."""
    if key == MODE_LABEL:
        return f"write it as a label of the Namespace, or {_MODE_OF_POLICY}"
    if near := nearest(key, ANNOTATIONS):
        return f"write {near} if that is meant"
    *others, last = ANNOTATIONS
    return f"for this, Fettle reads {', '.join(others)} and {last}"


_MODE_OF_POLICY = "mode in the spec of a DevicePolicy"


def misspelt_names(manifest: Manifest) -> Iterator[Finding]:
    """Annotations under another prefix than ours, and labels of either, that mean one of ours."""
    of_namespace = _is(manifest, "Namespace")
    for metadata in _metadata(manifest):
        annotations, labels = metadata.at("annotations"), metadata.at("labels")
        for key in annotations.strings():
            pause()
            if not key.startswith(OWN_PREFIX) and (meant := _meant(key)):
                yield _misspelt(annotations.at(key), meant, metadata, of_namespace=of_namespace)
        for key in labels.strings():
            pause()
            if meant := _meant(key):
                yield _misspelt(labels.at(key), meant, metadata, of_namespace=of_namespace)


def not_passed_on(manifest: Manifest) -> Iterator[Finding]:
    """Policy annotations on what makes no pods, or whose pods do not get them."""
    kind = (manifest.group, manifest.kind)
    passes = bool(manifest.pod_specs) or kind in workload_kinds.passing_on(())
    if passes or kind in _READ_THEMSELVES or kind in _OF_THEIR_CONTROLLERS or not manifest.kind:
        return
    annotations = manifest.root.at("metadata", "annotations")
    for key in ANNOTATIONS:
        if key not in annotations.strings() or _stands_below(manifest, key):
            continue
        if manifest.api_version in kubernetes().kinds:
            message = f"{manifest.kind} makes no pods, so it has no effect"
            yield NOT_PASSED_ON.finding(annotations.at(key), message, "write it on what makes them")
            continue
        where = _WHERE.get(kind, "")
        place = f"{where}.annotations" if where else "the metadata of its pod templates"
        yield NOT_PASSED_ON.finding(
            annotations.at(key),
            f"Fettle does not pass it on from {manifest.kind} to its pods",
            f"write it in {place}, or name the kind in webhook.workloads of the settings",
        )


def _stands_below(manifest: Manifest, key: str) -> bool:
    """Whether the object says it of its pods, too. Argo calls their metadata `podMetadata`."""
    return any(
        metadata.path != "metadata" and key in metadata.strings("annotations")
        for metadata in _nested(manifest.root)
    )


def _misspelt(field: Field, meant: str, metadata: Field, *, of_namespace: bool) -> Finding:
    is_label = meant == HEALTH or (of_namespace and meant in _OF_NAMESPACES)
    where = "labels" if is_label else "annotations"
    message = f"Fettle does not read it; did you mean {meant}?"
    if meant == MODE_LABEL and not of_namespace:
        return MISSPELT_NAME.finding(field, message, f"label the Namespace, or {_MODE_OF_POLICY}")
    under = "" if where in field.keys else f" under {metadata.at(where).path}"
    return MISSPELT_NAME.finding(field, message, f"write {meant}{under}")


def _meant(key: str) -> str:
    """The name of ours that a key almost is: under another domain, without one, or with a slip;
    "" if it is ours, or another project's."""
    if key in _READ or len(key) > _LONGEST:
        return ""
    if key.startswith(OWN_PREFIX):
        return nearest(key, _READ)
    first, *words = key.lower().translate(_SEPARATORS).split(".")
    if not _is_our_word(first):
        return ""
    while words and words[0] in _ENDINGS:
        words = words[1:]
    name = nearest("-".join(words), [one.removeprefix(OWN_PREFIX) for one in _READ])
    return f"{OWN_PREFIX}{name}" if name else ""


def _is_our_word(word: str) -> bool:
    """Whether it is ours, or that with a letter missing, doubled or swapped. With another letter
    it is another word: kettle, settle."""
    if word[:1] != _OWN_WORD[0] or abs(len(word) - len(_OWN_WORD)) > 1:
        return False
    other = len(word) == len(_OWN_WORD) and sorted(word) != sorted(_OWN_WORD)
    return not other and nearest(word, [_OWN_WORD]) != ""


def _warnings(field: Field, resolved: Resolved, names: Iterable[str]) -> Iterator[Finding]:
    fix = ""
    for name in resolved.unknown:
        near = nearest(name, names)
        other = "name one that exists, or lint this together with its DevicePolicy"
        fix = f"write {near}" if near else other
    if field.keys[-1] == ON_DEVICE_FAILURE_ANNOTATION:
        near = nearest(field.text(), OnDeviceFailure)
        fix = f"write {near}" if near else ""
    for warning in resolved.warnings:
        yield IGNORED.finding(field, warning.removeprefix("fettle: "), fix)


def _unread_expectation(manifest: Manifest) -> Iterator[Finding]:
    # late: it takes a tenth of a second
    from fettle.health import COUNT_HINT, expected_on_node, unread_counts

    annotations = manifest.root.at("metadata", "annotations")
    labels = manifest.root.at("metadata", "labels")
    for source, _ in unread_counts(ObjectMeta(labels=dict(labels.strings()))):
        yield IGNORED.finding(
            labels.at(source.name), "it cannot be read, so it counts for nothing", COUNT_HINT
        )
    if expected_on_node(ObjectMeta(annotations=dict(annotations.strings()))) is None:
        yield IGNORED.finding(
            annotations.at(EXPECTED_DEVICES),
            "it cannot be read, so it counts for nothing",
            "write a number for each resource or driver, such as nvidia.com/gpu=8",
        )


def _misplaced(manifest: Manifest) -> Iterator[Finding]:
    """Labels where annotations are read, and annotations where labels are."""
    of_namespace = _is(manifest, "Namespace")
    for metadata in _metadata(manifest):
        labels, annotations = metadata.at("labels"), metadata.at("annotations")
        if of_namespace:
            if ANNOTATION in annotations.strings() and ANNOTATION not in labels.strings():
                why = "a namespace names its policy by a label, so this is ignored"
                fix = f"write it under {labels.path}"
                yield IGNORED.finding(annotations.at(ANNOTATION), why, fix)
            continue
        for key in (*ANNOTATIONS, HOLD):
            if key in labels.strings() and key not in annotations.strings():
                why = "Fettle reads no such label, so it is ignored"
                yield IGNORED.finding(labels.at(key), why, f"write it under {annotations.path}")
        if MODE_LABEL in labels.strings():
            why = "Fettle reads it on Namespaces alone, so it is ignored"
            fix = f"label the Namespace, or write {_MODE_OF_POLICY}"
            yield IGNORED.finding(labels.at(MODE_LABEL), why, fix)


def _annotations(manifest: Manifest) -> Iterator[Field]:
    """The annotations of the object, and those in its templates."""
    return (metadata.at("annotations") for metadata in _metadata(manifest))


def _metadata(manifest: Manifest) -> Iterator[Field]:
    found = {"metadata": manifest.root.at("metadata")}
    specs = (*manifest.paths(workload_kinds.CLAIM_SPECS), *manifest.paths(workload_kinds.JOB_SPECS))
    for path in (*specs, *manifest.pod_specs):
        beside = (*path[:-1], "metadata")
        found |= {field.path: field for field in objects_at(manifest.root, beside)}
    if manifest.api_version not in kubernetes().kinds:
        found |= {field.path: field for field in _nested(manifest.root)}
    yield from found.values()


def _nested(root: Field) -> Iterator[Field]:
    """All metadata in an object of another project, wherever its templates are."""
    waiting = [root]
    while waiting:
        field = waiting.pop()
        if isinstance(field.value, list):
            waiting += field.entries()
        for name, member in field.members():
            if name in ("metadata", "podMetadata") and isinstance(member.value, dict):
                yield member
            waiting.append(member)


def _is(manifest: Manifest, kind: str) -> bool:
    """Whether it is of this kind of Kubernetes' core group."""
    return (manifest.group, manifest.kind) == ("", kind)
