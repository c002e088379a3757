"""Extensions of Sage from files: slash commands, skills, sub-agents, hooks, plugins, and what is remembered.

Start with `extensions`: all of a session, looked at again when files change. `extension_files` says which folders are
read and which files count, and reads them. `custom_commands`, `agent_files`, `skills` and `plugins` are the kinds,
`hooks` run at moments of a session. Files of a project count once their content is trusted. A name of Sage's own cannot
be taken by a file.
"""
