"""Where claim specs and pod specs are in the kinds of object that hold them, as a table."""

from collections.abc import Iterator, Mapping

from fettle.lint.raw import Raw, mapping, mappings, text

_DRA = "resource.k8s.io"

CLAIM_SPECS: Mapping[tuple[str, str], tuple[str, ...]] = {
    (_DRA, "ResourceClaim"): ("spec",),
    (_DRA, "ResourceClaimTemplate"): ("spec", "spec"),
}

_TEMPLATE = ("spec", "template", "spec")

POD_SPECS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): ("spec",),
    ("", "PodTemplate"): ("template", "spec"),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("batch", "Job"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", *_TEMPLATE),
    ("jobset.x-k8s.io", "JobSet"): ("spec", "replicatedJobs", "*", "template", *_TEMPLATE),
}
"""`*` stands for each entry of a list."""


def claim_specs(object: Raw) -> Iterator[tuple[str, Raw]]:
    """The claim spec in a ResourceClaim or its template, with its field path."""
    yield from _found(object, CLAIM_SPECS)


def pod_specs(object: Raw) -> Iterator[tuple[str, Raw]]:
    """The pod specs in a Pod or a workload, each with its field path."""
    yield from _found(object, POD_SPECS)


def _found(
    object: Raw, table: Mapping[tuple[str, str], tuple[str, ...]]
) -> Iterator[tuple[str, Raw]]:
    group, slash, _ = text(object.get("apiVersion")).partition("/")
    path = table.get((group if slash else "", text(object.get("kind"))))
    if path is not None:
        yield from _walk("", object, path)


def _walk(field: str, value: Raw, path: tuple[str, ...]) -> Iterator[tuple[str, Raw]]:
    if not path:
        if value:
            yield field, value
        return
    key, rest = path[0], path[1:]
    below = f"{field}.{key}" if field else key
    if rest[:1] == ("*",):
        for index, entry in mappings(value.get(key)):
            yield from _walk(f"{below}[{index}]", entry, rest[1:])
    else:
        yield from _walk(below, mapping(value, key), rest)
