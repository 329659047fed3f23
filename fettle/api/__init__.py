"""Bytes to structs of only the needed fields, one module per API group.

Field names are Kubernetes' own in snake case (`msgspec` renames them). An absent field and `null`
read the same. Fields that a struct does not name are skipped while decoding, not stored.
"""

from fettle.api import (
    admission,
    annotations,
    core,
    device_healths,
    extender,
    kinds,
    meta,
    nvidia,
    quantities,
    raw,
    resource,
    reviews,
)
from fettle.api.changes import (
    Bad,
    Batches,
    Change,
    Contact,
    Gone,
    Inheritance,
    ListEnded,
    ListStarted,
    Lost,
    Put,
    Sink,
    Unserved,
    bad_object,
    key_of,
    loose_metadata,
    metadata_in_slices,
    read_in_slices,
    read_object,
)
from fettle.api.decoding import MAX_JSON_DEPTH, decode_lenient, describe_error, mend, suggest_field
from fettle.api.device_healths import DeviceHealth
from fettle.api.documents import LocatedObject, objects_of_json, objects_of_yaml
from fettle.api.paths import api_path, group_path
from fettle.api.policies import (
    POLICY_READ,
    DevicePolicy,
    PolicyCondition,
    PolicyStatus,
    StoredPolicyStatus,
)
from fettle.api.salvage import Pools, complete_node, node_and_pools
from fettle.api.samples import Alert, Alerted, Finding, Measured, Sample, Unmeasured
from fettle.api.workloads import known_as, workload_of

__all__ = [
    "MAX_JSON_DEPTH",
    "POLICY_READ",
    "Alert",
    "Alerted",
    "Bad",
    "Batches",
    "Change",
    "Contact",
    "DeviceHealth",
    "DevicePolicy",
    "Finding",
    "Gone",
    "Inheritance",
    "ListEnded",
    "ListStarted",
    "LocatedObject",
    "Lost",
    "Measured",
    "PolicyCondition",
    "PolicyStatus",
    "Pools",
    "Put",
    "Sample",
    "Sink",
    "StoredPolicyStatus",
    "Unmeasured",
    "Unserved",
    "admission",
    "annotations",
    "api_path",
    "bad_object",
    "complete_node",
    "core",
    "decode_lenient",
    "describe_error",
    "device_healths",
    "extender",
    "group_path",
    "key_of",
    "kinds",
    "known_as",
    "loose_metadata",
    "mend",
    "meta",
    "metadata_in_slices",
    "node_and_pools",
    "nvidia",
    "objects_of_json",
    "objects_of_yaml",
    "quantities",
    "raw",
    "read_in_slices",
    "read_object",
    "resource",
    "reviews",
    "suggest_field",
    "workload_of",
]
