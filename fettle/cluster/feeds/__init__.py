"""Where changes come from: a cluster's API server, or a snapshot folder; and the one writer task.

Every feed says the same things in the same words (`fettle.api.changes`), so serving from a
snapshot and serving from a cluster differ in nothing but the source.
"""
