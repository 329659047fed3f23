"""Rules about names and labels that the API server refuses."""

from collections.abc import Iterator

from fettle.lint.findings import Finding, Refusal, Severity
from fettle.lint.manifests import Field, Manifest, values_at
from fettle.lint.refusals.wording import (
    why_in_doubt,
    why_no_label,
    why_no_qualified_name,
    why_no_subdomain,
    why_no_value,
)
from fettle.lint.shapes import kubernetes
from fettle.lint.workload_kinds import CLAIM_SPECS, JOB_SPECS

_LONGEST_CRON_JOB = 52
_MOST_BYTES = 256 * 1024
_OWN = ("kubernetes", "orphan", "foregroundDeletion")
"""Finalizers of Kubernetes."""


class WrongObjectName(Refusal):
    """An object without a name, or whose name, namespace or prefix of a name is none."""

    id = "FTL240"
    name = "wrong-object-name"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if not kubernetes().type_of(manifest.api_version, manifest.kind):
            return
        metadata = manifest.root.at("metadata")
        name = metadata.at("name")
        if not name.value and not metadata.text("generateName"):
            yield self.finding(name, "is required, or generateName")
        said = metadata.text("name")
        if said and (why := why_no_subdomain(said)):
            yield self.finding(name, f"{said!r} {why}")
        elif why := why_in_doubt(said):
            fix = f"write {said.lower()}"
            yield self.finding(name, f"{said!r} {why}", fix, Severity.WARN)
        elif manifest.kind == "CronJob" and len(said) > _LONGEST_CRON_JOB:
            message = f"is longer than {_LONGEST_CRON_JOB} characters, as its Jobs' names get more"
            yield self.finding(name, message)
        prefix = "" if name.value else metadata.text("generateName")
        if prefix and (why := why_no_subdomain(f"{prefix}x")):
            yield self.finding(metadata.at("generateName"), f"{prefix!r} {why}")
        namespace = metadata.text("namespace")
        if namespace and (why := why_no_label(namespace)):
            yield self.finding(metadata.at("namespace"), f"{namespace!r} {why}")


class WrongLabel(Refusal):
    """A label, annotation or selector whose key or value is none."""

    id = "FTL241"
    name = "wrong-label"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        metadata = {"metadata": manifest.root.at("metadata")}
        parts = (*manifest.pod_specs, *manifest.paths(CLAIM_SPECS), *manifest.paths(JOB_SPECS))
        for path in parts:
            metadata |= {f.path: f for f in values_at(manifest.root, (*path[:-1], "metadata"))}
        for field in metadata.values():
            yield from self._keys(field.at("annotations"))
        size = sum(
            len(f"{k}{f.value}".encode()) for k, f in metadata["metadata"].members("annotations")
        )
        if size > _MOST_BYTES:
            message = f"have {size} bytes; at most {_MOST_BYTES} may be"
            yield self.finding(metadata["metadata"].at("annotations"), message)
        for entry in metadata["metadata"].entries("finalizers"):
            if isinstance(entry.value, str) and "/" not in entry.value and entry.value not in _OWN:
                message = f"{entry.value[:80]!r} has no domain"
                yield self.finding(entry, message, f"write DOMAIN/{entry.value[:80]}")
        selectors = [manifest.root.at("spec", "selector", "matchLabels")]
        selectors += (pod.field.at("nodeSelector") for pod in manifest.pods)
        for labels in (*(field.at("labels") for field in metadata.values()), *selectors):
            yield from self._keys(labels)
            for _, member in labels.members():
                if isinstance(member.value, str) and (why := why_no_value(member.value)):
                    yield self.finding(member, f"the value {member.value!r} {why}")

    def _keys(self, field: Field) -> Iterator[Finding]:
        for name, member in field.members():
            if why := why_no_qualified_name(name):
                yield self.finding(member, f"the key {name!r} {why}")
