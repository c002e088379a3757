"""Continues with a durable run after its program was changed.

`rehearsal` replays a run with the new program without performing anything, `migration` compares the two programs and
decides whether going on is safe.
"""
