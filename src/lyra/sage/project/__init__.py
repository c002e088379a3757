"""What a model is told about the folder it works in: rules, environment, git state, a map, and diagnostics after edits.

`rules` has the rules of the project (`AGENTS.md`, `SAGE.md`), which count where the user trusts them. `git_state` reads
the branch and asks git for the rest. The folder `repo_map` makes the map of files and symbols, `diagnostics` runs
linters and language servers after an edit. `prompt` puts the texts together: start there. Nothing here decides what a
tool may do.
"""
