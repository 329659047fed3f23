"""DRA's CEL selectors: match, no match, would abort, or undecided, for an expression on a device.

`engine.SelectorEngine` is what the rest of Fettle uses, with `outcomes`. The modules `compiling`,
`evaluating`, `functions`, `loops`, `reading`, `sources`, `values` and `worker` run only in the
worker process, which holds cel-python; nothing on the loop's side imports them.
"""
