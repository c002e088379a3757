"""AG-UI: agents for web front ends, as an event stream in the protocol's own types (extra `agui`).

A thread is a durable conversation of one user with one agent; a run is one request that reads what happens in it. Start
with `threads`.
"""
