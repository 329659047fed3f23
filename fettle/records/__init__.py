"""What Fettle decided and what became of it, kept in memory and on disk.

Stands after the answer in *watch → inventory → health → verdict → answer*: no answer depends on it.
"""

from fettle.records.decisions import Act, Became, Decided, Decision, Placed, Verb, merged, wordless
from fettle.records.fates import PodFates
from fettle.records.log import DecisionLog, Journal, seconds_of
from fettle.records.recorder import Recorder
from fettle.records.report import make_report
from fettle.records.summaries import Counted, Summaries

__all__ = [
    "Act",
    "Became",
    "Counted",
    "Decided",
    "Decision",
    "DecisionLog",
    "Journal",
    "Placed",
    "PodFates",
    "Recorder",
    "Summaries",
    "Verb",
    "make_report",
    "merged",
    "seconds_of",
    "wordless",
]
