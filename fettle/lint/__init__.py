"""Rules that find claims and workloads which can never work, before anybody waits for them.

One class a rule, grouped by subject; the same rules serve the admission webhook and the command
line. They read raw JSON through `manifests` and `fields`, because what they judge may be anything,
and ask what they need to know of the cluster of a `Cluster`: objects by name, and surveys of which
devices a selector matches, which `fleet` makes and keeps. `linting` runs them. Part of the core:
does no I/O, and evaluates no selector itself.
"""
