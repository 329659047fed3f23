"""An operator's word that a node, a device or a unit is out of use, for now."""

import math
from collections.abc import Iterable
from typing import Protocol

import msgspec

from fettle.model.annotations import HOLD
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


class TaintLike(Protocol):
    """The fields that taints of nodes and of devices have in common."""

    @property
    def key(self) -> str: ...

    @property
    def value(self) -> str: ...

    @property
    def effect(self) -> str: ...


def is_tainted_as_held(taints: Iterable[TaintLike]) -> bool:
    """Whether one of these makes the scheduler obey a hold, whoever set it."""
    return any(
        taint.key == HOLD and taint.effect in ("NoSchedule", "NoExecute") for taint in taints
    )
