"""Metrics as evidence, on a real Prometheus."""

SKIPPED = (
    "Prometheus not found: tests of metrics are skipped; apt-get install prometheus (prometheus "
    "and promtool on the path)"
)
