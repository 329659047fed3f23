"""Which kinds make pods, and where what their pods' annotations come from is: paths as
`webhook/places.py` reads them, of the templates in `fettle/lint/shapes.py`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fettle.config import WorkloadSettings
from fettle.lint import shapes


class Workload(NamedTuple):
    """`annotated`: paths of metadata whose annotations reach the pods. `jobs`: paths of Job specs.

    `restamped`: its templates may be changed later. `also_made`: it is stamped even where a
    controller made it, which must not be done to what its maker compares with its own template (a
    Deployment would make one ReplicaSet after another).
    """

    annotated: tuple[str, ...]
    jobs: tuple[str, ...] = ()
    restamped: bool = False
    also_made: bool = False


Table = Mapping[tuple[str, str], Workload]
"""By API group and kind."""

_RESTAMPED = {
    ("", "ReplicationController"),
    *(("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    ("batch", "CronJob"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
}
_ALSO_MADE = {("batch", "Job"), ("jobset.x-k8s.io", "JobSet")}
_NEVER_ANNOTATED = {("", "PodTemplate")}
"""They are judged by `fettle lint`, and never sent: no pod is made of them."""


def _of_templates(kind: tuple[str, str], paths: Iterable[shapes.Path]) -> Workload:
    return Workload(
        annotated=tuple(".".join((*path, "metadata")) for path in paths),
        jobs=tuple(".".join((*path, "spec")) for path in shapes.JOB_TEMPLATES.get(kind, ())),
        restamped=kind in _RESTAMPED,
        also_made=kind in _ALSO_MADE,
    )


WORKLOADS: Table = {
    **{
        kind: _of_templates(kind, paths)
        for kind, paths in shapes.POD_TEMPLATES.items()
        if kind not in _NEVER_ANNOTATED
    },
    # It has no template of its own: `webhook/trainjobs.py`.
    ("trainer.kubeflow.org", "TrainJob"): Workload(()),
    ("resource.k8s.io", "ResourceClaimTemplate"): Workload(("spec.metadata",)),
}


def with_own(rows: Sequence[WorkloadSettings]) -> Table:
    """The table with the settings' rows, which replace those of the same kind."""
    kinds = [(row.group, row.kind) for row in rows]
    templates = shapes.with_own(rows)
    return {**WORKLOADS, **{kind: _of_templates(kind, templates[kind]) for kind in kinds}}
