"""The rows of the rule tables: what each may hold, and what it matches.

Every row has a `name` and a `source` that says where it comes from. `weight` is the share (0..1) of
the score that the fact takes.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from fettle.health.signals import nvsentinel, patterns, xids
from fettle.model import OWN_CONDITIONS, OWN_PREFIX, EvidenceKind, Family, Source, SourceKind

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Seconds = Annotated[float, msgspec.Meta(gt=0.0)]
_TELLS_OF_HEALTH = re.compile(
    "health(?!care)|degrad|(?<!de)fault(?![-_.]?(?:domain|toleran))|quarantin|maintenance|cordon"
    "|drain|broken|remediat|repair|evict|fail(?!ure[-_.]?domain|over)|error|suspect|reboot"
    "|unavailable|abnormal|anomal|problem|incident|defect|impair|damag|corrupt|malfunction|outage"
    "|unrespons|uncorrect|retire|decommission|unusable|unstable|flapping|overheat|throttled|fallen"
    "|out[-_.]?of[-_.]?service|(?<!cpu[-_.])isolated(?![-_.]?(?:cpu|core))|crash(?![-_.]?kernel)"
    "|(?<!scale[-_.])(?<!cool[-_.])(?<![a-z])down(?![a-z])"
    "|(?<![a-z])(?:bad|xids?|sick|lost|rma|offline|hung|stuck|dead|missing|ecc)(?![a-z])"
    "|^aws-node-termination-handler/action$|^os[.]modelarts[.]node/lock[.]action$"  # what is done
    "|(?-i:(?<![A-Za-z])(?:bad|xid|sick|lost|RMA)(?=[A-Z])"  # badGPU
    "|(?<=[a-z])(?:Bad|Xid|XID|Sick|Lost|Rma|RMA)(?![a-z]))",  # gpuXid
    re.IGNORECASE,
)
"""Words that no mere description of a device or node has. `default`, or a domain of faults, is not
one of them."""
_LONGEST_KEY = 253 + 1 + 63
"""Of a label or annotation that the API server takes."""


def is_pattern(text: str) -> bool:
    return any(c in text for c in "*?[")


def rule_of(kind: SourceKind, pattern: str) -> Source | None:
    """What evidence of a row counts by, if what it matches can differ; None if its source says
    it."""
    return Source(kind, pattern) if is_pattern(pattern) else None


class RuleRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all rows."""

    name: str
    source: str


class FamilyRow(RuleRow, frozen=True, kw_only=True):
    """How fast evidence of a family (the row's name) is forgotten, and whether a reboot mends its
    faults.
    Such as `{name: memory, half_life_s: 604800, mended_by_reboot: false}`."""

    half_life_s: Seconds
    mended_by_reboot: bool = True

    def __post_init__(self) -> None:
        Family(self.name)


class SignalRow(RuleRow, frozen=True, kw_only=True):
    """Weight and cap of evidence that Fettle derives itself, by the name of the signal.
    Such as `{name: tenant-caused-metric, family: straggler, weight: 0.35, cap: 0.35, together:
    0.6}`.

    Each namespace that reports counts at most `cap`, all together at most `together`.
    """

    weight: Share
    cap: Share = 1.0
    together: Share = 1.0
    family: Family = Family.DRIVER


class XidClassRow(RuleRow, frozen=True, kw_only=True):
    """What a class of NVIDIA XIDs means for the device. `gone`: the device cannot be asked any more
    what it needs, so a driver's effect `None` says nothing of it.
    Such as `{name: lost, weight: 1.0, kind: latched, gone: true}`."""

    weight: Share
    kind: EvidenceKind = EvidenceKind.LEVEL
    gone: bool = False


class XidRow(RuleRow, frozen=True, kw_only=True):
    """One XID (the row's name). `class` names a row of `xid_classes`; `action` is the first step
    that NVIDIA recommends.
    Such as `{name: 44, class: info, family: driver, text: graphics engine fault during context
    switch, action: IGNORE}`.

    `recovery`: if its message names a recovery action, the row of that action applies instead.
    `ends`: XIDs of the same device that are over once this one was logged after them.
    """

    class_: str = msgspec.field(name="class")
    family: Family
    text: str
    action: str = ""
    recovery: bool = False
    ends: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field, code in (("name", self.name), *(("ends", each) for each in self.ends)):
            if not xids.is_code(code) or int(code) > xids.LARGEST:
                raise ValueError(
                    f"{field}: {code!r} is no XID, which is a number from 1 to {xids.LARGEST}"
                )


