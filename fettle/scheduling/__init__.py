"""A pod's demand on devices, judged node by node: verdicts, and what is kept of them.

Stands between view and answer in *watch → inventory → health → verdict → answer*; pure.
"""

from fettle.scheduling import demand
from fettle.scheduling.answers import Answers
from fettle.scheduling.breaker.alarms import Alarm
from fettle.scheduling.demand import Demand, Units
from fettle.scheduling.judge import draws
from fettle.scheduling.judge.claimed import is_usable
from fettle.scheduling.judge.parts import Choice
from fettle.scheduling.judge.requirements import Engines
from fettle.scheduling.judge.taken import Taken, counted, full, lacking
from fettle.scheduling.judge.verdicts import EXTENDED_RESOURCES, Verdict
from fettle.scheduling.predictions import Predictions
from fettle.scheduling.preemption import Preempting
from fettle.scheduling.tables.tables import Narrowed, Table

__all__ = [
    "EXTENDED_RESOURCES",
    "Alarm",
    "Answers",
    "Choice",
    "Demand",
    "Engines",
    "Narrowed",
    "Predictions",
    "Preempting",
    "Table",
    "Taken",
    "Units",
    "Verdict",
    "counted",
    "demand",
    "draws",
    "full",
    "is_usable",
    "lacking",
]
