"""DRA's CEL selectors: match, no match, would abort, or undecided, for an expression on a device.

`engine.SelectorEngine` is what the rest of Fettle uses, with `outcomes`. One way through the rest:
`tokens` and `parsing` (with `macros`) make a tree, `checking` and `validating` refuse what
Kubernetes' compiler refuses, `compiling` makes a program of it, `evaluating` runs that on a row.
`declarations` collects the functions of the libraries, `inspecting` says for people what the
nearest device lacks, in the words of `shortfalls`. All of these run only in the worker process;
nothing on the loop's side imports them.
"""
