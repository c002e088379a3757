"""The JSON Schema of files of nodes, built from the tables that read them. Start at `build.json_schema`; `recorder`
finds the keys of the sections, `texts` has a sentence for each key.
"""
