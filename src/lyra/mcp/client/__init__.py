"""The client side of MCP: servers, their connections, and their tools as Lyra's Tools.

Start with `servers`, then `connection`. Only the modules that `sdk` collects import the MCP SDK, at first use. What a
server may ask back is in `callback`, `callback_routes` and `callback_limits`; `approvals` keeps what a person agreed
to.
"""
