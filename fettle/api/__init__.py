"""Bytes to structs of only the needed fields, by API group.

Field names are Kubernetes' own in snake case (`msgspec` renames them). An absent field and `null`
read the same. Fields that a struct does not name are skipped while decoding, not stored.
"""

from typing import TYPE_CHECKING

from fettle.api import (
    annotations,
    api_server,
    core,
    extender,
    kinds,
    kueue,
    meta,
    own_group,
    quantities,
    raw,
    resource,
)
from fettle.api.api_server import api_path, group_path
from fettle.api.changes import (
    Alert,
    Alerted,
    Bad,
    Batches,
    Change,
    Contact,
    Finding,
    Gone,
    Inheritance,
    ListEnded,
    ListStarted,
    Lost,
    Measured,
    ObjectFact,
    ObjectReported,
    Put,
    Sample,
    Sink,
    Unmeasured,
    Unserved,
    bad_object,
    key_of,
    loose_metadata,
    metadata_in_slices,
    read_in_slices,
    read_object,
)
from fettle.api.core import known_as, workload_of
from fettle.api.decoding import (
    MAX_JSON_DEPTH,
    decode_lenient,
    describe_error,
    mend,
    shallow,
    suggest_field,
)
from fettle.api.own_group import (
    POLICY_READ,
    DeviceHealth,
    DevicePolicy,
    PolicyCondition,
    PolicyStatus,
    StoredPolicyStatus,
)
from fettle.api.salvage import Pools, complete_node, node_and_pools

if TYPE_CHECKING:
    from fettle.api.documents import (
        LocatedObject,
        as_key,
        objects_of_json,
        objects_of_yaml,
        scalar_of,
    )

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
    "ObjectFact",
    "ObjectReported",
    "PolicyCondition",
    "PolicyStatus",
    "Pools",
    "Put",
    "Sample",
    "Sink",
    "StoredPolicyStatus",
    "Unmeasured",
    "Unserved",
    "annotations",
    "api_path",
    "api_server",
    "as_key",
    "bad_object",
    "complete_node",
    "core",
    "decode_lenient",
    "describe_error",
    "extender",
    "group_path",
    "key_of",
    "kinds",
    "known_as",
    "kueue",
    "loose_metadata",
    "mend",
    "meta",
    "metadata_in_slices",
    "node_and_pools",
    "objects_of_json",
    "objects_of_yaml",
    "own_group",
    "quantities",
    "raw",
    "read_in_slices",
    "read_object",
    "resource",
    "scalar_of",
    "shallow",
    "suggest_field",
    "workload_of",
]

_OF_DOCUMENTS = ("LocatedObject", "as_key", "objects_of_json", "objects_of_yaml", "scalar_of")


def __getattr__(name: str) -> object:
    # Late, since it loads PyYAML, and the CEL worker imports this package too.
    if name in _OF_DOCUMENTS:
        from fettle.api import documents

        found: object = getattr(documents, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
