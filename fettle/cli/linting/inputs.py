"""What is wrong with the files, not with one object as it was read: keys that stand twice, and one
object in two places. Kustomizations make objects of several files, so less is said beside them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from fettle.cli.linting.files import Document, repeated_keys
from fettle.lint import (
    COMPLETENESS,
    REPEATED_KEY,
    SAME_OBJECT,
    Field,
    Finding,
    Manifest,
    Severity,
)

_DIRECTIVE = "$"
"""Begins the names of fields that tell kustomize how to merge."""


def mistakes_in_files(
    documents: Sequence[Document], manifests: Sequence[Manifest]
) -> list[list[Finding]]:
    """What is found for each document."""
    found = [
        [_repeated(path, line) for path, line in repeated_keys(document)] for document in documents
    ]
    seen: dict[tuple[str, str, str, str], int] = {}
    for index, (document, manifest) in enumerate(zip(documents, manifests, strict=True)):
        if not manifest.root.text("metadata", "name") or not manifest.kind:
            continue
        namespace = manifest.namespace if manifest.namespaced else ""
        key = (manifest.group, manifest.kind, namespace, manifest.name)
        first = seen.setdefault(key, index)
        if first != index and not _are_variants(document, documents[first]):
            found[index].append(_again(document, documents[first], manifest))
    return found


def _repeated(path: str, line: int) -> Finding:
    field = Field(path, None)
    return REPEATED_KEY.finding(field, f"stands again on line {line}", "leave one of the two out")


def _are_variants(one: Document, other: Document) -> bool:
    """Whether nobody applies both, or it does no harm: of several folders one is chosen, a
    kustomization merges files, and the same Namespace may stand in many."""
    if one.object.get("kind") == "Namespace" and one.object == other.object:
        return True
    return one.may_be_patch or Path(one.file).parent != Path(other.file).parent


def _again(document: Document, first: Document, manifest: Manifest) -> Finding:
    same_file = document.file == first.file
    return SAME_OBJECT.finding(
        manifest.root.at("metadata", "name"),
        f"{first.file}, {first.where}, has the same {manifest.kind}",
        "give one of the two another name, or leave it out",
        severity=None if same_file else Severity.WARN,
    )


def for_patches(found: Sequence[Finding]) -> Iterator[Finding]:
    """The findings for what may be a patch: what is missing may be in what it is merged into."""
    for finding in found:
        if finding.field.rpartition(".")[2].startswith(_DIRECTIVE):
            continue
        if finding.rule in COMPLETENESS and finding.severity is Severity.DENY:
            message = f"{finding.message}, unless a kustomization adds it"
            yield msgspec.structs.replace(finding, severity=Severity.WARN, message=message)
        else:
            yield finding
