"""Checks values and documents that a person wrote, and reports mistakes in the same sentences everywhere.

`check` has the sentences, `document` reads TOML, YAML and JSON with positions, `front_matter` the YAML at the head of a
Markdown file, `report` gathers the mistakes of a file, `watched_files` reads files again when they change, `schema`
checks JSON Schema.
"""
