"""The scheduler extender: HTTP around verdicts, and a second listener for people and machines."""
