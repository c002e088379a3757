"""Slash commands: a table, one small function each, over what a session offers. Nothing here knows a terminal.

A command gives back plain data (`result`) that a terminal, an editor or a program shows in its own way.
Start with `registry`: the table, and `run_command`.
"""
