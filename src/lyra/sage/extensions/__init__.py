"""Extensions of Sage from files: slash commands, skills, sub-agents, plugins, and what is remembered.

Start with `places`: the folders that are read, and which of them count. `front_matter` reads one Markdown file,
`agent_files` sub-agents. Files of a project count once their content is trusted. A name of Sage's own cannot be taken
by a file. Nothing here asks a model or runs a command.
"""
