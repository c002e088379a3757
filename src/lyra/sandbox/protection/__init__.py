"""Which paths are protected, and what becomes of those that appear.

`protected_names` has the names that other programs obey, `protected_places` the paths that Lyra itself obeys and the
folders of `PATH`, and `git_repositories` finds repositories by their shape and files that git's settings name. `obeyed`
asks all of them for a single path, with the links in a workspace; every file tool asks it. `forbidden_names` keeps
names free that do not exist yet and removes what a killed process left; `linked_folders` keeps links that lead to
protected paths. `lyra.sandbox.protected` finds all of them in a workspace.
"""
