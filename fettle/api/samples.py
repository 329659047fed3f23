"""What feeds that ask deliver: series that fire, by the rule, what rules say of objects, and what
workloads name."""

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


class ObjectFact(msgspec.Struct, frozen=True, array_like=True):
    """`device` is as a hold names it; "" for the node. `said`: what people read."""

    node: str
    device: str = ""
    said: str = ""


class ObjectHeard(NamedTuple):
    """What rows of the table `objects` say of one object now, by their names.

    `unknown`: rows that could not be evaluated. `gone`: it does not exist any more.
    """

    kind: str
    key: str
    uid: str = ""
    facts: Mapping[str, tuple[ObjectFact, ...]] = {}
    unknown: tuple[str, ...] = ()
    gone: bool = False


Finding = Measured | Alerted | Unmeasured | ObjectHeard | Inheritance
