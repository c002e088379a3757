"""`sage -p`: one task in a session, printed. Imports nothing of a terminal.

Start with `printed`.
"""
