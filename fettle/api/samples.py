"""What a feed of metrics delivers: samples of series that fire, by the rule that asked for them."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The value of one series now, and the labels that name the series."""

    labels: Mapping[str, str]
    value: float


class Measured(NamedTuple):
    """What a rule's query found.

    - `samples`: the series that fire. `kept`: those of which what was latched is not over yet.
    - `odd`: series without a usable number. They are neither a fault nor an all-clear.
    - `present`: series, whether they fire or not, of the devices for which the rule fired before.
      None: a device that has none is well.
    - `over`: series that are said to fire no more.
    - `complete`: Prometheus answered in full, so what does not fire and is present is well. If not,
      only what is `over` is.
    """

    rule: str
    samples: tuple[Sample, ...]
    kept: tuple[Sample, ...] = ()
    odd: tuple[Sample, ...] = ()
    present: tuple[Sample, ...] | None = None
    over: tuple[Sample, ...] = ()
    complete: bool = True


class Unmeasured(NamedTuple):
    """A rule has had no answer for so long that what it said no longer stands."""

    rule: str


Finding = Measured | Unmeasured
