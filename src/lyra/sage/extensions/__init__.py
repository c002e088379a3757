"""Extensions of Sage: slash commands, skills, sub-agents and plugins from files, hooks, and what is remembered.

Start with `places`: the folders that are read, and which of them count. `front_matter` reads one Markdown file,
`agent_files` sub-agents; `hooks` run at moments of a session. Files of a project count once their content is trusted. A
name of Sage's own cannot be taken by a file. Nothing here asks a model, and only hooks run a command.
"""
