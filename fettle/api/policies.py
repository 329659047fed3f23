"""The group `fettle.dev/v1alpha1`: DevicePolicy, whose `spec` is `fettle.model.Sections`."""

from fettle.api.meta import ObjectMeta, Wire
from fettle.model import Policy, Sections


class DevicePolicy(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: Sections = Sections()

    def policy(self) -> Policy:
        sections = {field: getattr(self.spec, field) for field in Sections.__struct_fields__}
        return Policy(name=self.metadata.name, **sections)
