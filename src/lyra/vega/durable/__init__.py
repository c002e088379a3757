"""Durable runs of Vega programs: the journal of a run, its checkpoints, and how it resumes after a kill.

Start with `durable_run`, which also brings processes back; `record` keeps program and output, `runs` and `trace` read a
run without running it.
"""
