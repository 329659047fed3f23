"""Holds Fettle's allocator and selectors against Kubernetes' own code on random cases.

`python -m tests.oracle --help` runs it for long; the tests here run it for seconds with fresh
seeds. Every difference ever found is kept in `cases/`, made small, and is read without Go.
"""
