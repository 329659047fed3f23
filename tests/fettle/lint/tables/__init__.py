"""Objects that each rule must catch, and near misses that it must not, by subject.

All of them are what the API server accepts: the suite on the real control plane creates them.
"""
