"""What is known of pods besides what the view shows, above all of those that have a node: which are
at risk, stuck or crashed there, which have ended, and what they leave behind."""

from fettle.scheduling.placed.at_risk import AtRisk, PlacedPod, is_certain, worst_first
from fettle.scheduling.placed.comebacks import Comebacks, was_taken
from fettle.scheduling.placed.crashes import Crashes, ExplainedCrash
from fettle.scheduling.placed.departures import Departure
from fettle.scheduling.placed.device_failures import (
    DeviceFailure,
    Failures,
    devices_held,
    find_failures,
)
from fettle.scheduling.placed.finished import FinishedPod, FinishedPods, PodClaims
from fettle.scheduling.placed.pod_observers import PodObservers, RecentPods
from fettle.scheduling.placed.stuck_pods import (
    FreedPlaces,
    StartFailure,
    StartFailures,
    find_start_failures,
    stuck,
)

__all__ = [
    "AtRisk",
    "Comebacks",
    "Crashes",
    "Departure",
    "DeviceFailure",
    "ExplainedCrash",
    "Failures",
    "FinishedPod",
    "FinishedPods",
    "FreedPlaces",
    "PlacedPod",
    "PodClaims",
    "PodObservers",
    "RecentPods",
    "StartFailure",
    "StartFailures",
    "devices_held",
    "find_failures",
    "find_start_failures",
    "is_certain",
    "stuck",
    "was_taken",
    "worst_first",
]
