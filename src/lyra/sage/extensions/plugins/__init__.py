"""Plugins: folders with commands, skills, sub-agents, tools, hooks and MCP servers, and a manifest that declares them.

Start with `plugin`: what `plugin.toml` says, what a plugin may use, and all its parts, held to the declaration; `store`
installs and enables them.
"""
