"""Benchmarks: `python -m tests.bench [section...]` prints one table and writes build/bench.json.

Contestants alternate within one run and figures are medians, so that what else the machine does
meets all of them. Sections run Fettle as users do, its own process over HTTP, except `verdicts`,
which times the core in this process.
"""
