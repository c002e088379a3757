"""The message bus: events for all subscribers, commands and queries for one handler. In memory, never journaled.

Start with `bus`; `message` is a subscriber with bounded room, `message` pauses a handler that keeps failing.
"""
