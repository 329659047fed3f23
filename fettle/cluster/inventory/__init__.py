"""The cluster's devices as they stand: objects are folded in, records of nodes are made of them."""
