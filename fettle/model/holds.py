"""An operator's word that a node, a device or a unit is out of use, for now."""

import math

import msgspec

from fettle.model.subjects import Subject


class Hold(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One hold. `annotation` is the key under which its object records it.

    - `by`: the user name of who holds it; "" if not recorded.
    - `since`, `until`: Unix seconds. `since` is None if not recorded; without an end, `until` is
      infinite.
    """

    subject: Subject
    annotation: str
    reason: str = ""
    by: str = ""
    since: float | None = None
    until: float = math.inf
