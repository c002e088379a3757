"""MCP over streamable HTTP at `/mcp`: the agents of the server as tools, with the server's own tokens (extra `mcp`).

Start with `endpoint`. The tools of a machine are offered by `lyra mcp serve` (`lyra.mcp.serve`), not here.
"""