class DcgmRow(RuleRow, frozen=True, kw_only=True):
    """One error code of NVIDIA's DCGM: its number (the row's name), and its name in `code`. A row
    of one's own may be named by either.
    Such as `{name: 3, code: DCGM_FR_PCI_REPLAY_RATE, family: bus, weight: 0.3, text: unacceptable
    rate of PCI errors}`.

    `formerly`: the name that older releases use. `xid`: it only says that there was an XID. If
    the message does not have that, the condition's row says what it weighs; so it does for a code
    without a row. What NVSentinel recommends is the least that a code weighs (`RESTART_BM`: 0.9),
    except for codes that are no fault of a GPU.
    """

    family: Family
    weight: Share
    text: str
    code: str = ""
    formerly: str = ""
    kind: EvidenceKind = EvidenceKind.LEVEL
    xid: bool = False


class RecoveryRow(RuleRow, frozen=True, kw_only=True):
    """A GPU recovery action, by its number in NVML (the row's name). `class` as for an XID.
    Such as `{name: 4, class: reset, family: driver, text: 'drain the GPU, then reset it'}`."""

    class_: str = msgspec.field(name="class")
    family: Family
    text: str


class ActionRow(RuleRow, frozen=True, kw_only=True):
    """An NVSentinel recommended action (the row's name). A device that needs it weighs at least
    `least`.
    Such as `{name: COMPONENT_RESET, least: 0.75}`."""

    least: Share


TAINT_EFFECTS = ("NoSchedule", "NoExecute", "None")
"""Of device taints."""
BOOT_ID = r"(?i)boot[ _-]?id\W{1,4}([0-9a-f][0-9a-f-]{30,})"
"""How a message states the boot that it is about."""


