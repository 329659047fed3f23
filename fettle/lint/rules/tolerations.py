"""Rules about the device taints that a claim tolerates."""

from collections.abc import Iterator

import msgspec

from fettle.api.resource import DeviceTaint, DeviceToleration
from fettle.dra import tolerates
from fettle.lint.cluster import Cluster
from fettle.lint.fields import Field
from fettle.lint.findings import Finding, Rule, Severity
from fettle.lint.manifests import Manifest, ManifestOption
from fettle.lint.names import nearest
from fettle.lint.survey.surveys import Survey

MOST = 16
_BLOCKING = ("NoSchedule", "NoExecute")


class UnknownTaint(Rule):
    """A toleration's key is almost, but not quite, that of a taint in use."""

    id = "FTL025"
    seen = True
    name = "unknown-taint"
    severity = Severity.WARN
    inventory = True
    today = (
        "The toleration is accepted and tolerates nothing: the pod stays Pending, or is evicted."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        if (catalogue := cluster.catalogue) is None:
            return
        keys = {taint.key for taint in catalogue.taints}
        for option in manifest.options:
            for toleration in option.tolerations:
                key = toleration.text("key")
                if key and key not in keys and (near := nearest(key, keys)):
                    message = f"no device has a taint {key!r}, but there is {near!r}"
                    yield self.finding(toleration.at("key"), message, f"write {near}")


class TolerationWithoutKey(Rule):
    """An empty key with operator Equal, the default, in a device toleration.

    The documentation of the API says that such a toleration matches everything; the allocator
    compares the value only, so `{}` tolerates just the taints without a value.
    """

    id = "FTL026"
    seen = True
    name = "toleration-without-key"
    severity = Severity.DENY
    today = (
        "It tolerates taints of any key with an equal value; `{}` tolerates those without a value."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            for toleration in option.tolerations:
                if _is_keyless(toleration):
                    value = toleration.text("value")
                    with_value = f"with the value {value!r}, whatever its key"
                    yield self.finding(
                        toleration,
                        "an empty key with operator Equal (the default) tolerates only taints "
                        f"{with_value if value else 'without a value'}, not every taint",
                        "name the taint's key, or write operator: Exists to tolerate every taint",
                    )


def _is_keyless(toleration: Field) -> bool:
    """A key or operator of a wrong type is for the API server to refuse, not for this rule."""
    key, operator = toleration.at("key").value, toleration.at("operator").value
    return (key or "") == "" and (operator or "") in ("", "Equal")


class SecondsIgnored(Rule):
    """tolerationSeconds with an effect other than NoExecute."""

    id = "FTL027"
    name = "toleration-seconds-ignored"
    seen = True
    severity = Severity.WARN
    today = "The seconds are accepted and ignored."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            for toleration in option.tolerations:
                effect = toleration.text("effect")
                seconds = toleration.at("tolerationSeconds")
                if seconds.exists and effect and effect != "NoExecute":
                    message = f"tolerationSeconds is ignored with effect {effect}"
                    fix = "write effect: NoExecute, or leave tolerationSeconds out"
                    yield self.finding(seconds, message, fix)


class TolerationWithoutEffect(Rule):
    """A device toleration without an effect."""

    id = "FTL028"
    seen = True
    name = "toleration-without-effect"
    severity = Severity.WARN
    today = (
        "The pod is scheduled onto devices with NoExecute taints and evicted again, since eviction "
        "counts only tolerations that name NoExecute; a Job goes round in circles."
    )

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            for toleration in option.tolerations:
                if not toleration.at("effect").value:
                    yield self.finding(
                        toleration,
                        "without an effect it lets the pod onto devices with a NoExecute taint, "
                        "but does not keep it from being evicted there",
                        "write two entries, one with effect: NoSchedule and one with "
                        "effect: NoExecute",
                    )


class HalfTolerated(Rule):
    """One effect of a device's taint is tolerated and the other is not."""

    id = "FTL029"
    seen = True
    name = "half-tolerated"
    severity = Severity.WARN
    inventory = True
    today = "The device is not allocated; tolerating NoExecute does not include NoSchedule."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            survey = cluster.survey(option)
            if survey is None:
                continue
            tolerations = list(_read(option))
            for taint, count in _half(tolerations, survey):
                yield self.finding(
                    option.field.at("tolerations"),
                    f"{count} matching devices have the taint {taint.key} with effect "
                    f"{taint.effect} too, which is not tolerated",
                    f"add a toleration of {taint.key} with effect: {taint.effect}",
                )
                break


def _half(tolerations: list[DeviceToleration], survey: Survey) -> Iterator[tuple[DeviceTaint, int]]:
    for taints, count in survey.taints.items():
        kept = {t.key for t in taints if any(tolerates(one, t) for one in tolerations)}
        for taint in taints:
            blocking = taint.effect in _BLOCKING and taint.key in kept
            if blocking and not any(tolerates(one, taint) for one in tolerations):
                yield taint, count


class AllTainted(Rule):
    """Every device that matches has a taint that is not tolerated."""

    id = "FTL030"
    seen = True
    name = "all-tainted"
    severity = Severity.WARN
    inventory = True
    today = "The pod stays Pending until a taint is removed."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for claim in manifest.claims:
            for request in claim.requests:
                blocked = [_blocking(option, cluster) for option in request.options]
                if blocked and all(blocked):
                    keys = sorted({key for found in blocked for key in found})
                    yield self.finding(
                        request.options[0].field,
                        f"all matching devices have taints that are not tolerated: "
                        f"{', '.join(keys)}",
                        "tolerate one of them if such devices are acceptable",
                    )


def _blocking(option: ManifestOption, cluster: Cluster) -> set[str]:
    """Keys of the taints that keep all of an option's matches from it; empty if some are free."""
    survey = cluster.survey(option)
    if survey is None or not survey.decided or not survey.matched:
        return set()
    tolerations = list(_read(option))
    keys: set[str] = set()
    for taints in survey.taints:
        untolerated = {
            taint.key
            for taint in taints
            if taint.effect in _BLOCKING and not any(tolerates(t, taint) for t in tolerations)
        }
        if not untolerated:
            return set()
        keys |= untolerated
    return keys


def _read(option: ManifestOption) -> Iterator[DeviceToleration]:
    for toleration in option.tolerations:
        try:
            yield msgspec.convert(toleration.value, DeviceToleration)
        except msgspec.ValidationError:
            continue  # for the API server to refuse


class TooManyTolerations(Rule):
    """More than 16 tolerations in one request."""

    id = "FTL031"
    name = "too-many-tolerations"
    seen = True
    severity = Severity.WARN
    today = "Documented as the limit, but accepted."

    def check(self, manifest: Manifest, cluster: Cluster) -> Iterator[Finding]:
        for option in manifest.options:
            count = sum(1 for _ in option.tolerations)
            if count > MOST:
                yield self.finding(
                    option.field.at("tolerations"),
                    f"{count} tolerations, and the API documents at most {MOST}",
                    "tolerate a key with operator: Exists instead of each of its values",
                )
