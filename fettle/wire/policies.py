"""The group `fettle.dev/v1alpha1`: DevicePolicy; its `spec` is the sections of `fettle.policy`."""

from fettle.policy import Policy, Sections
from fettle.wire.meta import ObjectMeta, Wire


class DevicePolicy(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: Sections = Sections()

    def policy(self) -> Policy:
        sections = {field: getattr(self.spec, field) for field in Sections.__struct_fields__}
        return Policy(name=self.metadata.name, **sections)
