"""Commands that show what runs, of a store, a server or a cluster. They only read, also beside a running kernel.

`processes` has `ps`, `tree` and `top`, `calls` has `trace`, `events` and `cost`; `rows` has the rows that they show,
and `shards` those of a cluster.
"""
