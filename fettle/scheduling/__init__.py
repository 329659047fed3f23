"""A pod's demand for devices, judged node by node, and the verdicts that are kept ready.

Stands between view and answer in *watch → inventory → health → verdict → answer*. Pure.
"""

from fettle.scheduling.answers import Answers, devices_counted
from fettle.scheduling.breaker import Alarm
from fettle.scheduling.demand import (
    EXTENDED_RESOURCES,
    Demand,
    Units,
    copy_to_place,
    resolve_policy,
    side_by_side,
)
from fettle.scheduling.former_nodes import FormerNodes
from fettle.scheduling.judge.acceptance import Cause
from fettle.scheduling.judge.claims import is_usable
from fettle.scheduling.judge.parts import Choice
from fettle.scheduling.judge.placed import PluginUse, UnitUsers
from fettle.scheduling.judge.units import (
    Taken,
    allocatable_units,
    count_taken,
    lacking_units,
    nodes_lacking_units,
)
from fettle.scheduling.judge.verdicts import Verdict
from fettle.scheduling.leanings import NEUTRAL, Leaning, Leanings
from fettle.scheduling.owner_refusals import OwnerRefusals, avoiding
from fettle.scheduling.predictions import Predictions
from fettle.scheduling.preemption import Preemption, preemptible_pods
from fettle.scheduling.tables import Narrowed, Table
from fettle.scheduling.waits import bound_at

__all__ = [
    "EXTENDED_RESOURCES",
    "NEUTRAL",
    "Alarm",
    "Answers",
    "Cause",
    "Choice",
    "Demand",
    "FormerNodes",
    "Leaning",
    "Leanings",
    "Narrowed",
    "OwnerRefusals",
    "PluginUse",
    "Predictions",
    "Preemption",
    "Table",
    "Taken",
    "UnitUsers",
    "Units",
    "Verdict",
    "allocatable_units",
    "avoiding",
    "bound_at",
    "copy_to_place",
    "count_taken",
    "devices_counted",
    "is_usable",
    "lacking_units",
    "nodes_lacking_units",
    "preemptible_pods",
    "resolve_policy",
    "side_by_side",
]
