"""The message bus: events for all subscribers, commands and queries for one handler. In memory, never journaled.

Start with `bus`; `stream` is a subscriber with bounded room, `breaker` pauses a handler that keeps failing.
"""
