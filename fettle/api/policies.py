"""The group `fettle.dev/v1alpha1`: DevicePolicy, whose `spec` is `fettle.model.Sections`."""

from fettle.api.annotations import ApiObject
from fettle.model import Policy, Sections


class DevicePolicy(ApiObject, frozen=True, kw_only=True):
    spec: Sections = Sections()

    def policy(self) -> Policy:
        sections = {field: getattr(self.spec, field) for field in Sections.__struct_fields__}
        return Policy(name=self.metadata.name, **sections)
