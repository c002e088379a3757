"""Git in a repository whose settings may be hostile.

Start at `repository`, which runs git so that no setting of a repository starts a program; `calls` says which command
lines the tool `Git` takes. The tool itself is `lyra.tools.builtin.git`; Sage's own questions about a repository use
`repository`, too.
"""
