"""Open protocols: agents of Lyra for other programs, by A2A (`a2a`), AG-UI (`agui`) and MCP (`mcp`).

Each folder has a table of endpoints, which `lyra.server.site` lists. Start with `a2a.routes`.
"""
