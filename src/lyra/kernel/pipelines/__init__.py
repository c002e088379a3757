"""Pipelines: declared stages, and the orchestrator that says what runs next.

Declared: `keys`, `declaration`, `check`, `files`, `files`, `schema`, `graph`. In motion: `session`, `routing`, `moves`
(pure), `state`, `questions`, `session`. `orchestrator` is the service, `runner` the program that runs a
whole pipeline, `feeds` what its listeners are told.
"""
