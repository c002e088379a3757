"""Plugins: folders with commands, skills, sub-agents, tools, hooks and MCP servers, and a manifest that declares them.

Start with `manifest` (what `plugin.toml` says) and `permissions` (what a plugin may use). `plugin` reads all parts of
one, `tools`, `hooks` and `servers` hold those to the declaration, `copying` and `store` install and enable them.
"""
