"""Rules about DRA devices that are requested as extended resources."""

from collections.abc import Iterator

from fettle.dra import IMPLICIT_CLASS_PREFIX
from fettle.lint.cluster import Cluster
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest


class AskedForTwice(Rule):
    """A pod requests a class's devices both by a claim and as an extended resource."""

    id = "FTL041"
    seen = True
    name = "asked-for-twice"
    severity = Severity.WARN
    inventory = True
    today = "Both are allocated: the pod holds twice the devices."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for pod in manifest.pods:
            claims = cluster.claims_of(pod, manifest.namespace)
            classes = {option.class_name for claim in claims for option in claim.options}
            for name in classes:
                found = cluster.device_class(name)
                own_name = found.extended_resource_name if found is not None else None
                extended = {f"{IMPLICIT_CLASS_PREFIX}{name}", own_name}
                for resource, field in pod.resources.items():
                    if resource in extended:
                        yield self.finding(
                            field,
                            f"{resource} stands for DeviceClass {name}, whose devices a claim of "
                            "this pod requests too",
                            "request them once: by the claim or by the extended resource",
                        )


class SharedResourceName(Rule):
    """Two DeviceClasses with the same extendedResourceName."""

    id = "FTL042"
    seen = True
    name = "shared-resource-name"
    severity = Severity.WARN
    inventory = True
    today = "The newest class wins; the other one's devices are no longer found by that name."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for spec in manifest.device_classes:
            name = spec.text("extendedResourceName")
            for other, found in cluster.view.classes.items():
                if name and found.extended_resource_name == name and other != manifest.name:
                    yield self.finding(
                        spec.at("extendedResourceName"),
                        f"DeviceClass {other} has the same name; the newest of the two wins",
                        "use another name, or widen the selectors of one class",
                    )


class NotEvicted(Rule):
    """A DeviceTaintRule with NoExecute where pods use devices as extended resources."""

    id = "FTL043"
    seen = True
    name = "extended-resources-not-evicted"
    severity = Severity.WARN
    inventory = True
    today = "Pods that got the device as an extended resource stay; only others are evicted."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if (manifest.group, manifest.kind) != ("resource.k8s.io", "DeviceTaintRule"):
            return
        effect = manifest.root.at("spec", "taint", "effect")
        classes = cluster.view.classes.values()
        names = sorted(filter(None, (found.extended_resource_name for found in classes)))
        if effect.value == "NoExecute" and names:
            yield self.finding(
                effect,
                f"pods that use the device as {', '.join(names)} are not evicted",
                "delete such pods yourself",
            )
