"""The annotations under Fettle's prefix: all that it reads or writes, on any object."""

OWN_PREFIX = "fettle.dev/"
"""Begins every name that Fettle writes. A fact under such a name is never evidence."""

ANNOTATION = "fettle.dev/policy"
"""An annotation on a pod or workload, a label on a namespace: names its policy."""
MIN_SCORE_ANNOTATION = "fettle.dev/min-score"
"""An annotation on a pod or workload: replaces `placement.minScore` of its policy."""
ON_DEVICE_FAILURE_ANNOTATION = "fettle.dev/on-device-failure"
"""An annotation on a pod or workload: replaces `failure.onDeviceFailure` of its policy."""
ANNOTATIONS = (ANNOTATION, MIN_SCORE_ANNOTATION, ON_DEVICE_FAILURE_ANNOTATION)
"""All annotations by which a pod chooses or changes its policy."""
INJECTED = "fettle.dev/injected"
"""An annotation on an object that the webhook changed: what its policy put in, by path."""
HOLD = "fettle.dev/hold"
"""An annotation on a Node or ResourceSlice: an operator keeps its devices from use. The value is
the reason, or an object. Also the key of the taint that goes with a hold."""
FURTHER_HOLD = "fettle.dev/hold-"
"""Begins the annotations of further holds on the same object, each on its own."""
REPAIRED = "fettle.dev/repaired"
"""An annotation on a Node: an operator says when it, or a device of it, was mended."""
FURTHER_REPAIRED = "fettle.dev/repaired-"
"""Begins the annotations of further repairs on the same Node."""
EXPECTED_DEVICES = "fettle.dev/expected-devices"
"""An annotation on a Node: an operator says how many devices it has."""
HEALTH = "fettle.dev/health"
"""A label on Nodes: how healthy their devices are, for those who ask no extender."""
HEALTH_OF = "fettle.dev/health."
"""Begins the labels beside `fettle.dev/health`, which count only what may refuse: one for the whole
node, and one for each resource of a device plugin."""
HEALTH_OF_NODE = "fettle.dev/health.node"
"""The label beside `fettle.dev/health` for the whole node, which counts only what may refuse."""
LOST_DEVICES = "fettle.dev/health.missing"
"""A label, `true` on a node that has lost devices. It is no state of those that are there."""
HEALTH_REASON = "fettle.dev/health-reason"
"""An annotation beside the label `fettle.dev/health`: the score, and why."""
CORDONED = "fettle.dev/cordoned"
"""An annotation on a Node that Fettle has cordoned: why. It is uncordoned only if this is there."""
LEFT_ALONE = "left alone: somebody has uncordoned it"
"""Its value once somebody has uncordoned the node: a later cordon is theirs."""
OWN_CONDITIONS = "Fettle"
"""Begins the types of conditions of Nodes that are no evidence: ours, and those that remediation
writes because of ours and names so."""
DEVICES_SOUND = "FettleDevicesSound"
"""The type of the condition that Fettle writes on Nodes."""
SUSPENDED = "fettle.dev/suspended"
"""An annotation on a Job that the steward suspended: why. While it is there, it is not suspended
again."""
JOB_EXIT_CODES = "fettle.dev/job-exit-codes"
"""An annotation on pods: exit codes that their Job reserves for its own podFailurePolicy."""
WOKEN_AT = "fettle.dev/woken-at"
"""An annotation on the object by which the steward wakes waiting pods: when it last did so."""
PURPOSE = "fettle.dev/purpose"
"""An annotation on the object by which the steward wakes waiting pods: what it is for."""

_LONGEST_LABEL = 63
"""Characters of a label's key, after its prefix."""

KNOWN = frozenset(
    (
        *ANNOTATIONS,
        INJECTED,
        HOLD,
        REPAIRED,
        EXPECTED_DEVICES,
        JOB_EXIT_CODES,
        WOKEN_AT,
        PURPOSE,
        HEALTH_REASON,
        CORDONED,
        SUSPENDED,
    )
)


def units_label(resource: str) -> str | None:
    """The label on Nodes about the units of an extended resource, such as
    `fettle.dev/health.nvidia.com_gpu`. None if that would be too long."""
    label = HEALTH_OF + resource.replace("/", "_", 1)
    return label if len(label) <= len(OWN_PREFIX) + _LONGEST_LABEL else None


def is_health_label(key: str) -> bool:
    """Whether it is a label that Fettle writes on Nodes."""
    return key == HEALTH or key.startswith(HEALTH_OF)


def is_unknown(key: str) -> bool:
    """Whether an annotation has Fettle's prefix but is none that Fettle knows."""
    if not key.startswith(OWN_PREFIX) or key in KNOWN:
        return False
    return not key.startswith((FURTHER_HOLD, FURTHER_REPAIRED))
