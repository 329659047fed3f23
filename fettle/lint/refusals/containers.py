"""Rules about settings of containers and pods that do not fit each other, which the API server
refuses."""

from collections.abc import Iterator

from fettle.dra import Unreadable, nano
from fettle.lint.findings import Finding, Refusal
from fettle.lint.manifests import Field, Manifest, ManifestPod
from fettle.lint.names import is_mark, is_shouted
from fettle.lint.refusals.pods import is_of_pods
from fettle.lint.refusals.wording import twice, why_no_value

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Wrong = Iterator[tuple[Field, str]]


class WrongPortOrProbe(Refusal):
    """Two ports of one name or one host port, or a probe that its container cannot have."""

    id = "FTL226"
    name = "wrong-port-or-probe"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            for field, message in (*_ports(pod), *_probes(pod)):
                yield self.finding(field, message)


def _ports(pod: ManifestPod) -> Wrong:
    on_host: list[tuple[str, Field]] = []
    shared = pod.field.at("hostNetwork").value is True
    for container in pod.field.each("containers"):
        ports = list(container.each("ports"))
        for name, port in twice((port.text("name"), port) for port in ports):
            yield port.at("name"), f"{name} is the name of another port already"
        for port in ports:
            number = port.integer("hostPort") or (shared and port.integer("containerPort"))
            if number:
                key = f"{port.text('hostIP')} {port.text('protocol') or 'TCP'} {number}"
                on_host.append((key, port))
            if shared and number != port.integer("containerPort"):
                yield port.at("hostPort"), "must be containerPort with hostNetwork: true"
    for _, port in twice(on_host):
        yield port, "takes a port of the host that another one takes already"


def _probes(pod: ManifestPod) -> Wrong:
    for container in pod.field.each("initContainers"):
        if container.text("restartPolicy") != "Always":
            for part in (*_PROBES, "lifecycle"):
                if container.at(part).exists:
                    message = "an init container may have it only with restartPolicy: Always"
                    yield container.at(part), message
    for container in pod.containers:
        for name in ("livenessProbe", "startupProbe"):
            if (container.integer(name, "successThreshold") or 1) > 1:
                yield container.at(name, "successThreshold"), "must be 1"
        seconds = container.at("readinessProbe", "terminationGracePeriodSeconds")
        if seconds.exists:
            yield seconds, "may not be set for a readinessProbe"


class WrongMount(Refusal):
    """A mount or a volume device that its container or its volume does not allow."""

    id = "FTL227"
    name = "wrong-mount"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            volumes = {volume.text("name"): volume for volume in pod.field.each("volumes")}
            for container in pod.containers:
                for field, message in (*_mounts(container), *_blocks(container, volumes)):
                    yield self.finding(field, message)


def _mounts(container: Field) -> Wrong:
    privileged = container.at("securityContext", "privileged").value is True
    for mount in container.each("volumeMounts"):
        if mount.text("mountPropagation") == "Bidirectional" and not privileged:
            yield mount.at("mountPropagation"), "Bidirectional needs privileged: true"
        recursive = mount.text("recursiveReadOnly") not in ("", "Disabled")
        if recursive and mount.at("readOnly").value is not True:
            yield mount.at("recursiveReadOnly"), "needs readOnly: true"


def _blocks(container: Field, volumes: dict[str, Field]) -> Wrong:
    mounted = {mount.text("name") for mount in container.each("volumeMounts")}
    for block in container.each("volumeDevices"):
        name = block.text("name")
        volume = volumes.get(name)
        if name in mounted:
            yield block.at("name"), f"{name} is among volumeMounts already"
        of_claim = volume and (volume.at("persistentVolumeClaim").exists)
        if volume and not of_claim and not volume.at("ephemeral").exists:
            yield block.at("name"), f"{name} is no persistentVolumeClaim"


class ExcludedSettings(Refusal):
    """A setting of a pod or container that another one excludes or needs."""

    id = "FTL228"
    name = "settings-do-not-fit"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            wrong = (*_of_pod(pod.field), *_of_placement(pod.field))
            for field, message in wrong:
                yield self.finding(field, message)
            for container in pod.containers:
                grace = pod.field.integer("terminationGracePeriodSeconds")
                wrong = (*_of_container(container), *_sleeps(container, grace))
                if pod.field.text("restartPolicy") == "Never":
                    wrong += tuple(_resizes(container))
                for field, message in wrong:
                    yield self.finding(field, message)
            added = pod.field.at("ephemeralContainers")
            if added.value:
                message = "can only be added to a pod that runs"
                yield self.finding(added, message, "leave it out")


def _of_pod(pod: Field) -> Wrong:
    if pod.at("shareProcessNamespace").value is True and pod.at("hostPID").value is True:
        yield pod.at("shareProcessNamespace"), "and hostPID exclude each other"
    if pod.text("dnsPolicy") == "None" and not pod.at("dnsConfig", "nameservers").value:
        yield pod.at("dnsConfig"), "needs nameservers with dnsPolicy: None"
    if pod.at("schedulingGates").value and pod.text("nodeName"):
        yield pod.at("nodeName"), "may not be set with schedulingGates"
    if pod.at("hostUsers").value is False:
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if pod.at(name).value is True:
                yield pod.at(name), "may not be true with hostUsers: false"
    if pod.text("os", "name") == "windows":
        for name in ("hostPID", "hostIPC", "shareProcessNamespace", "hostUsers", "resources"):
            if pod.at(name).exists and pod.at(name).value is not False:
                yield pod.at(name), "may not be set for a windows pod"
    if pod.at("overhead").value and not pod.text("runtimeClassName"):
        yield pod.at("overhead"), "needs a runtimeClassName that says the same"
    for part in ("limits", "requests"):
        for name, field in pod.members("resources", part):
            if not is_of_pods(name) and (is_shouted(name) or not is_mark(name)):
                of_containers = "/" in name or name == "ephemeral-storage"
                only = "only for containers" if of_containers else "only cpu, memory and hugepages-"
                yield field, f"may not be set for a whole pod, {only}"
    yield from _seccomp(pod)
    if pod.at("resources", "claims").value:
        yield pod.at("resources", "claims"), "only containers may use claims"


