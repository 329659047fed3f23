"""Rules about pods, and templates of them, that the API server refuses."""

from collections.abc import Iterator, Mapping

from fettle.dra import UNIT, Unreadable, nano
from fettle.lint.findings import Finding, Refusal, Severity
from fettle.lint.manifests import Field, Manifest, ManifestPod, values_at
from fettle.lint.names import is_mark, is_shouted, nearest
from fettle.lint.refusals.wording import (
    operator_errors,
    twice,
    why_in_doubt,
    why_no_label,
    why_no_qualified_name,
    why_no_subdomain,
)

_GROUPS = ("initContainers", "containers", "ephemeralContainers")
_OWN = ("cpu", "memory", "ephemeral-storage", "storage")
_HUGE = "hugepages-"
_KUBERNETES = "kubernetes.io/"
_OF_CLASSES = "deviceclass.resource.kubernetes.io/"
_Amounts = Mapping[str, Field]


def _containers(pod: ManifestPod) -> list[Field]:
    return [entry for group in _GROUPS for entry in pod.field.each(group)]


class DuplicateName(Refusal):
    """Two containers, volumes or claims of a pod with one name, or two mounts at one path."""

    id = "FTL220"
    name = "duplicate-name"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            containers = _containers(pod)
            for entries in (containers, pod.field.each("volumes"), pod.claims):
                yield from self._twice(entries, "name")
            for container in containers:
                yield from self._twice(container.each("volumeMounts"), "mountPath")
                yield from self._claims_twice(container)

    def _claims_twice(self, container: Field) -> Iterator[Finding]:
        used = list(container.each("resources", "claims"))
        whole = {one.text("name") for one in used if not one.text("request")}
        named = ((f"{one.text('name')}/{one.text('request')}", one) for one in used)
        for name, field in twice((_all_of(name, whole), one) for name, one in named):
            yield self.finding(field, f"{name.rstrip('/')} is used already")

    def _twice(self, entries: list[Field] | Iterator[Field], key: str) -> Iterator[Finding]:
        for value, field in twice((entry.text(key), entry) for entry in entries):
            yield self.finding(field.at(key), f"{value} is the {key} of another one already")


def _all_of(use: str, whole: set[str]) -> str:
    """The claim, if it is used as a whole, or the request of it that is used."""
    claim = use.partition("/")[0]
    return f"{claim}/" if claim in whole else use


class UnknownClaim(Refusal):
    """A container that uses a claim or mounts a volume that its pod does not name."""

    id = "FTL221"
    name = "unknown-claim-or-volume"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            claims = [entry.text("name") for entry in pod.claims]
            volumes = [entry.text("name") for entry in pod.field.each("volumes")]
            volumes += _claim_templates(manifest)
            for container in _containers(pod):
                used = container.each("resources", "claims")
                yield from self._unknown(used, claims, "resourceClaims")
                for part in ("volumeMounts", "volumeDevices"):
                    yield from self._unknown(container.each(part), volumes, "volumes")

    def _unknown(self, used: Iterator[Field], names: list[str], where: str) -> Iterator[Finding]:
        for entry in used:
            name = entry.text("name")
            if name and name not in names and not is_mark(name):
                near = nearest(name, names)
                there = f", but {', '.join(names)}" if names else ""
                message = f"the pod's {where} have no {name!r}{there}"
                yield self.finding(entry.at("name"), message, f"write {near}" if near else "")


_VOLUMES_ADDED = (
    ("spec", "volumeClaimTemplates", "*"),
    ("spec", "leaderWorkerTemplate", "volumeClaimTemplates", "*"),
    ("spec", "volumeClaimPolicies", "*", "templates", "*"),
)
"""The claims that a StatefulSet, a LeaderWorkerSet or a JobSet makes for its pods."""


def _claim_templates(manifest: Manifest) -> list[str]:
    """Volumes that the workload adds to its pods."""
    templates = (found for path in _VOLUMES_ADDED for found in values_at(manifest.root, path))
    return [template.text("metadata", "name") for template in templates]