class ConditionRow(RuleRow, frozen=True, kw_only=True):
    """A node condition and its polarity.
    Such as `{name: npd-readonly, type: ReadonlyFilesystem, faulty: true, family: node, weight:
    0.75, heartbeat_s: 300}`.

    - `type`, `reason`: patterns (`*` matches anything; `{type}` in a reason is the type itself).
    - `faulty`: the status that means a fault.
    - `message`: a regular expression. If it is found in the message, the row applies beside the one
      that matches the reason: monitors join findings, and the reason is that of the last.
    - `format: nvsentinel`: read devices from the message.
    - `xid`: how to find all XIDs in reason and message: `any` for every form in which the driver
      and monitors write them, `ErrorCode` for NVSentinel's error codes, or a regular expression
      whose group is the number. With groups `xid` and `pci` it also finds the GPU's address.
      `kernel log`: the driver's own line only (`NVRM: Xid (PCI:0000:c1:00): 79`), which is about
      that GPU, whatever the status. Without `xid`, such lines are still read, beside what the row
      says, unless its weight is 0.
      `any` reads `XID 79`, `Xid: 79`, `xid=79`, `XID-79`, `XID#79`, `xid_79`, `Xid error code 79`,
      `NvidiaXID79Error`, and several: `Xids: 13, 79`, `XID 31 and 79`, `GPUXid/XID48_XID63`. In
      others, such as `Xid/79` or `Xid errors: 79` (which may be a count), none is seen. SXIDs (of
      NVSwitches) are no XIDs. XID 162 ends an earlier 163 of the same GPU. NVSentinel's XID is its
      `ErrorCode`; without one, what its text calls an XID.
    - `dcgm`: a regular expression whose group is an error code of DCGM, whose row says what it
      weighs. NVSentinel's entries are read without it.
    - `concludes`: whatever XIDs it names, a fault weighs at least what the row weighs. Otherwise
      the XIDs' own weights replace that of the row.
    - `boot`: a regular expression whose group in the message is a boot id. If it is another one
      than the node's, the fault is from before a reboot, and over.
    - `until_reboot`: its producer never sets the other status. It removes the condition after a
      reboot, and the fault is over with that.
    - `listed`: stands for reasons that no row names. A fault with such a reason is listed with the
      conditions that no rule names.
    - `unknown_counts`: status Unknown means that nothing reliable is known about the node.
    - `heartbeat_s`: the producer renews the condition at least this often. After three times as
      long without a renewal, nothing reliable is known about the node, and a fault fades.
    - `begins_in_s`: it is about planned work that begins in so many seconds, as far as pods go by
      it, unless the message says when, as AKS's does. Only in family `maintenance`.
    """

    type: str
    faulty: bool
    family: Family
    weight: Share
    reason: str = "*"
    message: str = ""
    kind: EvidenceKind = EvidenceKind.LEVEL
    format: str = ""
    xid: str = ""
    dcgm: str = ""
    concludes: bool = False
    boot: str = BOOT_ID
    until_reboot: bool = False
    listed: bool = False
    unknown_counts: bool = False
    heartbeat_s: Seconds | None = None
    begins_in_s: Annotated[float, msgspec.Meta(ge=0.0)] | None = None

    def __post_init__(self) -> None:
        _check_planned(self.family, self.begins_in_s)
        if self.format not in ("", "nvsentinel"):
            raise ValueError(f'format must be "nvsentinel" or unset, not {self.format!r}')
        _check_foreign("type", self.type)
        _check_xid(self.xid)
        _check_pattern("message", self.message)
        _check_pattern("boot", self.boot, groups=1)
        _check_pattern("dcgm", self.dcgm, groups=1 if self.dcgm else 0)
        if "pci" in (groups := patterns.compiled(self.xid).groupindex) and "xid" not in groups:
            raise ValueError(f"xid: {self.xid!r} has a group pci, so it needs a group xid too")

    @property
    def is_pattern(self) -> bool:
        return is_pattern(self.type)

    def matches(self, type_: str, reason: str) -> bool:
        return (type_ == self.type or fnmatchcase(type_, self.type)) and (
            self.reason == "*" or fnmatchcase(reason, self.reason.replace("{type}", type_))
        )

    def names_reason(self, type_: str, reason: str) -> bool:
        """Whether it is about this reason, and not about every one."""
        return self.reason != "*" and self.matches(type_, reason)

    def stated_boot(self, message: str) -> str:
        """The boot id that a message states; "" if none."""
        found = patterns.search(self.boot, message)
        return found[1] if found is not None else ""


class TaintRow(RuleRow, frozen=True, kw_only=True):
    """A device taint by driver, key and effect (patterns), and one of `values` if there are any.
    Such as `{name: nvidia-unmonitored, key: gpu.nvidia.com/unmonitored, family: driver, weight:
    0.0, kind: unknown}`.

    - `xid`: its value is an XID, whose row says what it weighs: at least `least` and at most
      `most`.
    - `remark` is said where one of these bounds counts.

    NVIDIA's DRA driver publishes a GPU's last XID as the taint `gpu.nvidia.com/xid`. After v0.5.0
    its effect says whether the GPU needs recovery, and bounds the weight. Older drivers set
    `NoSchedule` for most XIDs: with these, let the XID alone decide by a row of your own with
    `key: gpu.nvidia.com/xid` and `xid: true`.
    """

    key: str
    family: Family
    weight: Share
    driver: str = "*"
    effect: str = "*"
    values: frozenset[str] = frozenset()
    kind: EvidenceKind = EvidenceKind.LEVEL
    xid: bool = False
    least: Share = 0.0
    most: Share = 1.0
    remark: str = ""

    def __post_init__(self) -> None:
        _check_foreign("key", self.key)
        if not any(fnmatchcase(effect, self.effect) for effect in TAINT_EFFECTS):
            near = get_close_matches(self.effect, TAINT_EFFECTS, 1)
            expected = near[0] if near else f"one of {', '.join(TAINT_EFFECTS)}"
            raise ValueError(
                f"effect: no device taint has the effect {self.effect!r}, so this row would never "
                f"count; write {expected}"
            )

    @property
    def is_catch_all(self) -> bool:
        """Whether it matches every key, so it only says what taints mean in general."""
        return self.key == "*"

    def matches(self, driver: str, key: str, value: str, effect: str) -> bool:
        return (
            fnmatchcase(key, self.key)
            and fnmatchcase(effect, self.effect)
            and fnmatchcase(driver, self.driver)
            and (not self.values or value in self.values)
        )


