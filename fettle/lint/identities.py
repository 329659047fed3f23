"""Whether an object says what it is: an apiVersion and a kind that the API server serves.

Only what cannot be anybody else's is denied: a kind of Kubernetes' own in a group or version that
does not have it, and a misspelt one. Kinds of groups that Kubernetes does not have are not checked.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from fettle.lint.findings import Check, Finding, Severity
from fettle.lint.manifests import Field, Manifest
from fettle.lint.names import nearest
from fettle.lint.rules.api_versions import ALPHA_VERSIONS, REMOVED
from fettle.lint.shapes import kubernetes, place
from fettle.lint.shapes.customs import Customs, shipped_customs

UNKNOWN_KIND = Check(
    "FTL206",
    "unknown-kind",
    Severity.DENY,
    "An object without apiVersion or kind, or with one that Kubernetes does not have. Only a "
    "warning for a version that other releases of Kubernetes may serve.",
    "kubectl finds no such kind and sends nothing.",
)
REPEATED_KEY = Check(
    "FTL207",
    "repeated-key",
    Severity.DENY,
    "A key that an object has twice; all but the last are lost.",
    "kubectl refuses it in YAML; in JSON, and from other clients, the last one counts.",
)
SAME_OBJECT = Check(
    "FTL208",
    "same-object-twice",
    Severity.DENY,
    "Two objects of one kind, namespace and name in one file. In two files of a folder it is only "
    "a warning.",
    "`kubectl create` refuses the second; with `kubectl apply` it replaces the first.",
)
IDENTITY = (UNKNOWN_KIND, REPEATED_KEY, SAME_OBJECT)
_KEYS = ("apiVersion", "kind")
_DRAFT = re.compile(r"v\d+(?:alpha|beta)\d+")
_OWN_CHECK = "resource.k8s.io"
"""FTL034 is about its old versions."""


def looks_like_object(value: Mapping[Any, Any]) -> bool:
    """Whether a document means to be an object though it lacks a kind, or has it by another name.

    A Helm chart has an apiVersion, and values may have a kind; neither has metadata.
    """
    named = [key for key in value if isinstance(key, str) and nearest(key, _KEYS)]
    return bool(named) and isinstance(value.get("metadata"), dict)


def mistakes_in_identity(manifest: Manifest, customs: Customs | None = None) -> Iterator[Finding]:
    """`customs`: the kinds of custom resources; None means the shipped ones."""
    if _is_of_another_program(manifest):
        return
    missing = [key for key in _KEYS if not isinstance(manifest.object.get(key), str)]
    customs = shipped_customs() if customs is None else customs
    known = customs.kinds
    for key in missing:
        yield _of_known(_missing(manifest, key), manifest, known)
    if missing or not manifest.api_version or not manifest.kind:
        return
    group = manifest.group
    kinds = kubernetes().kinds
    if manifest.api_version in kinds:
        if manifest.kind not in kinds[manifest.api_version]:
            yield from _unknown_kind(manifest)
        elif since := place(kinds[manifest.api_version][manifest.kind]).since:
            yield _warning(manifest, f"only Kubernetes from {since} serves {manifest.kind} in it")
    elif group in {_group(version) for version in kinds}:
        yield from _unknown_version(manifest)
    elif manifest.api_version not in known:
        yield from _unknown_version_of_custom(manifest, customs) or _unknown_group(manifest)
    elif near := _misspelt_kind(manifest.kind, known[manifest.api_version]):
        message = f"{manifest.api_version} has no kind {manifest.kind}; did you mean {near}?"
        yield UNKNOWN_KIND.finding(manifest.root.at("kind"), message, f"write kind: {near}")


def _unknown_version_of_custom(manifest: Manifest, customs: Customs) -> list[Finding]:
    """Of other projects, older releases had alphas that the shipped definitions have no more."""
    having = [
        version
        for version, kinds in customs.kinds.items()
        if _group(version) == manifest.group and manifest.kind in kinds
    ]
    source = customs.sources.get(manifest.group, "")
    if not having or (source and "alpha" in manifest.api_version.rpartition("/")[2]):
        return []
    message = f"{manifest.kind} is not in {manifest.api_version}, but in {' and '.join(having)}"
    fix = f"write apiVersion: {having[-1]}"
    if source:
        return [_warning(manifest, f"{message}, of {source}", fix)]
    return [UNKNOWN_KIND.finding(manifest.root.at("apiVersion"), message, fix)]


def _is_of_another_program(manifest: Manifest) -> bool:
    """Whether it has a kind, but nothing else of an object; a kustomization needs no more."""
    known = {name for kinds in kubernetes().kinds.values() for name in kinds}
    bare = not any(nearest(str(key), ["apiVersion"]) for key in manifest.object)
    nobody = not isinstance(manifest.object.get("metadata"), dict)
    return bare and nobody and bool(manifest.kind) and not nearest(manifest.kind, known)


def _misspelt_kind(kind: str, kinds: Iterable[str]) -> str:
    return "" if kind in kinds else nearest(kind, kinds)


def _unknown_group(manifest: Manifest) -> Iterator[Finding]:
    group = manifest.group
    if near := _meant_group(manifest):
        yield UNKNOWN_KIND.finding(
            manifest.root.at("apiVersion"),
            f"Kubernetes has no group {group}; did you mean {near}?",
            f"write apiVersion: {near}",
            severity=Severity.WARN if "." not in group and _is_draft(manifest) else None,
        )


def _of_known(
    finding: Finding, manifest: Manifest, known: Mapping[str, Mapping[str, str]]
) -> Finding:
    """Only a warning if what is there is not known: then it may be the file of another program."""
    said = manifest.object.get("apiVersion") or manifest.object.get("apiversion")
    served = kubernetes().kinds
    by_version = isinstance(said, str) and (said in served or said in known)
    by_kind = any(manifest.kind in kinds for kinds in (*served.values(), *known.values()))
    if by_kind or (by_version and not manifest.kind):
        return finding
    return msgspec.structs.replace(finding, severity=Severity.WARN)


def _missing(manifest: Manifest, key: str) -> Finding:
    there = manifest.root.at(key)
    if there.exists:
        return UNKNOWN_KIND.finding(there, "must be text")
    others = [str(other) for other in manifest.object if str(other) not in _KEYS]
    written = next((other for other in others if nearest(other, [key])), "")
    if written:
        message = f"{written} is no field of any object; did you mean {key}?"
        return UNKNOWN_KIND.finding(manifest.root.at(written), message, f"write {key}")
    return UNKNOWN_KIND.finding(there, "is required", _likely(manifest, key))


def _likely(manifest: Manifest, key: str) -> str:
    """What to write for an apiVersion that is missing, if the kind tells."""
    found = kubernetes().elsewhere(manifest.kind) if key == "apiVersion" else []
    return f"write apiVersion: {found[0]}" if found else f"write {key}"


def _unknown_kind(manifest: Manifest) -> Iterator[Finding]:
    served = kubernetes()
    field, kind = manifest.root.at("kind"), manifest.kind
    if near := nearest(kind, served.kinds[manifest.api_version]):
        message = f"{manifest.api_version} has no kind {kind}; did you mean {near}?"
        yield UNKNOWN_KIND.finding(field, message, f"write kind: {near}")
    elif (elsewhere := served.elsewhere(kind)) and not _is_draft(manifest):
        message = f"{manifest.api_version} has no kind {kind}, but {elsewhere[0]} has"
        yield UNKNOWN_KIND.finding(
            manifest.root.at("apiVersion"), message, f"write apiVersion: {elsewhere[0]}"
        )
    elif manifest.group != _OWN_CHECK or not elsewhere:
        message = f"{manifest.api_version} has no kind {kind} in Kubernetes {served.span}"
        fix = f"write apiVersion: {elsewhere[0]}" if elsewhere else ""
        yield _warning(manifest, message, fix)


def _unknown_version(manifest: Manifest) -> Iterator[Finding]:
    served = kubernetes()
    having = [v for v in served.elsewhere(manifest.kind) if _group(v) == manifest.group]
    if _is_draft(manifest):
        version = manifest.api_version.rpartition("/")[2]
        if manifest.group != _OWN_CHECK or version not in (*ALPHA_VERSIONS, *REMOVED):
            message = f"Kubernetes {served.span} does not serve {manifest.api_version}"
            newest = max(having, key=_release, default="")
            yield _warning(manifest, message, f"write apiVersion: {newest}" if newest else "")
        return
    others = having or [v for v in served.kinds if _group(v) == manifest.group]
    elsewhere = served.elsewhere(manifest.kind)
    if manifest.group or elsewhere:  # else it may be the file of another program
        meant = having or elsewhere or others
        message = f"Kubernetes serves no {manifest.api_version}; did you mean {meant[0]}?"
        fix = f"write apiVersion: {meant[0]}"
        yield UNKNOWN_KIND.finding(manifest.root.at("apiVersion"), message, fix)


def _release(api_version: str) -> tuple[bool, str]:
    """What sorts the versions of a group, the newest last: v1beta1, v1, v2."""
    version = api_version.rpartition("/")[2]
    return _DRAFT.fullmatch(version) is None, version


def _is_draft(manifest: Manifest) -> bool:
    """Whether another release of Kubernetes may have had this version."""
    return _DRAFT.fullmatch(manifest.api_version.rpartition("/")[2]) is not None


def _meant_group(manifest: Manifest) -> str:
    """The group and version that a misspelt group means, if it has the kind."""
    by_group = {_group(version): version for version in reversed(_having(manifest.kind))}
    if near := nearest(manifest.group, [group for group in by_group if group]):
        return by_group[near]
    # A group of somebody else's has a domain.
    return next(iter(by_group.values()), "") if "." not in manifest.group else ""


def _having(kind: str) -> list[str]:
    served = kubernetes()
    near = nearest(kind, {name for kinds in served.kinds.values() for name in kinds})
    return served.elsewhere(kind) or served.elsewhere(near)


def _group(api_version: str) -> str:
    group, slash, _ = api_version.rpartition("/")
    return group if slash else ""


def _warning(manifest: Manifest, message: str, fix: str = "") -> Finding:
    field: Field = manifest.root.at("apiVersion")
    return UNKNOWN_KIND.finding(field, message, fix, severity=Severity.WARN)
