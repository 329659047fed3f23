"""Rules about objects: CEL over `resource` and `now`, evaluated by cel-python in a worker process.

`expressions` reads, `judging` evaluates, `worker` is the process: only that loads cel-python.
`asking` asks it.
"""