class AttributeRow(RuleRow, frozen=True, kw_only=True):
    """An attribute by which a driver publishes that a device is faulty.
    Such as `{name: intel-unhealthy, driver: gpu.intel.com, attribute: health, value: Unhealthy,
    family: driver, weight: 1.0, kind: latched}`.

    `driver` and `value` are patterns. `attribute` is a name without the driver's domain. A boolean
    reads as `true` or `false`.
    """

    driver: str
    attribute: str
    value: str
    family: Family
    weight: Share
    kind: EvidenceKind = EvidenceKind.LEVEL

    def matches(self, value: str) -> bool:
        return fnmatchcase(value, self.value)


class AnnotationRow(RuleRow, frozen=True, kw_only=True):
    """A node annotation. If it is absent or has another value, that is an all-clear.
    Such as `{name: our-repair, key: example.com/repair, value: open, family: bus, weight: 0.75}`.

    - `key`: a regular expression for the whole key. `value`: a pattern.
    - With `resource`, it is about units of that resource: those that `units`, a regular expression
      with one group, finds in the value. Each is a UUID, an index or `pci:ADDRESS`.
    """

    key: str
    value: str
    weight: Share
    family: Family = Family.NODE
    kind: EvidenceKind = EvidenceKind.LEVEL
    resource: str = ""
    units: str = ""

    def __post_init__(self) -> None:
        _check_foreign("key", self.key.removeprefix("^").replace("\\", ""))
        _check_pattern("key", self.key)
        if bool(self.resource) != bool(self.units):
            raise ValueError("resource and units are needed together")
        _check_pattern("units", self.units, groups=1 if self.units else 0)


class DeviceConditionRow(RuleRow, frozen=True, kw_only=True):
    """A condition of an allocated device (`status.devices` of a claim) and its polarity.
    Such as `{name: ready, type: Ready, faulty: false, family: driver, weight: 0.35, tenant_caused:
    true}`.

    `type`, `reason` and `driver` are patterns; `faulty` is the status that means a fault.
    `tenant_caused`: the claim's own requests can cause it, so it is its namespace's word.
    """

    type: str
    faulty: bool
    family: Family
    weight: Share
    reason: str = "*"
    driver: str = "*"
    kind: EvidenceKind = EvidenceKind.LEVEL
    tenant_caused: bool = False

    def __post_init__(self) -> None:
        if self.tenant_caused and self.kind is not EvidenceKind.LEVEL:
            raise ValueError(f"tenant_caused: only rows of kind level can be, not {self.kind}")

    def matches(self, driver: str, type_: str, reason: str) -> bool:
        return (
            fnmatchcase(type_, self.type)
            and fnmatchcase(reason, self.reason)
            and fnmatchcase(driver, self.driver)
        )


class RefusalRow(RuleRow, frozen=True, kw_only=True):
    """Whether pods can cause a kubelet's refusal, by its message.
    Such as `{name: preferred-allocation, message: device plugin GetPreferredAllocation rpc failed,
    tenant_caused: false}`.

    - `message` is a regular expression that is searched for.
    - `tenant_caused`: true if the pod's own requests can cause it, so it is its namespace's word;
      false if only the node can. Without it, that depends on who placed the pod. In
      words that no row knows, it is evidence from its namespace until pods of two were refused.
    - `ignored`: it says nothing of devices. `unless_full`: it says nothing while live pods hold all
      units of the resource on the node.
    """

    message: str
    tenant_caused: bool | None = None
    ignored: bool = False
    unless_full: bool = False

    def __post_init__(self) -> None:
        _check_pattern("message", self.message)


