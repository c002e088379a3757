"""Plugins: folders with commands, skills, sub-agents, tools, hooks and MCP servers, and a manifest that declares them.

Start with `manifest`: what `plugin.toml` says, and what a plugin may use. `plugin` reads all parts of one and holds
them to the declaration, `store` installs and enables them.
"""
