"""Git for agents: a repository whose settings may be hostile, and the tool that commits, switches and rebases in it.

Start at `tool`, the tool `Git`; `calls` says which command lines it takes, `repository` runs git so that no setting of
a repository starts a program. Sage's own questions about a repository use `repository`, too.
"""
