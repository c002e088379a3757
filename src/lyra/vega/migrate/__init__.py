"""Continues with a durable run after its program was changed.

`changes` compares two programs, `rehearsal` replays a run with the new one without performing anything, `migration`
decides whether going on is safe.
"""
