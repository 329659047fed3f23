"""What feeds that ask deliver: series that fire, by the rule, and what workloads name."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from fettle.api.changes import Inheritance


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
    - `complete`: Prometheus answered in full, so what does not fire and is present is well. If not,
      nothing is.
    - `missed`: series of what began while nobody asked. Only what is latched counts of it.
    """

    rule: str
    samples: tuple[Sample, ...]
    kept: tuple[Sample, ...] = ()
    odd: tuple[Sample, ...] = ()
    present: tuple[Sample, ...] | None = None
    complete: bool = True
    missed: tuple[Sample, ...] = ()


class Alert(NamedTuple):
    """What Alertmanager says of one alert of a rule: whether it `fires`, or is over.

    `fingerprint`: Alertmanager's name for the alert's labels.
    """

    rule: str
    fingerprint: str
    sample: Sample
    fires: bool


class Alerted(NamedTuple):
    """The alerts of one message."""

    alerts: tuple[Alert, ...]


class Unmeasured(NamedTuple):
    """A rule has had no answer for so long that what it said no longer stands; or one alert of the
    rule, by its fingerprint, was not repeated."""

    rule: str
    alert: str = ""


Finding = Measured | Alerted | Unmeasured | Inheritance
