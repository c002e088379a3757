"""Which paths are protected, and what becomes of those that appear.

`protected_names` has the names that other programs obey, `protected_places` the paths that Lyra itself obeys, and
`git_repositories` finds repositories by their shape. `forbidden_names` keeps names free that do not exist yet,
`protected_links` keeps links that lead to protected paths, and `leftovers` removes what a killed process left.
`lyra.sandbox.protected` finds all of them in a workspace.
"""
