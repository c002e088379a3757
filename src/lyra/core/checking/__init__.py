"""Checks values and documents that a person wrote, and reports mistakes in the same sentences everywhere.

`check` has the sentences and gathers the mistakes of a file, `document` reads TOML, YAML and JSON with positions, and
the YAML at the head of a Markdown file, `watched_files` reads files again when they change, `schema` checks JSON
Schema.
"""
