"""Metrics and logs: what Fettle says of itself to machines."""
