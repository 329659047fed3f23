"""The group `fettle.dev/v1alpha1`: DevicePolicy, whose `spec` is `fettle.model.Sections`, and whose
`status` the steward writes. Nothing that Fettle does follows from a status.
"""

from datetime import datetime

from fettle.api.annotations import ApiObject
from fettle.api.meta import Wire
from fettle.model import Policy, Sections

POLICY_READ = "Read"
"""The condition of every DevicePolicy."""


class DevicePolicy(ApiObject, frozen=True, kw_only=True):
    spec: Sections = Sections()

    def policy(self) -> Policy:
        sections = {field: getattr(self.spec, field) for field in Sections.__struct_fields__}
        return Policy(name=self.metadata.name, **sections)


class PolicyCondition(Wire, frozen=True, kw_only=True):
    """`observed_generation`: of the spec that it is about."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0


class PolicyStatus(Wire, frozen=True, kw_only=True):
    """`read_by`: the version of Fettle, such as "fettle 0.1.0"."""

    read_by: str = ""
    conditions: tuple[PolicyCondition, ...] = ()


class StoredPolicyStatus(ApiObject, frozen=True, kw_only=True):
    """A DevicePolicy, whatever is in its spec."""

    status: PolicyStatus | None = None