class WrongAmount(Refusal):
    """A resource that there is not, a fraction of a device, or an amount that another forbids."""

    id = "FTL222"
    name = "wrong-amount"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            for container in _containers(pod):
                limits = dict(container.members("resources", "limits"))
                requests = dict(container.members("resources", "requests"))
                yield from self._amounts(limits, requests)
            limits, requests = (_of_whole(pod, part) for part in ("limits", "requests"))
            yield from self._amounts(limits, requests)
            yield from self._together(list(pod.field.each("containers")), limits, requests)

    def _amounts(self, limits: _Amounts, requests: _Amounts) -> Iterator[Finding]:
        for field in (*limits.values(), *requests.values()):
            yield from self._amount(field)
        for name, request in requests.items():
            yield from self._against(name, request, limits.get(name))

    def _together(
        self, containers: list[Field], limits: _Amounts, requests: _Amounts
    ) -> Iterator[Finding]:
        """The amounts of a whole pod against those of its containers. Init containers may add to
        the sum, so it is the least that there may be."""
        for name, limit in limits.items():
            own = [container.at("resources", "limits", name) for container in containers]
            most = _nano(limit)
            for field in own:
                amount = _nano(field)
                if most is not None and amount is not None and amount > most:
                    yield self.finding(field, f"is more than the pod's limit, {limit.value}")
            if name.startswith(_HUGE) and most is not None and _sum(own) > most:
                yield self.finding(limit, "is less than the limits of the containers together")
        for name, request in requests.items():
            own = [container.at("resources", "requests", name) for container in containers]
            most = _nano(request)
            if most is not None and _sum(own) > most:
                yield self.finding(request, "is less than the containers request together")

    def _amount(self, field: Field) -> Iterator[Finding]:
        name, amount = str(field.keys[-1]), _nano(field)
        own = name in _OWN or name.startswith(_HUGE)
        if "/" not in name and not own and (is_shouted(name) or not is_mark(name)):
            message = f"{name!r} is no resource of Kubernetes, and names no domain"
            yield self.finding(field, message, "write DOMAIN/NAME, such as nvidia.com/gpu")
        elif "/" in name and (why := why_no_qualified_name(name)):
            yield self.finding(field, f"the name {name!r} {why}")
        elif "/" in name and name.startswith("requests."):
            yield self.finding(field, f"{name} is how quotas name it", f"write {name[9:]}")
        if amount is not None and amount < 0:
            yield self.finding(field, "must not be less than 0")
        elif amount is not None and amount % UNIT and _is_extended(name):
            yield self.finding(field, f"must be a whole number, and is {field.value}")

    def _against(self, name: str, request: Field, limit: Field | None) -> Iterator[Finding]:
        amount = _nano(request)
        if limit is None:
            if _needs_limit(name):
                yield self.finding(request, f"{name} needs a limit, too", "write it under limits")
            return
        most = _nano(limit)
        if amount is None or most is None or amount == most:
            return
        if _needs_limit(name):
            yield self.finding(request, f"must equal the limit, {limit.value}")
        elif amount > most:
            yield self.finding(request, f"is more than the limit, {limit.value}")


def _nano(field: Field) -> int | None:
    value = field.value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return nano(str(value))
    except Unreadable:
        return None


def _sum(fields: list[Field]) -> int:
    return sum(max(_nano(field) or 0, 0) for field in fields)


def _of_whole(pod: ManifestPod, part: str) -> dict[str, Field]:
    """The amounts of a whole pod; other resources than these FTL228 finds."""
    amounts = pod.field.members("resources", part)
    return {name: field for name, field in amounts if is_of_pods(name)}


def is_of_pods(name: str) -> bool:
    """Whether a whole pod may request this resource."""
    return name in ("cpu", "memory") or name.startswith(_HUGE)


def _is_extended(name: str) -> bool:
    """Whether it is a resource of which nobody gets a part."""
    return "/" in name and _KUBERNETES not in name


def _needs_limit(name: str) -> bool:
    return _is_extended(name) or name.startswith((_OF_CLASSES, _HUGE))


class WrongOperator(Refusal):
    """An expression on labels, or a toleration, whose operator and values do not fit."""

    id = "FTL223"
    name = "wrong-operator"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            for expression in _expressions(pod.field):
                for field, message in operator_errors(expression):
                    yield self.finding(field, message)
            for toleration in pod.field.each("tolerations"):
                yield from self._toleration(toleration)
        for expression in manifest.root.each("spec", "selector", "matchExpressions"):
            for field, message in operator_errors(expression):
                yield self.finding(field, message)

    def _toleration(self, toleration: Field) -> Iterator[Finding]:
        operator = toleration.text("operator")
        if operator == "Exists" and toleration.text("value"):
            yield self.finding(toleration.at("value"), "Exists takes no value", "leave it out")
        if operator != "Exists" and not toleration.text("key"):
            yield self.finding(toleration, "needs a key", "write operator: Exists for all taints")
        seconds = toleration.at("tolerationSeconds")
        if seconds.exists and toleration.text("effect") != "NoExecute":
            yield self.finding(seconds, "needs effect: NoExecute")


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _expressions(pod: Field) -> Iterator[Field]:
    nodes = pod.at("affinity", "nodeAffinity")
    terms = [*nodes.each(_REQUIRED, "nodeSelectorTerms")]
    terms += (entry.at("preference") for entry in nodes.each(_PREFERRED))
    for kind in ("podAffinity", "podAntiAffinity"):
        there = pod.at("affinity", kind)
        of_pods = [*there.each(_REQUIRED)]
        of_pods += (entry.at("podAffinityTerm") for entry in there.each(_PREFERRED))
        terms += (term.at("labelSelector") for term in of_pods)
    terms += (entry.at("labelSelector") for entry in pod.each("topologySpreadConstraints"))
    for term in terms:
        yield from term.each("matchExpressions")


class WrongPodName(Refusal):
    """A container, volume or claim of a pod whose name is none."""

    id = "FTL224"
    name = "wrong-name-in-pod"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            for entry in (*_containers(pod), *pod.field.each("volumes"), *pod.claims):
                name = entry.at("name")
                said = name.value if isinstance(name.value, str) else ""
                if said and (why := why_no_label(said)):
                    yield self.finding(name, f"{said!r} {why}")
                elif why := why_in_doubt(said):
                    fix = f"write {said.lower()}"
                    yield self.finding(name, f"{said!r} {why}", fix, Severity.WARN)
            for entry in pod.claims:
                for key in ("resourceClaimName", "resourceClaimTemplateName"):
                    if (said := entry.text(key)) and (why := why_no_subdomain(said)):
                        yield self.finding(entry.at(key), f"{said!r} {why}")


class NoImage(Refusal):
    """A container without an image."""

    id = "FTL225"
    name = "no-image"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        if manifest.specs_by_form:  # Elastic's operator is one that adds it
            return
        for pod in manifest.pods:
            for container in _containers(pod):
                if not container.at("image").value:
                    yield self.finding(container.at("image"), "is required")