NODE_EVENTS_FROM = ("default", "kube-system")
"""Where Events about Nodes are: the API server takes those about objects without a namespace in
these only (kubernetes pkg/apis/core/validation/events.go), and client-go's recorder writes them to
`default`. Anybody else must write a namespace into the reference, which no Node has."""


class EventRow(RuleRow, frozen=True, kw_only=True):
    """An Event about a Node, by `reason` and `component` (patterns; who reports it).
    Such as `{name: eks-pcie, reason: AcceleratedHardwareReady, message: '^NvidiaPCIeError: ',
    family: bus, weight: 0.3}`.

    - `message`: a regular expression that the message must match, too.
    - `format`, `xid` and `dcgm` as for conditions.
    - `namespaces`: where such Events come from. Those of other namespaces do not count.

    It counts as long as the Event is there: an hour after it was last seen. Whoever may write in
    its namespace can write it, so it is the word of that.
    """

    reason: str
    family: Family
    weight: Share
    component: str = "*"
    namespaces: tuple[str, ...] = NODE_EVENTS_FROM
    message: str = ""
    format: str = ""
    xid: str = ""
    dcgm: str = ""

    def __post_init__(self) -> None:
        if self.format not in ("", "nvsentinel"):
            raise ValueError(f'format must be "nvsentinel" or unset, not {self.format!r}')
        _check_xid(self.xid)
        _check_pattern("message", self.message)
        _check_pattern("dcgm", self.dcgm, groups=1 if self.dcgm else 0)

    def matches(self, reason: str, component: str, namespace: str, message: str) -> bool:
        return (
            namespace in self.namespaces
            and fnmatchcase(reason, self.reason)
            and fnmatchcase(component, self.component)
            and (not self.message or patterns.search(self.message, message) is not None)
        )


class StartRow(RuleRow, frozen=True, kw_only=True):
    """Whether a pod that does not start is kept from it by devices, by what is said of it.
    Such as `{name: cdi, message: unresolvable CDI devices|CDI device injection failed|failed to
    inject CDI devices|CDI registry}`.

    `message` is a regular expression that is searched for. `ignored`: it says nothing of devices.
    `whole_node`: it is about all devices of the node, or of the driver, not only those of the pod.
    """

    message: str
    ignored: bool = False
    whole_node: bool = False

    def __post_init__(self) -> None:
        _check_pattern("message", self.message)


class LabelRow(RuleRow, frozen=True, kw_only=True):
    """A node label. If it is absent or has another value, that is an all-clear.
    Such as `{name: our-repair, key: example.com/repair, value: open, weight: 0.75}`.

    - `key`: a regular expression for the whole key. With `resource`, its group is the index of that
      resource's unit.
    - `value`: a pattern. Values that match `unless` do not count.
    - `due_within_s`: the value is a time, in Unix seconds or by ISO 8601, and counts when it is no
      further away, before or after.
    - `begins_in_s`: as for conditions. With `due_within_s` the value is when it begins: before
      that the row weighs nothing, and counts only by a policy's `expectedRuntime`.
    - `below`: the key of another label. The value counts if it is a smaller number than that.
    - `remediated`: not a fault, but NVSentinel's statement that what it found has been dealt with.
    - `sound`: patterns of values that say that nothing is wrong. If a row of the key has it, also
      an empty one, values that no row knows are listed with the labels that no rule names.
    """

    key: str
    value: str
    family: Family = Family.NODE
    weight: Share = 0.0
    kind: EvidenceKind = EvidenceKind.LEVEL
    resource: str = ""
    remediated: bool = False
    unless: str = ""
    due_within_s: Seconds | None = None
    begins_in_s: Annotated[float, msgspec.Meta(ge=0.0)] | None = None
    below: str = ""
    sound: tuple[str, ...] | None = None

    def matches(self, value: str) -> bool:
        return fnmatchcase(value, self.value) and not (
            self.unless and fnmatchcase(value, self.unless)
        )

    def due_at(self, value: str) -> float | None:
        """The time that the value is; None if it is none."""
        if self.due_within_s is None:
            return None
        if value.isascii() and value.isdigit() and len(value) <= 11:
            return float(value)
        with suppress(ValueError, OverflowError):
            at = datetime.fromisoformat(value)
            return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
        return None

    def is_read(self, value: str) -> bool:
        """Whether the value is of the kind that the row expects."""
        if self.below:
            return xids.is_code(value)
        return self.due_within_s is None or self.due_at(value) is not None

    def counts(self, labels: Mapping[str, str], value: str, now: float) -> bool:
        """Whether a value that matches is a fault now, beside the node's other `labels`."""
        if not self.is_read(value):
            return False
        if self.below:
            other = labels.get(self.below, "")
            return xids.is_code(other) and int(value) < int(other)
        if (at := self.due_at(value)) is None:
            return True
        is_over = now - at > (self.due_within_s or 0.0)
        return not is_over and (self.is_planned or self.weighs(value, now) > 0)

    @property
    def is_planned(self) -> bool:
        """Whether it is about work that is planned and has not begun."""
        return self.begins_in_s is not None

    def weighs(self, value: str, now: float) -> float:
        """The weight of a value that counts: nothing while what it says is not due."""
        at = self.due_at(value)
        return self.weight if at is None or at - now <= (self.due_within_s or 0.0) else 0.0

    def begins(self, value: str, now: float) -> float | None:
        """In how many seconds planned work begins by this value; None if it is none."""
        at = self.due_at(value)
        return self.begins_in_s if at is None or not self.is_planned else max(0.0, at - now)

    def __post_init__(self) -> None:
        _check_planned(self.family, self.begins_in_s)
        _check_foreign("key", self.key.removeprefix("^").replace("\\", ""))
        _check_pattern("key", self.key, groups=1 if self.resource else 0)


