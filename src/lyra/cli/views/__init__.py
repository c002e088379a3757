"""Commands that show what runs, of a store or of a server. They only read, also beside a running kernel.

`processes` has `ps`, `tree` and `top`, `calls` has `trace`, `events` and `cost`; `processes` gives the rows that they
show.
"""
