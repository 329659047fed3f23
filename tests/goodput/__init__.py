"""Goodput: how much of a fleet's capacity does useful work, by who minds the health of devices.

`plan` says what fails and what work arrives, from a seed alone. `replay` plays it: devices, pods,
jobs and what kubelets and monitors say. Who places the pods is a `World`: `packer` is one without a
scheduler, in seconds; `cluster` is the real control plane. `results`, `tables` and `plots` tell it.
"""
