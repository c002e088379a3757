"""Pipelines: declared stages, and the orchestrator that says what runs next.

Declared: `routing` (keys and rules), `declaration`, `check`, `files`, `schema`. In motion: `session`, `moves` (pure),
`state`, `questions`. `orchestrator` is the service, `agents` run its stages, `runner` is the program that runs a whole
pipeline, `feeds` what its listeners are told.
"""