def _check_foreign(field: str, pattern: str) -> None:
    own = next((each for each in (OWN_PREFIX, OWN_CONDITIONS) if pattern.startswith(each)), "")
    if own:
        raise ValueError(
            f"{field}: names that begin with {own} are Fettle's own and never evidence, so "
            f"this row would never count; use a name in a domain of your own"
        )


def _check_planned(family: Family, begins_in_s: float | None) -> None:
    if begins_in_s is not None and family is not Family.MAINTENANCE:
        raise ValueError(f"begins_in_s: only family maintenance is planned work, not {family}")


def _check_xid(form: str) -> None:
    _check_pattern("xid", form)
    known = ("", xids.ANY_FORM, xids.KERNEL_LOG, nvsentinel.ERROR_CODE)
    if form not in known and not patterns.compiled(form).groups:
        raise ValueError(
            f"xid: {form!r} has no group, so no number would be found; put the number in brackets, "
            "as in 'Xid ([0-9]+)'"
        )


def _check_pattern(field: str, pattern: str, groups: int | None = None) -> None:
    try:
        compiled = patterns.compiled(pattern)
    except ValueError as error:
        raise ValueError(
            f"{field}: {pattern!r} is not a valid regular expression: {error}"
        ) from error
    if groups is not None and compiled.groups != groups:
        raise ValueError(f"{field}: {pattern!r} must have {groups} group(s)")


def is_about_health(key: str) -> bool:
    """Whether a label's or annotation's key has such a word."""
    return _TELLS_OF_HEALTH.search(key[:_LONGEST_KEY]) is not None


class VendorRow(RuleRow, frozen=True, kw_only=True):
    """A vendor whose labels and annotations on Nodes may tell of health, by whatever word (the
    row's name is their domain, also with a prefix). Keys that match one of the patterns `describes`
    do not. A key with a word such as `health`, `fault`, `drain` or `maintenance` must be given in
    full: whosever it is, it tells of health.
    Such as `{name: gke.google.com, describes: [gke.google.com/tpu-*, gke.google.com/gpu-*,
    gke.google.com/topology*]}`."""

    describes: tuple[str, ...] = ()

    def is_relevant(self, key: str) -> bool:
        """Whether a key, without any such word, is the vendor's and not described. Keys without a
        domain may begin with it: `metricsexporter.amd.com.gpu.0.state`."""
        if f".{self.name}." not in f".{key.partition('/')[0]}.":
            return False
        return not any(fnmatchcase(key, pattern) for pattern in self.describes)
