"""`fettle scheduler-config`: Fettle's entry in the configuration of a kube-scheduler."""
