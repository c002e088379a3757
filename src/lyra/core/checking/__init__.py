"""Checks values and documents that a person wrote, and reports mistakes in the same sentences everywhere.

`check` has the sentences, `document` reads TOML, YAML and JSON with positions, `schema` checks JSON Schema.
"""
