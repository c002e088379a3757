"""A2A, the Agent2Agent protocol: what both of its sides share.

Start with `content`, which turns the parts of messages into content and back; `sdk` imports the SDK, which comes with
the `a2a` extra. Lyra's agents for the programs of others are in `lyra.server.protocols.a2a`.
"""
