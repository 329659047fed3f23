"""What one pod needs of devices: from a pod and its claims to a value that can be compared."""
