"""Rules about how containers use the claims of their pod."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import ClassVar, NamedTuple

from fettle.lint.findings import Context, Finding, Severity
from fettle.lint.raw import Raw, mapping, mappings, text
from fettle.lint.shapes import pod_specs
from fettle.wire import resource


class _Use(NamedTuple):
    """A container's use of one request: where it stands, and the pod's claim entry it names."""

    field: str
    request: str
    entry: Raw


class UnknownRequest:
    """A container that names a request its claim does not have gets no device, and no event.

    The kubelet compares with the names of main requests, so `main/sub` matches nothing either.
    That is a warning: it is the library most drivers are built on, not the kubelet, that strips
    the names of alternatives.
    """

    id: ClassVar[str] = "FTL035"
    name: ClassVar[str] = "unknown-request"
    severity: ClassVar[Severity] = Severity.DENY

    def check(self, object: Raw, context: Context) -> Iterator[Finding]:
        namespace = text(mapping(object, "metadata").get("namespace")) or context.namespace
        for path, spec in pod_specs(object):
            for use in _uses(path, spec):
                if (finding := self._judge(use, namespace, context)) is not None:
                    yield finding

    def _judge(self, use: _Use, namespace: str, context: Context) -> Finding | None:
        if name := text(use.entry.get("resourceClaimName")):
            what = f"ResourceClaim {namespace}/{name}"
            claim = context.claim(namespace, name)
            spec = claim.spec if claim is not None else None
        elif name := text(use.entry.get("resourceClaimTemplateName")):
            what = f"ResourceClaimTemplate {namespace}/{name}"
            template = context.template(namespace, name)
            spec = template.spec.spec if template is not None else None
        else:
            return None
        if spec is None:
            message = f"{what} is not known (yet), so request {use.request!r} cannot be checked"
            return self._finding(Severity.UNDECIDED, use, message, "")
        return self._compare(use, what, spec)

    def _compare(self, use: _Use, what: str, spec: resource.ResourceClaimSpec) -> Finding | None:
        requests = (spec.devices.requests if spec.devices is not None else None) or ()
        names = [request.name for request in requests]
        if use.request in names:
            return None
        main, _, sub = use.request.partition("/")
        for request in requests:
            if request.name == main and sub in [s.name for s in request.first_available or ()]:
                message = f"{use.request!r} names an alternative; the container gets no device"
                return self._finding(Severity.WARN, use, message, f"write request: {main}")
        has = f"has only: {', '.join(names)}" if names else "has no requests"
        message = f"{what} has no request {use.request!r} ({has}); the container gets no device"
        return self._finding(self.severity, use, message, _fix(use.request, names))

    def _finding(self, severity: Severity, use: _Use, message: str, fix: str) -> Finding:
        return Finding(rule=self.id, severity=severity, field=use.field, message=message, fix=fix)


def _fix(request: str, names: list[str]) -> str:
    if near := get_close_matches(request, names, n=1):
        return f"write request: {near[0]}"
    return "name one of its requests, or leave request out to get all of the claim's devices"


def _uses(path: str, spec: Raw) -> Iterator[_Use]:
    """Uses that name a request; a claim the pod does not list is for the API server to refuse."""
    entries = {text(entry.get("name")): entry for _, entry in mappings(spec.get("resourceClaims"))}
    for group in ("initContainers", "containers"):
        for index, container in mappings(spec.get(group)):
            where = f"{path}.{group}[{index}].resources.claims"
            for position, use in mappings(mapping(container, "resources").get("claims")):
                request, entry = text(use.get("request")), entries.get(text(use.get("name")))
                if request and entry is not None:
                    yield _Use(f"{where}[{position}].request", request, entry)
