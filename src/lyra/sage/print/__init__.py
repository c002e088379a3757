"""`sage -p`: turns of a session, printed. Imports nothing of a terminal.

Start with `printed`: one task. `conversed` is several, driven by requests on stdin.
"""
