"""What an expression may refer to: for stored objects, or, more strictly, for those being written.

Pure. The scheduler compiles as for stored objects, whatever its feature gates are. The API server
accepts in a new object only what the gates of the release before allow too.
"""

from typing import NamedTuple

from fettle.selectors.signatures import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of


class Environment(NamedTuple):
    """`multiple`: whether `allowMultipleAllocations` is known; `lists`: whether attributes may be
    iterated over."""

    multiple: bool = True
    lists: bool = True

    @property
    def attribute(self) -> Type:
        return DYN if self.lists else ANY

    @property
    def fields(self) -> dict[str, Type]:
        """The fields of `device`."""
        known = {
            "driver": STRING,
            "attributes": map_of(STRING, map_of(STRING, self.attribute)),
            "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        }
        return {**known, "allowMultipleAllocations": BOOL} if self.multiple else known

    def knows(self, function: str) -> bool:
        return self.lists or function != "includes"


STORED = Environment()
