"""Evidence to health: score, state with hysteresis, and the evidence that explains both.

Stands between inventory and view in *watch → inventory → health → verdict → answer*. Pure: the
clock is an argument.
"""

from fettle.health.book import HealthBook, assess
from fettle.health.fading import RECORD_SOURCE, is_past, source_of
from fettle.health.memory import CLOCKS_APART_S
from fettle.health.score import DIGITS, known_score
from fettle.health.signals import gpu_names, metrics
from fettle.health.signals.claims import (
    has_device_status,
    report_of_claim,
    report_of_compute_domain,
)
from fettle.health.signals.events import report_of_event
from fettle.health.signals.nodes import report_of_node
from fettle.health.signals.object_rows import ObjectKind, ObjectRow, quoted
from fettle.health.signals.objects import object_reporter, readable, report_of_object
from fettle.health.signals.operator_words import (
    COUNT_HINT,
    GFD_COUNT,
    HOLD_SOURCE,
    INSTANCE_COUNTS,
    KARPENTER_MAKER,
    NVSENTINEL_COUNT,
    describe_hold,
    expected_on_node,
    hold_time,
    holds_on_devices,
    holds_on_node,
    in_force,
    name_of_held,
    subject_called,
    to_count,
    unread_counts,
    written,
)
from fettle.health.signals.pods import (
    DEVICE_STATUS_SOURCE,
    claims_mentioned,
    devices_given,
    is_device_refusal,
    report_of_pod,
)
from fettle.health.signals.reports import SignalReport, node_reporter, one_line
from fettle.health.signals.rule_checks import (
    RuleMistake,
    is_rules_file,
    rows_about_objects,
    rows_replaced,
    rule_mistakes,
)
from fettle.health.signals.rule_files import (
    Tables,
    expressions_of,
    load_rules,
    make_rules,
    own_rows,
    rules_without,
)
from fettle.health.signals.rule_tables import BY_REBOOT, BY_RESOLUTION, SignalRules
from fettle.health.signals.slices import report_of_slice, report_of_taint_rule, selects_device
from fettle.health.signals.starts import (
    AWAITED_S,
    STARTS,
    FailedStart,
    awaited_since,
    devices_meant,
    failed_start,
    start_evidence,
    starts_of,
)
from fettle.health.states import START, Awaited, Recovery

__all__ = [
    "AWAITED_S",
    "BY_REBOOT",
    "BY_RESOLUTION",
    "CLOCKS_APART_S",
    "COUNT_HINT",
    "DEVICE_STATUS_SOURCE",
    "DIGITS",
    "GFD_COUNT",
    "HOLD_SOURCE",
    "INSTANCE_COUNTS",
    "KARPENTER_MAKER",
    "NVSENTINEL_COUNT",
    "RECORD_SOURCE",
    "START",
    "STARTS",
    "Awaited",
    "FailedStart",
    "HealthBook",
    "ObjectKind",
    "ObjectRow",
    "Recovery",
    "RuleMistake",
    "SignalReport",
    "SignalRules",
    "Tables",
    "assess",
    "awaited_since",
    "claims_mentioned",
    "describe_hold",
    "devices_given",
    "devices_meant",
    "expected_on_node",
    "expressions_of",
    "failed_start",
    "gpu_names",
    "has_device_status",
    "hold_time",
    "holds_on_devices",
    "holds_on_node",
    "in_force",
    "is_device_refusal",
    "is_past",
    "is_rules_file",
    "known_score",
    "load_rules",
    "make_rules",
    "metrics",
    "name_of_held",
    "node_reporter",
    "object_reporter",
    "one_line",
    "own_rows",
    "quoted",
    "readable",
    "report_of_claim",
    "report_of_compute_domain",
    "report_of_event",
    "report_of_node",
    "report_of_object",
    "report_of_pod",
    "report_of_slice",
    "report_of_taint_rule",
    "rows_about_objects",
    "rows_replaced",
    "rule_mistakes",
    "rules_without",
    "selects_device",
    "source_of",
    "start_evidence",
    "starts_of",
    "subject_called",
    "to_count",
    "unread_counts",
    "written",
]