def _of_container(container: Field) -> Wrong:
    context = container.at("securityContext")
    escalates = context.at("allowPrivilegeEscalation")
    if context.at("privileged").value is True and escalates.value is False:
        yield escalates, "may not be false with privileged: true"
    yield from _seccomp(container)
    rules = container.at("restartPolicyRules")
    if rules.value and not container.text("restartPolicy"):
        yield container.at("restartPolicy"), "is required with restartPolicyRules"
    for rule in container.each("restartPolicyRules"):
        if not rule.at("exitCodes").exists:
            yield rule.at("exitCodes"), "is required"


def _resizes(container: Field) -> Wrong:
    for entry in container.each("resizePolicy"):
        if entry.text("restartPolicy") == "RestartContainer":
            message = "must be NotRequired with the pod's restartPolicy: Never"
            yield entry.at("restartPolicy"), message


def _sleeps(container: Field, grace: int | None) -> Wrong:
    most = _GRACE if grace is None else max(grace, 1)
    for hook in ("preStop", "postStart"):
        seconds = container.at("lifecycle", hook, "sleep", "seconds")
        if isinstance(seconds.value, int) and not 0 <= seconds.value <= most:
            yield seconds, f"must be at least 0 and at most terminationGracePeriodSeconds, {most}"


_GRACE = 30


def _seccomp(owner: Field) -> Wrong:
    profile = owner.at("securityContext", "seccompProfile")
    local = profile.text("type") == "Localhost"
    if local and not profile.text("localhostProfile"):
        yield profile.at("localhostProfile"), "is required with type: Localhost"
    elif profile.exists and not local and profile.at("localhostProfile").exists:
        yield profile.at("localhostProfile"), "needs type: Localhost"


def _of_placement(pod: Field) -> Wrong:
    for toleration in pod.each("tolerations"):
        value = toleration.at("value")
        if toleration.text("operator") in ("Gt", "Lt"):
            if not _is_number(value.value):
                yield value, f"must be a whole number with {toleration.text('operator')}"
        elif toleration.text("operator") != "Exists" and (why := why_no_value(value.text())):
            yield value, f"{value.text()[:80]!r} {why}"
    for spread in pod.each("topologySpreadConstraints"):
        if spread.at("minDomains").exists and spread.text("whenUnsatisfiable") != "DoNotSchedule":
            yield spread.at("minDomains"), "needs whenUnsatisfiable: DoNotSchedule"
        if spread.at("matchLabelKeys").value and not spread.at("labelSelector").exists:
            yield spread.at("matchLabelKeys"), "needs a labelSelector"
    for kind in ("podAffinity", "podAntiAffinity"):
        there = pod.at("affinity", kind)
        terms = [*there.each(_REQUIRED)]
        terms += [entry.at("podAffinityTerm") for entry in there.each(_PREFERRED)]
        for term in terms:
            if term.at("matchLabelKeys").value and not term.at("labelSelector").exists:
                yield term.at("matchLabelKeys"), "needs a labelSelector"
    yield from _of_nodes(pod.at("affinity", "nodeAffinity"))


def _of_nodes(affinity: Field) -> Wrong:
    required = list(affinity.each(_REQUIRED, "nodeSelectorTerms"))
    terms = [*required, *(entry.at("preference") for entry in affinity.each(_PREFERRED))]
    for term in required:
        for expression in term.each("matchExpressions"):
            for value in expression.entries("values"):
                if isinstance(value.value, str) and (why := why_no_value(value.value)):
                    yield value, f"the value {value.value[:80]!r} {why}"
    for term in terms:
        for expression in term.each("matchFields"):
            if expression.text("key") != "metadata.name":
                yield expression.at("key"), "must be metadata.name in matchFields"
            values = expression.at("values").value
            if isinstance(values, list) and len(values) != 1:
                yield expression.at("values"), "must be one in matchFields"


def _is_number(value: object) -> bool:
    return isinstance(value, str) and (is_mark(value) or value.removeprefix("-").isdecimal())


class WrongPages(Refusal):
    """Huge pages without memory or CPU, or other than whole ones."""

    id = "FTL229"
    name = "wrong-huge-pages"

    def found(self, manifest: Manifest) -> Iterator[Finding]:
        for pod in manifest.pods:
            of_pod = pod.field.raw("resources", "limits")
            # What containers request may become what the whole pod requests.
            anywhere = {name for one in pod.containers for name in _requested(one)}
            for owner in (pod.field, *pod.containers):
                named = _requested(owner)
                pages = [name for name in named if str(name).startswith("hugepages-")]
                beside = {*named, *(anywhere if owner is pod.field else of_pod)}
                if pages and not {"cpu", "memory"} & beside:
                    there = owner.at("resources")
                    yield self.finding(there, f"{pages[0]} needs memory or cpu beside it")
                for name in pages:
                    if _is_broken(name, named[name]):
                        there = owner.at("resources")
                        yield self.finding(there, f"{named[name]} are no whole {name}")


def _requested(owner: Field) -> dict[str, object]:
    return {**owner.raw("resources", "limits"), **owner.raw("resources", "requests")}


def _is_broken(name: str, amount: object) -> bool:
    try:
        size, given = nano(name.removeprefix("hugepages-")), nano(str(amount))
    except Unreadable:
        return False
    return size > 0 and given % size != 0
