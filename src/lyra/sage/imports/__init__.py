"""What Sage takes over from other agents: rules, commands, sub-agents, skills, permissions, hooks and MCP servers.

Start with `sources`: which files of Claude Code, Codex and Cursor are read, and where each goes. It
also converts the Markdown files; `settings` has the rules, hooks and servers, `apply` writes what was made and takes it
back. Nothing is run, and nothing is trusted by it.
"""
