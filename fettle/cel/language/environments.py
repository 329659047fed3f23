"""What an expression may refer to: for stored objects, or, more strictly, for those being written.

Pure. The scheduler compiles as for stored objects, whatever its feature gates are. The API server
accepts in a new object only what the gates of the release before allow too.
"""

from typing import NamedTuple

from fettle.cel.library.signatures import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of
from fettle.cel.runtime.rows import Variable


class Environment(NamedTuple):
    """`multiple`: whether `allowMultipleAllocations` is known; `lists`: whether attributes may be
    iterated over; `variable`: what an expression is about."""

    multiple: bool = True
    lists: bool = True
    variable: Variable = "device"

    @property
    def attribute(self) -> Type:
        return DYN if self.lists else ANY

    @property
    def fields(self) -> dict[str, Type]:
        """The fields of the variable."""
        if self.variable == "node":
            return {"labels": map_of(STRING, STRING)}
        known = {
            "driver": STRING,
            "attributes": map_of(STRING, map_of(STRING, self.attribute)),
            "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        }
        return {**known, "allowMultipleAllocations": BOOL} if self.multiple else known

    def knows(self, function: str) -> bool:
        return self.lists or function != "includes"


STORED = Environment()
NODE = Environment(variable="node")
"""For what policies require of nodes: DRA's functions, and a node instead of a device."""
