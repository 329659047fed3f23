"""Facts to evidence: what objects of the cluster say about the health of devices and nodes.

One module per source, all pure; what each fact weighs is data in `rules/`. Stands between
inventory and health in *watch → inventory → health → verdict → answer*; `gathering` is the way
in. Imports wire, model and how resources of devices are told, never health, feeds or faces.
"""
