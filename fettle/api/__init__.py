"""Bytes to structs of only the needed fields, one module per API group.

Field names are Kubernetes' own in snake case (`msgspec` renames them); an absent field and `null`
are the same. What a struct does not name is skipped while decoding, not stored.
"""
