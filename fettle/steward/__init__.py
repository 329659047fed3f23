"""Decides what to write to the cluster, and writes it: one leader does that. Nothing else writes,
except `fettle hold`, by the same means (`holding`) and with the rights of who calls it.

May import the view and the session, but neither extender nor webhook.
"""

from fettle.steward import holding, taint_rules
from fettle.steward.admission_checks import SOUND_DEVICES, AdmissionChecks
from fettle.steward.allowed_nodes import AllowedNodes, PreemptibleNodes
from fettle.steward.device_healths import HealthRecords
from fettle.steward.failed_devices import FailedDevices
from fettle.steward.health_taints import HEALTH_RULES, HealthTaints, TaintNews
from fettle.steward.holding import HoldTaints
from fettle.steward.hopeless import HopelessOwners, HopelessPods, JobSuspension, Owners
from fettle.steward.lost_nodes import LostNodes
from fettle.steward.node_marks import NodeMarking
from fettle.steward.pod_events import (
    EventsOnPods,
    RefusalEvents,
    news_of_failures,
    news_of_risks,
    news_of_starts,
)
from fettle.steward.policy_statuses import PolicyStatuses
from fettle.steward.steward import STEWARD, Steward
from fettle.steward.waking import (
    LET_PREEMPT_NOBODY,
    PREEMPTOR_WOKEN_FOR_S,
    Nudge,
    PatienceEnds,
    PreemptorNudge,
    Waking,
    waiting,
)

__all__ = [
    "HEALTH_RULES",
    "LET_PREEMPT_NOBODY",
    "PREEMPTOR_WOKEN_FOR_S",
    "SOUND_DEVICES",
    "STEWARD",
    "AdmissionChecks",
    "AllowedNodes",
    "EventsOnPods",
    "FailedDevices",
    "HealthRecords",
    "HealthTaints",
    "HoldTaints",
    "HopelessOwners",
    "HopelessPods",
    "JobSuspension",
    "LostNodes",
    "NodeMarking",
    "Nudge",
    "Owners",
    "PatienceEnds",
    "PolicyStatuses",
    "PreemptibleNodes",
    "PreemptorNudge",
    "RefusalEvents",
    "Steward",
    "TaintNews",
    "Waking",
    "holding",
    "news_of_failures",
    "news_of_risks",
    "news_of_starts",
    "taint_rules",
    "waiting",
]
