"""What a model is told about the folder it works in: rules, environment, git state, a map, and diagnostics after edits.

`rules` has the rules of the project (`AGENTS.md`, `SAGE.md`), which count where the user trusts them; `rule_files`
reads them, `rule_asks` names them to `lyra trust`, `folder_rules` tells those of a subfolder when a file there is read.
`git_head` reads the branch, `git_state` asks git for the rest, `environment` has the platform and the date. The folder
`repo_map` makes the map of files and symbols, `diagnostics` runs linters and language servers after an edit. `prompt`
puts the texts together: start there. Nothing here decides what a tool may do.
"""
