"""`fettle what-if FILE`: the pods of manifests that are not in the cluster, and what goes with
them, as the writer takes them beside what was read.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fettle.api import Bad, Inheritance, Put, core, kinds, read_object, resource
from fettle.api.kinds import Kind, WireObject
from fettle.api.meta import ObjectMeta, OwnerReference
from fettle.api.raw import mapping, strings, text
from fettle.cli.linting.files import Document, read
from fettle.cluster import View
from fettle.config import WorkloadSettings
from fettle.lint import Manifest, values_at, workload_kinds
from fettle.model import ANNOTATIONS, BadInput, Inherited

MOST_PODS = 50
"""Kinds of pods of one file."""
_BESIDE = (kinds.TEMPLATE, kinds.CLAIM, kinds.CLASS, kinds.POLICY, kinds.NAMESPACE)
"""What a file may bring along for its pods."""
_OWNER = "supposed"


class Supposed(NamedTuple):
    """`pods` are the keys of the pods; `puts` are these and all that goes with them. `inherited`:
    what workloads say of them."""

    pods: tuple[str, ...]
    puts: Sequence[Put]
    inherited: Sequence[Inheritance]


def documents_of(file: str) -> list[Document]:
    """Raises BadInput if some cannot be read."""
    documents, _, problems, _ = read([file])
    if problems:
        raise BadInput("; ".join(problems))
    return documents


def supposed(
    documents: Sequence[Document], namespace: str, view: View, rows: Sequence[WorkloadSettings]
) -> Supposed:
    """What a file says, beside what is there; `namespace`: for objects that name none, `rows`: of
    the settings, where further kinds have their pods. Raises BadInput."""
    table = workload_kinds.with_settings(rows)
    puts: list[Put] = []
    pods: dict[str, Put] = {}
    inherited = []
    for document in documents:
        manifest = Manifest(document.object, namespace, templates=table)
        if not manifest.pod_specs:
            puts += _beside(document, manifest, view)
            continue
        owner, said = f"{_OWNER}-{len(pods)}", manifest.annotations
        if kept := {key: said[key] for key in ANNOTATIONS if key in said}:
            word = Inherited(f"{manifest.kind} {manifest.name}", kept)
            inherited.append(Inheritance(f"{manifest.namespace}/{owner}", word))
        for pod in _pods(manifest, owner):
            key = f"{manifest.namespace}/{_unused(pod['metadata'], manifest, {*pods}, view)}"
            pods[key] = _read(kinds.POD, pod, document)
    if not pods:
        known = ", ".join(sorted(kind for _, kind in table))
        raise BadInput(f"the file has no pod, and no workload with pods ({known})")
    if len(pods) > MOST_PODS:
        raise BadInput(f"the file has {len(pods)} pods and pod templates: give {MOST_PODS} at most")
    templates = {**view.templates, **{put.object.metadata.key: put.object for put in puts}}
    made = [put for pod in pods.values() for put in _with_claims(pod.object, templates)]
    return Supposed(tuple(pods), [*puts, *made], inherited)


def _beside(document: Document, manifest: Manifest, view: View) -> Iterator[Put]:
    """The object, if pods may need it. A claim that is there stays as it is."""
    kind = kinds.BY_NAME.get(manifest.kind)
    if kind not in _BESIDE or kind is None:
        return
    if kind is kinds.CLAIM and f"{manifest.namespace}/{manifest.name}" in view.claims:
        return
    metadata = {**mapping(document.object, "metadata")}
    if manifest.namespaced:
        metadata["namespace"] = manifest.namespace
    yield _read(kind, {**document.object, "metadata": metadata}, document)


def _pods(manifest: Manifest, owner: str) -> Iterator[dict[str, Any]]:
    """A pod of each kind that the object has: its own, or one of each of its templates."""
    for path in manifest.pod_specs:
        for template in values_at(manifest.root, path[:-1]):
            if not isinstance(template.value, dict) or not mapping(template.value, "spec"):
                continue
            written = mapping(template.value, "metadata")
            metadata: dict[str, Any] = {
                "labels": strings(written.get("labels")),
                "annotations": strings(written.get("annotations")),
                "namespace": manifest.namespace,
            }
            if path != ("spec",):
                metadata["ownerReferences"] = [
                    {
                        "apiVersion": manifest.api_version,
                        "kind": manifest.kind,
                        "name": manifest.name,
                        "uid": owner,
                        "controller": True,
                    }
                ]
            spec = {**mapping(template.value, "spec")}
            spec.pop("nodeName", None)
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _with_claims(pod: WireObject, templates: Mapping[str, WireObject]) -> Iterator[Put]:
    """The claims that the controller would make of templates, and the pod with their names."""
    assert isinstance(pod, core.Pod)
    metadata = pod.metadata
    owner = OwnerReference(
        api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid, controller=True
    )
    named = []
    for entry in (pod.spec.resource_claims if pod.spec is not None else None) or ():
        template = templates.get(f"{metadata.namespace}/{entry.resource_claim_template_name}")
        if not isinstance(template, resource.ResourceClaimTemplate):
            continue
        name = f"{metadata.name}-{entry.name}-{_OWNER}"
        made = ObjectMeta(
            name=name,
            namespace=metadata.namespace,
            uid=f"{metadata.uid}/{name}",
            owner_references=(owner,),
        )
        yield Put(kinds.CLAIM, resource.ResourceClaim(metadata=made, spec=template.spec.spec))
        named.append(core.PodResourceClaimStatus(name=entry.name, resource_claim_name=name))
    status = core.PodStatus(resource_claim_statuses=tuple(named))
    yield Put(kinds.POD, msgspec.structs.replace(pod, status=status))


def _unused(metadata: dict[str, Any], manifest: Manifest, taken: set[str], view: View) -> str:
    """A name that no other pod has: one that is there must not seem to have left."""
    base = manifest.name.rstrip("-") or "pod"
    name, number = base, 1
    while (key := f"{manifest.namespace}/{name}") in taken or key in view.pods:
        number += 1
        name = f"{base}-{number}"
    metadata["name"], metadata["uid"] = name, f"{_OWNER}-{key}"
    return name


def _read(kind: Kind, value: Mapping[str, Any], document: Document) -> Put:
    place = f"{document.file}: {document.where}" if document.where else document.file
    version = text(value.get("apiVersion"))
    if version not in kind.api_versions:
        raise BadInput(
            f"{place}: a {kind.name} of {version or 'no version'}: it is read as {kind.api_version}"
        )
    try:
        found = read_object(kind, json.dumps(value).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(f"{place}: this {kind.name} cannot be written as JSON: {error}") from error
    if isinstance(found, Bad):
        raise BadInput(f"{place}: this {kind.name} cannot be read: {found.reason}")
    return found
