"""Rules that find claims and workloads which can never work, before anybody waits for them.

One class a rule, grouped by subject; the same rules serve the admission webhook and the command
line. They read raw v1 JSON, because what they judge may be anything, and do no I/O: what they need
to know of the cluster they ask a `Context`. Part of the core: imports only `wire` and `view`.
"""
