"""Signals: what objects of the cluster say about the health of devices and nodes, as evidence.

One module per kind of object. Each has a function `report_of_…(object, rules, now)` that returns a
SignalReport; all are pure. What a fact weighs is data: the rows in `rules/*.yaml`. To add a signal,
add rows if a rule table covers it, else a function to the module of its kind of object.
"""
