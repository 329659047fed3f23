"""The inventory: objects of the cluster are folded in, and a record of each node is made of them.

Stands between the feeds and the view. `inventory.py` is the way in; only the writer task uses it.
"""
