"""Rules about what the API server refuses since two parts of an object do not fit, or a name or
number is none; `REFUSALS` lists them by id. Ports of Kubernetes' own validation."""

from fettle.lint.findings import Refusal
from fettle.lint.refusals import claims, containers, jobs, metadata, pods, workloads

REFUSALS: tuple[Refusal, ...] = tuple(
    sorted(
        (
            found()
            for module in (claims, containers, jobs, metadata, pods, workloads)
            for found in vars(module).values()
            if isinstance(found, type) and issubclass(found, Refusal) and found is not Refusal
        ),
        key=lambda rule: rule.id,
    )
)
