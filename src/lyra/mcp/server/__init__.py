"""The server side of MCP: `offer` makes Lyra's tools available through the door, `serve` speaks the protocol."""
