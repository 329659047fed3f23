"""Rules about how many devices a claim asks for."""

from collections.abc import Iterator
from typing import ClassVar

from fettle.lint.findings import Context, Finding, Severity
from fettle.lint.raw import Raw, integer, mapping, mappings, text
from fettle.lint.shapes import claim_specs

LIMIT = 32
"""`AllocationResultsMaxSize` of the API: what one claim's allocation can hold."""


class ClaimTooLarge:
    """The scheduler fails every pod with such a claim, on every node.

    What counts is the least a claim can get: of alternatives the smallest, of `All` one device,
    since a node without any does not satisfy it. How many `All` are on a node is not judged here.
    """

    id: ClassVar[str] = "FTL010"
    name: ClassVar[str] = "claim-too-large"
    severity: ClassVar[Severity] = Severity.DENY

    def check(self, object: Raw, context: Context) -> Iterator[Finding]:
        for path, spec in claim_specs(object):
            yield from self._claim(f"{path}.devices.requests", spec)

    def _claim(self, path: str, spec: Raw) -> Iterator[Finding]:
        before = 0
        undecided: list[Finding] = []
        for index, request in mappings(mapping(spec, "devices").get("requests")):
            field, least = _least(request)
            where = f"{path}[{index}].{field}"
            if least is None:
                undecided.append(self._undecided(where))
            elif before + least > LIMIT:
                yield self._finding(where, least, before)
                return
            else:
                before += least
        yield from undecided

    def _finding(self, field: str, least: int, before: int) -> Finding:
        total = f"{before + least} ({before} + {least})" if before else f"{least}"
        return Finding(
            rule=self.id,
            severity=self.severity,
            field=field,
            message=f"the claim asks for at least {total} devices, "
            f"but Kubernetes allocates at most {LIMIT} for one claim",
            fix=f"ask for at most {LIMIT} in all its requests together, or use several claims",
        )

    def _undecided(self, field: str) -> Finding:
        return Finding(
            rule=self.id,
            severity=Severity.UNDECIDED,
            field=field,
            message="this allocationMode is not known, so its devices cannot be counted",
        )


def _least(request: Raw) -> tuple[str, int | None]:
    """The field that decides, and the fewest devices that satisfy it; None: cannot be told."""
    if exactly := mapping(request, "exactly"):
        field, least = _count(exactly)
        return f"exactly.{field}", least
    counts = [_count(entry)[1] for _, entry in mappings(request.get("firstAvailable"))]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        return "firstAvailable", None
    return "firstAvailable", min(known, default=0)


def _count(request: Raw) -> tuple[str, int | None]:
    match text(request.get("allocationMode")):
        case "All":
            return "allocationMode", 1
        case "" | "ExactCount":
            count = request.get("count")
            return "count", 1 if count is None else max(integer(count) or 0, 0)
        case _:
            return "allocationMode", None
